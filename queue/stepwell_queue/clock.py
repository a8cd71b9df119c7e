"""Clock and ids: the only sources of time and chance, passed in at the root."""

from __future__ import annotations

import asyncio
import os
import struct
import time
import weakref
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol


class Timer(Protocol):
    """A pending callback."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Wall time in seconds since the epoch, and callbacks at a wall time."""

    def now(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` on the running loop at wall time `when`, never before; soon if past."""
        ...


class Ids(Protocol):
    """New run ids and start nonces."""

    def run_id(self) -> str: ...

    def nonce(self) -> int:
        """A random integer of 63 bits."""
        ...


_LONGEST_WAIT = 600.0


def utc(seconds: float) -> datetime:
    """Return a wall time as an aware datetime; later than any datetime is the last one."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):  # which one depends on how far it is
        return datetime.max.replace(tzinfo=UTC)


class _WallTimer:
    """Re-arms in bounded pieces, so that a clock jump delays it by at most one piece."""

    def __init__(self, clock: SystemClock, when: float, callback: Callable[[], None]) -> None:
        self._clock, self._when, self._callback = clock, when, callback
        self._arm()

    def _arm(self) -> None:
        left = self._when - self._clock.now()
        delay = min(max(left, 0.0), _LONGEST_WAIT)
        self._handle = asyncio.get_running_loop().call_later(delay, self._fire)

    def _fire(self) -> None:
        if self._when > self._clock.now():
            self._arm()
        else:
            self._callback()

    def cancel(self) -> None:
        self._handle.cancel()


class SystemClock:
    """The wall clock of this machine."""

    now = staticmethod(time.time)

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        return _WallTimer(self, when, callback)


class RandomIds:
    """UUIDv7 run ids (RFC 9562 §5.7), made of the clock and the system's randomness.

    For one thread: each app has its own. The randomness is fetched for many at a time, since a
    system call costs more than the id it is for.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._milliseconds = -1
        self._time = ""
        self._tails: list[str] = []
        self._nonces: list[int] = []
        _all_ids.add(self)

    def run_id(self) -> str:
        milliseconds = int(self._clock.now() * 1000)
        if milliseconds != self._milliseconds:
            text = f"{milliseconds & 0xFFFF_FFFF_FFFF:012x}"
            self._milliseconds, self._time = milliseconds, f"{text[:8]}-{text[8:]}-"
        if not self._tails:
            self._tails = _tails()
        return self._time + self._tails.pop()

    def nonce(self) -> int:
        if not self._nonces:
            self._nonces = [one >> 1 for one in _EIGHT_BYTES.unpack(os.urandom(_EIGHT_BYTES.size))]
        return self._nonces.pop()

    def forget(self) -> None:
        """Throw away what was fetched and not used yet."""
        self._tails, self._nonces = [], []


_AT_A_TIME = 256
_EIGHT_BYTES = struct.Struct(f"<{_AT_A_TIME}Q")
_ONES = int.from_bytes(b"\0\1" * _AT_A_TIME, "big")


def _tails() -> list[str]:
    """Return what follows the time in an id, for many: 7xxx-yxxx-xxxxxxxxxxxx, y from 8 to b."""
    versioned, varied = _words(0x0FFF, 0x7000), _words(0x3FFF, 0x8000)
    ends = os.urandom(6 * _AT_A_TIME).hex("-", 6).split("-")
    return list(map("-".join, zip(versioned, varied, ends, strict=True)))


def _words(random: int, fixed: int) -> list[str]:
    """Return many groups of four digits; `random` masks the bits that are, `fixed` has the rest."""
    size = 2 * _AT_A_TIME
    bits = int.from_bytes(os.urandom(size), "big") & random * _ONES | fixed * _ONES
    return bits.to_bytes(size, "big").hex("-", 2).split("-")


_all_ids: weakref.WeakSet[RandomIds] = weakref.WeakSet()


def _forget_all() -> None:
    for ids in _all_ids:
        ids.forget()


# A forked child that went on with what its parent has fetched would make the same ids.
os.register_at_fork(after_in_child=_forget_all)

"""Clock and ids: the only sources of time and chance, passed in at the root."""

from __future__ import annotations

import asyncio
import os
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


class _Noise:
    """The system's randomness, fetched in pages: a system call costs more than the id it is for.

    For one thread only.
    """

    _PAGE = 4096

    def __init__(self) -> None:
        self.forget()
        _noises.add(self)

    def forget(self) -> None:
        self._page, self._at = b"", self._PAGE

    def take(self, size: int) -> bytes:
        at = self._at
        if at + size > self._PAGE:
            self._page, at = os.urandom(self._PAGE), 0
        self._at = at + size
        return self._page[at : at + size]


_noises: weakref.WeakSet[_Noise] = weakref.WeakSet()


def _forget_all() -> None:
    for noise in _noises:
        noise.forget()


# A forked child that went on with its parent's page would make the same ids.
os.register_at_fork(after_in_child=_forget_all)


class RandomIds:
    """UUIDv7 run ids (RFC 9562 §5.7), made of the clock and the system's randomness.

    For one thread: each app has its own.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._noise = _Noise()
        self._milliseconds = -1
        self._time = ""

    def run_id(self) -> str:
        milliseconds = int(self._clock.now() * 1000)
        if milliseconds != self._milliseconds:
            text = f"{milliseconds & 0xFFFF_FFFF_FFFF:012x}"
            self._milliseconds, self._time = milliseconds, f"{text[:8]}-{text[8:]}"
        noise = self._noise.take(10).hex()
        variant = "89ab"[int(noise[3], 16) & 3]
        return f"{self._time}-7{noise[:3]}-{variant}{noise[4:7]}-{noise[7:19]}"

    def nonce(self) -> int:
        return int.from_bytes(self._noise.take(8), "big") >> 1

"""Clock and ids: the only sources of time and chance, passed in at the root."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
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
    """UUIDv7 run ids (RFC 9562 §5.7), made of the clock and the system's randomness."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def run_id(self) -> str:
        milliseconds = int(self._clock.now() * 1000) & 0xFFFF_FFFF_FFFF
        noise = int.from_bytes(os.urandom(10), "big")
        value = (
            milliseconds << 80
            | 0x7 << 76
            | (noise >> 62 & 0xFFF) << 64
            | 0b10 << 62
            | noise & (1 << 62) - 1
        )
        text = f"{value:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def nonce(self) -> int:
        return int.from_bytes(os.urandom(8), "big") >> 1

"""Virtual time: when the loop has nothing to do, the clock jumps to the next timer."""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Callable, Coroutine
from typing import TypeVar

R = TypeVar("R")
Ready = list[tuple[selectors.SelectorKey, int]]


class _Timer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class VirtualClock:
    """Stands still while anything can run."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._timers: list[tuple[float, int, _Timer]] = []
        self._count = 0
        self._at_rest: asyncio.Future[None] | None = None
        self.busy: Callable[[], bool] = lambda: False

    def now(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> _Timer:
        timer = _Timer(callback)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, timer))
        return timer

    async def rest(self) -> None:
        """Let time pass until nothing is going on and no timer is set."""
        self._at_rest = asyncio.get_running_loop().create_future()
        await self._at_rest

    def give_up(self, reason: str) -> None:
        """Have `rest` fail: there is no end to what is going on."""
        rest, self._at_rest = self._at_rest, None
        if rest is not None:
            rest.set_exception(AssertionError(reason))

    def jump(self) -> bool:
        """Called when the loop is idle: whether anything happened."""
        rest = self._at_rest
        if rest is None or self.busy():
            return False
        while self._timers:
            when, _, timer = heapq.heappop(self._timers)
            callback = timer.callback
            if callback is not None:
                self._now = max(self._now, when)
                asyncio.get_running_loop().call_soon(callback)
                return True
        self._at_rest = None
        rest.set_result(None)
        return True


class _Selector(selectors.DefaultSelector):
    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> Ready:
        ready = super().select(0)
        if ready or timeout == 0 or self._clock.jump():
            return ready
        return super().select(timeout)


def run(clock: VirtualClock, main: Callable[[], Coroutine[object, None, R]]) -> R:
    """Run a coroutine function on a loop whose idle moments move the clock."""
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(_Selector(clock))) as runner:
        return runner.run(main())

"""Virtual time: while somebody waits and the loop is idle, it jumps to what is due next."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import selectors
import weakref
from collections.abc import Callable, Generator
from typing import Any

from stepwell_queue.errors import StepwellError

MOST_JUMPS = 100_000
"""Timers that may fire during one wait; what needs more has no end."""


class NothingDue(AssertionError):
    """What a test waits for cannot happen: nothing runs, and no time is left to come."""


class _Timer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class _Wait:
    """Somebody who waits, so that time passes."""

    def __init__(self, until: float | None, left: int) -> None:
        self.until = until
        """Stop at this time, once all that is due by then has been done; None = no such time."""
        self.left = left
        self.task = asyncio.current_task()
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Why it is over, unless what was waited for has come."""

    def end(self, why: str) -> None:
        if not self.over.done():
            self.over.set_result(why)


class VirtualClock:
    """Stands still while anything runs, and while nobody waits."""

    def __init__(self, now: float, *, patience: float) -> None:
        """`patience`: seconds of real time that pass before a wait for nothing is given up."""
        self._now, self._patience = now, patience
        self._timers: list[tuple[float, int, _Timer]] = []
        self._count = 0
        self._waits: list[_Wait] = []
        self._giving_up: asyncio.TimerHandle | None = None
        self.busy: Callable[[], bool] = lambda: False
        """Says whether something is on its way that the loop does not see."""
        self.hurry: Callable[[], bool] = lambda: False
        """Begins what waits for a little real time to pass, and says whether there was anything."""
        self.late: Callable[[], float] = lambda: 0.0
        """Says how many seconds too late the next timer is."""

    def now(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> _Timer:
        timer = _Timer(callback)
        self._count += 1
        heapq.heappush(self._timers, (when + self.late(), self._count, timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        """Wait for virtual time; somebody else has to wait for it to pass."""
        over = asyncio.Event()
        timer = self.call_at(self._now + seconds, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    async def pass_until(self, when: float) -> None:
        """Let time pass until `when`, and all be done that is due by then."""
        with self.passing(max(when, self._now)) as wait:
            why = await wait.over
        if why:
            raise NothingDue(why)

    @contextlib.contextmanager
    def passing(self, until: float | None = None) -> Generator[_Wait, None, None]:
        """Let time pass while the block waits."""
        wait = _Wait(until, MOST_JUMPS)
        self._waits.append(wait)
        try:
            yield wait
        finally:
            self._waits.remove(wait)
            self._be_patient_again()

    def waits(self, task: asyncio.Task[Any]) -> bool:
        """Whether this task waits for time to pass."""
        return any(wait.task is task for wait in self._waits)

    # --- called when the loop is idle ---

    def jump(self) -> bool:
        """Do what is due next, if somebody waits for it: whether there is something to do now."""
        if not self._waits or self.busy():
            return False
        if self.hurry():
            return True
        next_due = self._next_due()
        reached = [
            wait
            for wait in self._waits
            if wait.until is not None and (next_due is None or wait.until < next_due)
        ]
        if reached:
            first = min(reached, key=lambda wait: wait.until or 0.0)
            self._now = max(self._now, first.until or 0.0)
            first.end("")
            return True
        if next_due is None:
            return self._give_up_later()
        self._be_patient_again()
        self._fire()
        return True

    def _next_due(self) -> float | None:
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _fire(self) -> None:
        when, _, timer = heapq.heappop(self._timers)
        self._now = max(self._now, when)
        if timer.callback is not None:
            asyncio.get_running_loop().call_soon(timer.callback)
        for wait in self._waits:
            wait.left -= 1
            if wait.left == 0:
                wait.end(f"{MOST_JUMPS} times came, and there is no end of it")

    def _give_up_later(self) -> bool:
        """Tell those who wait that it is for nothing, unless something comes in real time."""
        if self._giving_up is not None:
            return False
        loop = asyncio.get_running_loop()
        self._giving_up = loop.call_later(self._patience, self._give_up)
        return True  # the loop has to look anew at how long it may sleep

    def _give_up(self) -> None:
        for wait in self._waits:
            wait.end("nothing runs, and nothing is due")

    def _be_patient_again(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    # --- the loop that it belongs to ---

    def attach(self) -> None:
        """Have the running loop say when it is idle. Raises StepwellError if it cannot."""
        loop = asyncio.get_running_loop()
        selector: Any = getattr(loop, "_selector", None)
        if not isinstance(selector, selectors.BaseSelector):
            raise StepwellError(
                f"the test kit needs asyncio's own event loop, whose time it can see, and this is "
                f"{type(loop).__module__}.{type(loop).__name__}: run the test without uvloop"
            )
        idle = _idle.get(loop)
        if idle is None:
            idle = _idle[loop] = _Idle(selector)
        idle.clocks.append(self)

    def detach(self) -> None:
        idle = _idle[asyncio.get_running_loop()]
        idle.clocks.remove(self)
        if not idle.clocks:
            idle.restore()
            del _idle[asyncio.get_running_loop()]


class _Idle:
    """Stands before the selector of a loop, which is asked to wait when there is nothing to do."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self.clocks: list[VirtualClock] = []
        self._wait = selector.select
        self._of_instance: dict[str, Any] = vars(selector)  # which come before those of its class
        self._of_instance["select"] = self._select

    def restore(self) -> None:
        del self._of_instance["select"]

    def _select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._wait(0)
        if ready or timeout == 0 or any(clock.jump() for clock in self.clocks):
            return ready
        return self._wait(timeout)


_idle: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Idle] = weakref.WeakKeyDictionary()

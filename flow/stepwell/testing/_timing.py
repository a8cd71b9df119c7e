"""How a test says how far time goes, and what happens at which time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from stepwell import _options as check
from stepwell._app.handles import Run
from stepwell._app.operations import Operations
from stepwell._signals import Signal
from stepwell_runtime.definitions import Seconds

if TYPE_CHECKING:
    from stepwell.testing._clock import VirtualClock

T = TypeVar("T")


class Timing(Operations):
    """The part of a TestApp that has to do with time."""

    virtual: VirtualClock
    _doing: set[asyncio.Task[None]]

    def check(self) -> None:
        """Raise AssertionError if code was found to be wrong: calls never awaited, and so on."""
        raise NotImplementedError

    def _complain(self, problem: str) -> None:
        raise NotImplementedError

    @property
    def time(self) -> datetime:
        """The time that it is, aware and in UTC."""
        return datetime.fromtimestamp(self.virtual.now(), UTC)

    async def advance(self, seconds: Seconds) -> None:
        """Let that much time pass, and all be done that is due by then; 0 = what is due now."""
        await self.virtual.pass_until(self.virtual.now() + (check.span(seconds, "seconds") or 0.0))
        self.check()

    async def advance_to(self, when: datetime) -> None:
        """Let time pass until then (an aware datetime), and all be done that is due by then."""
        await self.virtual.pass_until(check.wall_time(when, "when"))
        self.check()

    def at(self, when: Seconds | datetime, do: Callable[[], Awaitable[object] | object]) -> None:
        """Call a function when its time has come; it may be async.

        `when`: seconds from now, or an aware datetime. What it raises fails the test.
        """
        due = self._when(when)
        self.virtual.call_at(due, lambda: self._do(do))

    def signal_at(
        self, when: Seconds | datetime, run: Run[Any] | str, signal: Signal[T] | str, value: T
    ) -> None:
        """Send a signal when its time has come. `when`: seconds from now, or an aware datetime."""
        id = check.run_id(run if isinstance(run, str) else run.id)
        self.at(when, lambda: self.send(id, signal, value))

    def cancel_at(self, when: Seconds | datetime, run: Run[Any] | str, reason: str = "") -> None:
        """Cancel a run when its time has come. `when`: seconds from now, or an aware datetime."""
        id = check.run_id(run if isinstance(run, str) else run.id)
        self.at(when, lambda: self.cancel(id, reason=reason))

    def _when(self, when: Seconds | datetime) -> float:
        if isinstance(when, datetime):
            return check.wall_time(when, "when")
        return self.virtual.now() + (check.span(when, "when") or 0.0)

    def _do(self, do: Callable[[], Awaitable[object] | object]) -> None:
        task = asyncio.get_running_loop().create_task(self._done(do))
        self._doing.add(task)
        task.add_done_callback(self._doing.discard)

    async def _done(self, do: Callable[[], Awaitable[object] | object]) -> None:
        try:
            outcome = do()
            if isinstance(outcome, Awaitable):
                await outcome
        except Exception as error:  # noqa: BLE001 - whatever it is, the test is told
            self._complain(f"what was to happen at {self.time:%F %T} raised {error!r}")

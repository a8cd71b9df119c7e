"""One attempt of a step or task: its function, in its context, in time."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any

import anyio
import anyio.to_thread

from stepwell_runtime.definitions import Definition
from stepwell_runtime.errors import StepTimeout
from stepwell_runtime.lag import STEP_TURN, clock, step_blocked
from stepwell_runtime.lanes import Lanes
from stepwell_runtime.scope import StepScope, current

Ended = Callable[[Any, BaseException | None], None]

SHUTDOWN_TAKES = 1.0


class Attempt:
    """A running attempt. `ended(value, error)` is called once, on the loop, unless it was dropped.

    An async function is cancelled at its timeout. A plain one runs in a thread, which cannot be
    stopped: at its timeout it is abandoned, and `current_step().cancelled` becomes true.
    """

    __slots__ = (
        "_args",
        "_context",
        "_definition",
        "_ended",
        "_kwargs",
        "_lane",
        "_limiter",
        "_loop",
        "_timeout",
        "_timer",
        "_why",
        "scope",
    )

    def __init__(
        self,
        definition: Definition,
        args: list[Any],
        kwargs: dict[str, Any],
        scope: StepScope,
        timeout: float | None,
        limiter: anyio.CapacityLimiter,
        ended: Ended,
    ) -> None:
        self._definition, self._args, self._kwargs = definition, args, kwargs
        self.scope, self._timeout, self._limiter, self._ended = scope, timeout, limiter, ended
        self._why: str | None = None
        self._lane: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, loop: asyncio.AbstractEventLoop, lanes: Lanes, context: Context) -> None:
        """Start in a copy of `context`, so that what the function sets there stays with it."""
        self._loop = loop
        self._context = context.copy()
        self._context.run(current.set, self.scope)
        if self._definition.is_async:
            self._start_timer()
        else:
            self.scope.cancel_event = threading.Event()
        lanes.run(self)

    def interrupt(self) -> None:
        """Ask the attempt to stop; `ended` is still called once it has."""
        self._stop("interrupt")

    def drop(self) -> None:
        """Stop the attempt; nobody is told of its end."""
        self._ended = _nobody
        self._stop("drop")

    @property
    def interrupted(self) -> bool:
        return self._why in ("interrupt", "drop")

    def _stop(self, why: str) -> None:
        if self._why is None:
            self._why = why
        event = self.scope.cancel_event
        if event is not None:
            event.set()
        if self._lane is not None:
            self._lane.cancel()

    async def run(self, lane: asyncio.Task[None], lanes: Lanes) -> None:
        """Execute on a lane; returns when the attempt is over. Raises nothing."""
        value: Any = None
        error: BaseException | None = None
        if self._why is None:
            self._lane = lane
            try:
                if self._definition.is_async:
                    call = self._definition.fn(*self._args, **self._kwargs)
                else:
                    call = self._in_thread()
                value = await _InContext(self._context, call, lanes, self.scope)
            except BaseException as caught:  # noqa: BLE001 - SystemExit too is the step's failure
                error = caught
            self._lane = None
        else:
            error = asyncio.CancelledError()
        self._args, self._kwargs = [], {}
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        ended, self._ended = self._ended, _nobody
        try:
            if self._why is not None:
                self._stopped(ended, error)
            elif isinstance(error, asyncio.CancelledError) and lane.cancelling():
                # Cancelled from outside: the loop is being closed, which is no outcome of the step.
                # If it is not, the step has cancelled its own task.
                self._ended = ended
                self._loop.call_later(SHUTDOWN_TAKES, self._cancelled_itself, error)
            else:
                ended(value, error)
                if error is not None:
                    # What is told of it is stored by now. A future that it was raised from is held
                    # by a frame of its traceback: a cycle, which would keep the step's locals.
                    error.__traceback__ = None
        finally:
            error = None  # its traceback holds this frame

    def _cancelled_itself(self, error: BaseException) -> None:
        ended, self._ended = self._ended, _nobody
        ended(None, error)

    def _stopped(self, ended: Ended, error: BaseException | None) -> None:
        if self._why == "timeout":
            what = f"{self._definition.word} {self._definition.name!r}"
            error = StepTimeout(f"{what} took longer than its timeout of {self._timeout:g} s")
        ended(None, error)

    async def _in_thread(self) -> Any:
        call = functools.partial(self._definition.fn, *self._args, **self._kwargs)
        if self._timeout is not None:
            call = functools.partial(self._timed, call)
        value: Any = await anyio.to_thread.run_sync(
            call, abandon_on_cancel=True, limiter=self._limiter
        )
        # A plain function may wrap an async one without saying so.
        return await value if inspect.isawaitable(value) else value

    def _timed(self, call: Callable[[], Any]) -> Any:
        # The timeout is for what the function does, not for its wait for a thread.
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._start_timer)
        return call()

    def _start_timer(self) -> None:
        if self._timeout is not None and self._ended is not _nobody:
            self._timer = self._loop.call_later(self._timeout, self._stop, "timeout")


class _InContext:
    """Awaits a coroutine each of whose turns runs in a context that is not the task's."""

    __slots__ = ("_awaitable", "_context", "_lanes", "_scope")

    def __init__(self, context: Context, awaitable: Any, lanes: Lanes, scope: StepScope) -> None:
        self._context, self._awaitable, self._lanes, self._scope = context, awaitable, lanes, scope

    def __await__(self) -> Generator[Any, Any, Any]:
        run, steps = self._context.run, self._awaitable.__await__()
        begun = clock()
        try:
            waits_for = run(next, steps)
        except StopIteration as stop:
            return stop.value
        finally:
            self._turn_over(begun)
        self._lanes.suspended()
        while True:
            caught: BaseException | None = None
            try:
                yield waits_for
            except BaseException as thrown:  # noqa: BLE001 - it is the step's to handle
                caught = thrown
            begun = clock()
            try:
                waits_for = run(next, steps) if caught is None else run(steps.throw, caught)
            except StopIteration as stop:
                return stop.value
            finally:
                caught = None  # its traceback may hold this frame
                self._turn_over(begun)

    def _turn_over(self, begun: float) -> None:
        seconds = clock() - begun
        if seconds > STEP_TURN and self._scope.cancel_event is None:  # not in a thread
            step_blocked(self._scope, seconds)


def _nobody(value: Any, error: BaseException | None) -> None:
    return None

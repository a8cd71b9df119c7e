"""One attempt of a step or task: its function, in its context, in time."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context
from types import CoroutineType
from typing import Any

import anyio
import anyio.to_thread

from stepwell_runtime.core.branch import awaiting
from stepwell_runtime.definitions import Definition, TaskDefinition
from stepwell_runtime.errors import StepTimeout, TaskTimeout
from stepwell_runtime.executors import Executors
from stepwell_runtime.lag import STEP_TURN, clock, step_blocked
from stepwell_runtime.lanes import Lanes
from stepwell_runtime.log import log
from stepwell_runtime.middleware import surrounded
from stepwell_runtime.reports import Holder, Voice
from stepwell_runtime.scope import JobScope, current
from stepwell_runtime.turns import Turns

Ended = Callable[[Any, BaseException | None], None]

SHUTDOWN_TAKES = 1.0
_COROUTINE: type = CoroutineType
_finding_voice = threading.Lock()
_NO_ARGUMENTS: list[Any] = []
_NO_KEYWORDS: dict[str, Any] = {}


class Attempt(JobScope, eq=False):
    """A running attempt, which is also the scope that its function sees.

    `ended(value, error)` is called once, on the loop, unless it was dropped. An async function is
    cancelled at its timeout. A plain one runs in a child process, which is killed, or in a thread,
    which cannot be stopped: it is abandoned, and `current_job().cancelled` becomes true.
    """

    _definition: Definition
    _timeout: float | None
    _executors: Executors
    _loop: asyncio.AbstractEventLoop
    _ended: Ended
    _holder: Holder
    _reports: Voice | None = None
    _context: Context | None = None
    _why: str | None = None
    _lane: asyncio.Task[None] | None = None
    _timer: asyncio.TimerHandle | None = None
    _in_thread: bool = False  # its function is running there right now
    _abandoned: bool = False

    @property
    def cancelled(self) -> bool:
        return self._why is not None

    def begin(self, lanes: Lanes, context: Context) -> None:
        """Start in a copy of `context`, so that what the function sets there stays with it."""
        self._context = context = context.copy()
        context.run(current.set, self)
        if self._timeout is not None and self._definition.is_async:
            self._start_timer()
        lanes.run(self)

    def interrupt(self) -> None:
        """Ask the attempt to stop; `ended` is still called once it has."""
        self._stop("interrupt")

    def drop(self) -> None:
        """Stop the attempt; nobody is told of its end."""
        if self._reports is not None:
            self._reports.flush()
        self._ended = _nobody
        self._stop("drop")

    @property
    def interrupted(self) -> bool:
        return self._why in ("interrupt", "drop")

    def _stop(self, why: str) -> None:
        if self._why is None:
            with self._executors.lock:
                self._why, self._abandoned = why, self._in_thread
            if self._abandoned:
                self._abandon(why)
        if self._lane is not None:
            self._lane.cancel()

    def run(self, lane: asyncio.Task[None], lanes: Lanes) -> Coroutine[Any, Any, None] | None:
        """Execute on a lane up to the first suspension; return what is then left to await.

        Neither raises anything; None: the attempt is over.
        """
        value: Any = None
        error: BaseException | None = None
        context = self._context
        if self._why is None and context is not None:
            begun = clock()
            try:
                middleware = self._executors.middleware
                call: Any
                if middleware:
                    call = surrounded(middleware, self, self._execute)
                elif self._definition.is_async:
                    call = self._definition.fn(*self._args, **self._kwargs)
                else:
                    call = self._execute()
                if type(call) is not _COROUTINE:
                    call = awaiting(call)
                waits_for = context.run(call.send, None)
            except StopIteration as stop:
                value = stop.value
            except BaseException as caught:  # noqa: BLE001 - SystemExit too is the step's failure
                error = caught
            else:
                self._lane = lane
                self.turn_over(begun)
                lanes.suspended()
                return self._rest(context, call, waits_for, lane)
            if clock() - begun > STEP_TURN:
                self.turn_over(begun)
        else:
            error = asyncio.CancelledError()
        try:
            self._over(value, error, lane)
        finally:
            error = None  # its traceback holds this frame
        return None

    async def _rest(
        self,
        context: Context,
        call: Coroutine[Any, Any, Any],
        waits_for: Any,
        lane: asyncio.Task[None],
    ) -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = await Turns(self, context, call, waits_for)
        except BaseException as caught:  # noqa: BLE001 - as above
            error = caught
        try:
            self._over(value, error, lane)
        finally:
            error = None  # as above

    def _over(self, value: Any, error: BaseException | None, lane: asyncio.Task[None]) -> None:
        self._context = None  # it holds this in turn
        self._args, self._kwargs = _NO_ARGUMENTS, _NO_KEYWORDS
        if self._lane is not None:
            self._lane = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._reports is not None:
            self._reports.flush()
        ended, self._ended = self._ended, _nobody
        if self._why is not None:
            self._stopped(ended, error)
        elif error is None:
            ended(value, None)
        elif isinstance(error, asyncio.CancelledError) and lane.cancelling():
            # Cancelled from outside: the loop is being closed, which is no outcome of the step.
            # If it is not, the step has cancelled its own task.
            self._ended = ended
            self._loop.call_later(SHUTDOWN_TAKES, self._cancelled_itself, error)
        else:
            ended(None, error)
            # What is told of it is stored by now. A future that it was raised from is held by a
            # frame of its traceback: a cycle, which would keep the step's locals.
            error.__traceback__ = None

    def _scheduled(self) -> float:
        return self._holder.scheduled()

    def _voice(self) -> Voice | None:
        if self._ended is _nobody:  # what it still says does not count
            return None
        if self._reports is None:
            with _finding_voice:  # its function may have threads of its own
                if self._reports is None:
                    self._reports = self._holder.reports()
        return self._reports

    def turn_over(self, begun: float) -> None:
        seconds = clock() - begun
        if seconds > STEP_TURN and self._definition.is_async:
            step_blocked(self, seconds)

    def _cancelled_itself(self, error: BaseException) -> None:
        ended, self._ended = self._ended, _nobody
        ended(None, error)

    def _stopped(self, ended: Ended, error: BaseException | None) -> None:
        ended(None, self._too_long() if self._why == "timeout" else error)

    def _too_long(self) -> TimeoutError:
        what = f"{self.kind} {self.name!r} took longer than its timeout of {self._timeout:g} s"
        if self._abandoned:
            what += (
                "; its thread, which cannot be stopped, goes on, and what it returns does not count"
            )
        return TaskTimeout(what) if self.kind == "task" else StepTimeout(what)

    async def _execute(self) -> object:
        """Execute the function wherever it belongs."""
        definition = self._definition
        value: Any = None
        try:
            if definition.is_async:
                value = await definition.fn(*self._args, **self._kwargs)
            elif definition.executor == "process":
                batch = isinstance(definition, TaskDefinition) and definition.batch is not None
                value = await self._executors.processes.run(
                    self, definition.fn, self._start_timer, batch=batch
                )
            else:
                call = functools.partial(definition.fn, *self._args, **self._kwargs)
                value = await anyio.to_thread.run_sync(
                    self._in_a_thread,
                    call,
                    abandon_on_cancel=True,
                    limiter=self._executors.threads,
                )
                # A plain function may wrap an async one without saying so.
                value = await value if inspect.isawaitable(value) else value
        except asyncio.CancelledError:
            if self._why != "timeout":
                raise
        if self._why == "timeout":  # middleware shall see what it was
            raise self._too_long()
        return value

    def _in_a_thread(self, call: Callable[[], Any]) -> Any:
        executors = self._executors
        with executors.lock:
            if self._why is not None:  # nobody waits for it any more
                return None
            self._in_thread = True
        if self._timeout is not None:
            # The timeout is for what the function does, not for its wait for a thread.
            self._tell(self._start_timer)
        try:
            return call()
        finally:
            with executors.lock:
                self._in_thread = False
            if self._abandoned:
                self._tell(self._late)

    def _tell(self, what: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self._loop.call_soon_threadsafe(what)

    def _start_timer(self) -> None:
        if self._timeout is not None and self._ended is not _nobody:
            self._timer = self._loop.call_later(self._timeout, self._stop, "timeout")

    def _abandon(self, why: str) -> None:
        self._abandoned = True
        self._executors.abandoned += 1
        log.warning(
            "thread_abandoned",
            **self._said_of_it(),
            why=why,
            abandoned=self._executors.abandoned,
            hint="it goes on, as a thread cannot be stopped, and what it returns will not count: "
            "return once current_job().cancelled is true, or use executor='process'",
        )

    def _late(self) -> None:
        self._executors.abandoned -= 1
        log.info("late_result_dropped", **self._said_of_it(), abandoned=self._executors.abandoned)

    def _said_of_it(self) -> dict[str, object]:
        where = {"path": self.path} if self.path else {}
        return {self.kind: self.name, "run": self.run_id, **where, "attempt": self.attempt}


def _nobody(value: Any, error: BaseException | None) -> None:
    return None

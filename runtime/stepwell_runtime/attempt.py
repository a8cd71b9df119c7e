"""One attempt of a step or task: its function, in its context, in time."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from contextvars import Context
from typing import Any

import anyio
import anyio.to_thread

from stepwell_runtime.definitions import Definition
from stepwell_runtime.errors import StepTimeout
from stepwell_runtime.scope import StepScope, current

Ended = Callable[[Any, BaseException | None], None]


class Attempt:
    """A running attempt. `ended(value, error)` is called once, on the loop, unless the attempt was dropped before.

    An async function runs in a task of its own and is cancelled at its timeout; a plain one runs in a
    thread, which cannot be stopped: at its timeout it is abandoned and `current_step().cancelled` becomes true.
    """

    __slots__ = (
        "_args",
        "_definition",
        "_ended",
        "_kwargs",
        "_limiter",
        "_running",
        "_timeout",
        "_timer",
        "_why",
        "scope",
        "task",
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
        self._running = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        """Start in a copy of `context`, so that what the function sets there stays with it."""
        inner = context.copy()
        inner.run(current.set, self.scope)
        if not self._definition.is_async:
            self.scope.cancel_event = threading.Event()
        self.task = loop.create_task(self._run(), name=self._definition.name, context=inner)
        if self._timeout is not None:
            self._timer = loop.call_later(self._timeout, self._stop, "timeout")

    def interrupt(self) -> None:
        """Ask the attempt to stop; `ended` is still called once it has."""
        self._stop("interrupt")

    def drop(self) -> None:
        """Stop the attempt; nobody is told of its end."""
        self._ended = _nobody
        self._stop("drop")

    def _stop(self, why: str) -> None:
        if self._why is None:
            self._why = why
        event = self.scope.cancel_event
        if event is not None:
            event.set()
        # A task that is cancelled before its first turn never runs at all, and would never tell of its end.
        if self._running:
            self.task.cancel()

    async def _run(self) -> None:
        value: Any = None
        error: BaseException | None = None
        self._running = True
        try:
            if self._why is not None:
                raise asyncio.CancelledError
            if self._definition.is_async:
                value = await self._definition.fn(*self._args, **self._kwargs)
            else:
                call = functools.partial(self._definition.fn, *self._args, **self._kwargs)
                value = await anyio.to_thread.run_sync(
                    call, abandon_on_cancel=True, limiter=self._limiter
                )
        except (
            BaseException
        ) as caught:  # SystemExit and the like are a failure of the step, not the end of the worker
            error = caught
        self._args, self._kwargs = [], {}
        if self._timer is not None:
            self._timer.cancel()
        if self._why == "timeout":
            name = self._definition.name
            error = StepTimeout(
                f"{self._definition.word} {name!r} took longer than its timeout of {self._timeout:g} s"
            )
            value = None
        ended, self._ended = self._ended, _nobody
        try:
            ended(value, error)
        finally:
            error = None  # its traceback holds this frame: without this, a cycle keeps the step's locals alive

    @property
    def interrupted(self) -> bool:
        return self._why in ("interrupt", "drop")


def _nobody(value: Any, error: BaseException | None) -> None:
    return None

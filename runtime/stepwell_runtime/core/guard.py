"""The running loop that workflow code sees.

Whatever needs a real one is refused at the user's line.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from typing import Any, NoReturn

from stepwell_runtime.core.discard import finish_generator
from stepwell_runtime.errors import NotDurable

_REMEDY = {
    "create_task": "use `await parallel(...)` or `await race(...)` instead of tasks, gather, "
    "wait and task groups",
    "create_future": "use `await sleep(...)`, `wait_for_signal(...)` or `parallel(...)` "
    "instead of futures, and `race(...)` with `sleep(...)` for a timeout",
    "call_soon": "use `await parallel(...)`, or do it inside a @step",
    "call_later": "use `await sleep(...)`",
    "call_at": "use `await sleep_until(...)`",
    "time": "use `now()`, and `race(...)` with `sleep(...)` for a timeout",
    "run_in_executor": "make it a plain `def` @step: it runs in a thread",
    "current_task": "workflow code runs in no task: use `race(...)` with `sleep(...)` for a "
    "timeout, `parallel(...)` for a group",
}
_OTHER = "do it inside a @step"


class GuardLoop:
    """Stands in for the running loop while workflow code runs; it has no working part."""

    __slots__ = ("violation",)

    def __init__(self) -> None:
        # The first one is noted, so that no `except` of user code can hide it.
        self.violation: NotDurable | None = None

    def __getattr__(self, name: str) -> NoReturn:
        self.refuse(f"loop.{name}", _REMEDY.get(name, _OTHER))

    # asyncio looks its current task up in a dict keyed by the running loop.
    def __hash__(self) -> int:
        self.refuse("asyncio.current_task", _REMEDY["current_task"])

    def refuse(self, what: str, remedy: str) -> NoReturn:
        """Raise NotDurable, and note it: the run will be stuck whatever the user's code does."""
        error = NotDurable(
            f"workflow code needed the event loop ({what}), which cannot be replayed: {remedy}"
        )
        if self.violation is None:
            self.violation = error
        raise error


@contextmanager
def guarded(guard: GuardLoop, note: Callable[[AsyncGenerator[Any, Any]], None]) -> Generator[None]:
    """Run user code: with no loop but the guard, and async generators noted, not asyncio's."""
    loop, hooks = asyncio._get_running_loop(), sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(note, finish_generator)
    asyncio._set_running_loop(guard)  # type: ignore[arg-type]  # stands in for the loop, by design
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)
        sys.set_asyncgen_hooks(*hooks)


def refuse_in_workflow(what: str, remedy: str) -> None:
    """Raise NotDurable if workflow code is running here; it makes the run stuck."""
    loop: object = asyncio._get_running_loop()
    if isinstance(loop, GuardLoop):
        loop.refuse(what, remedy)


def foreign_await(thing: object) -> NotDurable:
    """Return the error for something awaited in workflow code that is no durable operation."""
    return NotDurable(
        f"workflow code awaited {thing!r}, which is no durable operation: await steps, "
        "workflows, parallel, race, sleep or "
        "wait_for_signal; do everything else inside a @step"
    )

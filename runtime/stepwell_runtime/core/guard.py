"""The running loop that workflow code sees.

Whatever needs a real one is refused at the user's line.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from threading import get_ident
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
    """Stands in for the running loop while workflow code runs; it has no working part.

    `enter` and `leave` are around workflow code: one run's, or that of many runs in turn. `inside`:
    between the two.
    """

    __slots__ = ("_hooks", "_loop", "_thread", "generators", "inside", "violation")

    def __init__(self) -> None:
        # Noted, so that no `except` of user code can hide it; who drives resets it.
        self.violation: NotDurable | None = None
        self.generators: list[AsyncGenerator[Any, Any]] = []  # begun by whom is driven
        self.inside = False

    def enter(self) -> bool:
        """Take the place of the loop, and of its hooks for async generators; False: it has it."""
        if self.inside:
            return False
        self._loop, self._hooks = asyncio._get_running_loop(), sys.get_asyncgen_hooks()
        self._thread = get_ident()
        sys.set_asyncgen_hooks(self.generators.append, finish_generator)
        asyncio._set_running_loop(self)  # type: ignore[arg-type]  # stands in for it, by design
        self.inside = True
        return True

    def leave(self) -> None:
        self.inside = False
        asyncio._set_running_loop(self._loop)
        sys.set_asyncgen_hooks(*self._hooks)

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
        if self.inside and self._thread == get_ident():  # else: it was carried elsewhere
            self.violation = self.violation or error
        raise error


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

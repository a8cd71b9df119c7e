"""What a workflow may wait for, and what it may note."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import datetime
from typing import Any, Literal, TypeVar

from stepwell import _options as check
from stepwell._arguments import described
from stepwell._calls import Call, StepCall, TaskCall, WorkflowCall
from stepwell._children import ChildRun
from stepwell._scopes import enter_workflow
from stepwell_runtime.core.commands import SleepCommand, StartCommand
from stepwell_runtime.definitions import Seconds, seconds
from stepwell_runtime.scope import UndoEntry

R = TypeVar("R")


class Undo:
    """A registered undo."""

    __slots__ = ("_entry",)

    def __init__(self, entry: UndoEntry) -> None:
        self._entry = entry

    def discard(self) -> None:
        """Forget it: past the point of no return. Discarding twice changes nothing."""
        enter_workflow("Undo.discard()", "return, and let the workflow discard it")
        self._entry.discard()


async def sleep(delay: Seconds, /) -> None:
    """Wait `delay` seconds; the end is fixed when this is first reached. Raises OutsideWorkflow."""
    enter_workflow("sleep()", "use asyncio.sleep() or time.sleep()")
    await SleepCommand(seconds(delay, "sleep()"), None)


async def sleep_until(when: datetime, /) -> None:
    """Wait until an aware datetime; a past one is over at once. Raises OutsideWorkflow."""
    enter_workflow("sleep_until()", "use asyncio.sleep() or time.sleep()")
    await SleepCommand(None, check.wall_time(when, "sleep_until()"))


def compensate(call: Call[Any], /) -> Undo:
    """Register the call that undoes what was done, should the run fail or be cancelled.

    Undos run newest first. Raises OutsideWorkflow.
    """
    scope = enter_workflow(
        "compensate()", "register the undo in the workflow, or with @step(compensate=…)"
    )
    given: Any = call
    if not isinstance(given, (StepCall, TaskCall, WorkflowCall)):
        raise TypeError(
            f"compensate() takes a call, such as refund(receipt), not {described(given)}"
        )
    return Undo(scope.compensate(given.hand_on()))


def start(
    call: WorkflowCall[R] | TaskCall[R],
    /,
    *,
    id: str | None = None,
    on_parent_cancel: Literal["cancel", "leave"] | None = None,
) -> Coroutine[Any, Any, ChildRun[R]]:
    """Start a detached child, and return its handle at once.

    `id`: None = derived from this run and the place. `on_parent_cancel`: whether it is asked to
    cancel ("cancel") when this run is cancelled, or goes on ("leave"); None = as the call says,
    else "leave". Raises OutsideWorkflow; its await raises IdConflict.
    """
    enter_workflow("start()", "use `await current_app().start(…)` or `.enqueue(…)`")
    given: Any = call
    if not isinstance(given, (WorkflowCall, TaskCall)):
        raise TypeError(f"start() takes a call of a workflow or task, not {described(given)}")
    chosen: WorkflowCall[R] | TaskCall[R] = call
    if id is not None or on_parent_cancel is not None:
        chosen = call.with_options(id=id, on_parent_cancel=on_parent_cancel)
    chosen.hand_on()
    return _start(StartCommand(chosen.definition, chosen.args, chosen.kwargs, chosen.options))


async def _start(command: StartCommand) -> ChildRun[Any]:
    return ChildRun(await command)

"""Rollback: how undos get onto the stack, and run, newest first, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stepwell_queue.contract import Record
from stepwell_runtime.core.scopes import Unwinding
from stepwell_runtime.errors import Diverged

if TYPE_CHECKING:
    from stepwell_runtime.core.branch import Branch
    from stepwell_runtime.core.execution import Execution


def register_own_undo(
    execution: Execution, branch: Branch, compensate: Callable[[Any], Any], value: Any
) -> BaseException | None:
    """Register the undo of a step that has returned; return what making it raised."""
    if execution.rolling_back or isinstance(branch.group, Unwinding):
        return None
    guard, failure = execution.guard, None
    outermost = guard.enter()
    guard.violation = None
    try:
        execution.register_undo(compensate(value), branch)
    except Exception as error:  # noqa: BLE001 - user code: raised where the step is awaited
        failure = error
    finally:
        if outermost:
            guard.leave()
    if guard.violation is not None:
        raise guard.violation
    return failure


def begin_rollback(execution: Execution, record: Record) -> None:
    if execution.outcome is None or execution.outcome.verdict == "completed":
        asked = "more operations" if execution.outcome is None else execution.outcome.verdict
        raise Diverged("the end", "a failure that began the rollback", asked)
    execution.rolling_back = True
    execution.failure = record.value
    execution.undo_stack().run_all()
    execution.next_undo()


def rerun_failed_undos(execution: Execution, record: Record) -> None:
    if record.name != "resume_rollback":
        return
    if not execution.rolled_back:
        raise Diverged("the end", "a resumed rollback", "a rollback that is not over")
    execution.rolled_back = False
    execution.resumed += 1
    execution.undo_stack().run_failed()
    execution.next_undo()

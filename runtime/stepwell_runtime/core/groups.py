"""`parallel` and `race`: how branches start, and what their ends mean to the line that waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepwell_runtime.core.branch import Branch, Group, code_of
from stepwell_runtime.core.cancelling import cancel_branch
from stepwell_runtime.core.commands import GroupCommand
from stepwell_runtime.errors import Cancelled

if TYPE_CHECKING:
    from stepwell_runtime.core.execution import Execution


def open_group(execution: Execution, branch: Branch, command: GroupCommand, path: str) -> None:
    """Start the branches of a group, as many as its limit allows."""
    group = Group(path, command, branch)
    branch.waiting = group
    exempt = branch.exempt or branch.cancelling
    while group.room:
        _start_branch(execution, group, exempt)
    if not command.branches:
        execution.resume(branch, [], None)


def _start_branch(execution: Execution, group: Group, exempt: bool) -> None:
    index = group.started
    group.started += 1
    group.live += 1
    code = code_of(group.command.branches[index])
    prefix = f"{group.path}.{index}."
    parent = group.parent
    branch = execution.add_branch(prefix, code, parent.context, group, index, exempt=exempt)
    branch.scope = parent.scope
    group.branches.append(branch)


def branch_of_group_ended(
    execution: Execution, group: Group, branch: Branch, value: Any, error: BaseException | None
) -> None:
    group.live -= 1
    if group.command.mode == "race":
        _racer_ended(execution, group, branch, value, error)
    else:
        _parallel_ended(execution, group, branch, value, error)


def _racer_ended(
    execution: Execution, group: Group, branch: Branch, value: Any, error: BaseException | None
) -> None:
    if group.decided:
        return
    group.decided = True
    group.drop_unstarted()
    execution.resume(group.parent, None if error is not None else (branch.index, value), error)
    for other in group.branches:
        cancel_branch(execution, other)


def _parallel_ended(
    execution: Execution, group: Group, branch: Branch, value: Any, error: BaseException | None
) -> None:
    if error is None:
        group.outcomes[branch.index] = value
    elif isinstance(error, Cancelled):
        group.was_cancelled = True
    elif group.command.return_exceptions and isinstance(error, Exception):
        group.outcomes[branch.index] = error
    elif group.failure is None:
        group.failure = error
        group.drop_unstarted()
        for other in group.branches:
            cancel_branch(execution, other)
    else:
        group.failure.add_note(
            f"also failed, in branch {group.path}.{branch.index}: {type(error).__name__}: {error}"
        )
    while group.room:
        _start_branch(execution, group, group.parent.exempt or branch.exempt)
    if not group.live:
        _settle(execution, group)


def _settle(execution: Execution, group: Group) -> None:
    if group.failure is not None:
        execution.resume(group.parent, None, group.failure)
    elif group.was_cancelled:
        execution.resume(group.parent, None, Cancelled())
    else:
        execution.resume(group.parent, group.outcomes, None)

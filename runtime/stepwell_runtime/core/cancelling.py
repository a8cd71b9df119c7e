"""What a cancellation does to the branches of a run, and to what they wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell_runtime.core.branch import OPEN, SETTLING, Branch, CallOp, Group, Op
from stepwell_runtime.core.commands import Command, GroupCommand
from stepwell_runtime.definitions import StepDefinition
from stepwell_runtime.errors import Cancelled, NotDurable

if TYPE_CHECKING:
    from stepwell_runtime.core.execution import Execution

MOST_SWALLOWED = 100


def cancel_branch(execution: Execution, branch: Branch) -> None:
    """Cancel what a branch does: waits at once, the rest at its next durable operation."""
    if branch.done:
        return
    branch.doomed = True
    if branch.cancelling:
        return
    # Only its own group cancels a branch that is exempt: the cancellation of the run has gone
    # past where it was opened. It is cleanup that lost a race, or whose sibling failed.
    branch.cancelling, branch.exempt = True, False
    cut(execution, branch)


def cut(execution: Execution, branch: Branch) -> None:
    """End what a branch waits for, or see to it that it settles."""
    waiting = branch.waiting
    if isinstance(waiting, Group):
        if waiting.started < len(waiting.command.branches):
            waiting.drop_unstarted()
            waiting.was_cancelled = True
        for sub in waiting.branches:
            cancel_branch(execution, sub)
    elif isinstance(waiting, Op) and waiting.state is OPEN:  # undos are not interrupted
        _cancel_op(execution, waiting)


def _cancel_op(execution: Execution, op: Op) -> None:
    execution.withdrawn.append(op)
    # Asked for in this very delivery, so the driver cannot have begun it.
    unseen = op.opened_after == execution.seq
    if not unseen and (
        op.kind in ("child", "start") or (op.kind in ("step", "remote") and _must_finish(op))
    ):
        op.state = SETTLING
        return
    execution.end(op)
    execution.resume(op.branch, None, Cancelled())


def _must_finish(op: Op) -> bool:
    definition = op.definition if isinstance(op, CallOp) else None
    return not (isinstance(definition, StepDefinition) and definition.on_cancel == "interrupt")


def refuse_cancelled(execution: Execution, branch: Branch, command: Command) -> None:
    """Answer what a cancelled branch asks for: with its cancellation, again and again."""
    execution.swallowed += 1
    if isinstance(command, GroupCommand):
        Group("", command, branch).drop_unstarted()
    if execution.swallowed > MOST_SWALLOWED:
        execution.stuck = NotDurable(
            f"workflow code has swallowed its cancellation {MOST_SWALLOWED} times: let "
            "Cancelled pass, or re-raise it"
        )
        return
    execution.resume(branch, None, Cancelled())

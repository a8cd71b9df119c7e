"""Deadlines of blocks: when one has passed, what the block does is cancelled, and the block alone.

The branch is cancelled as by its group, until it has left the block. Whatever else cancels it
meanwhile (the run, its group, the deadline of a block around it) goes on beyond that, and wins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell_queue.contract import Record, RecordKind
from stepwell_runtime.core.cancelling import cut
from stepwell_runtime.core.commands import DeadlineCommand
from stepwell_runtime.core.outcomes import described
from stepwell_runtime.errors import Cancelled, DeadlineExceeded, Diverged, DurabilityError

if TYPE_CHECKING:
    from stepwell_runtime.core.branch import Branch, Op
    from stepwell_runtime.core.execution import Execution

NAME = "deadline"


class Deadline:
    """One block that has a deadline, while its branch is in it.

    `late`: entered by a branch that was cancelled already, and cleans up.
    """

    __slots__ = ("exempt", "fired", "late", "op", "record", "seconds", "swallowed")

    def __init__(self, op: Op, seconds: float, swallowed: int) -> None:
        self.op, self.seconds, self.swallowed = op, seconds, swallowed
        self.exempt, self.late = op.branch.exempt, op.branch.cancelling
        self.fired = False
        self.record: Record | None = None

    def leave(self, branch: Branch, error: BaseException | None) -> DeadlineExceeded | None:
        """Return what is raised at the end of the block instead of `error`, if anything is."""
        blocks = branch.deadlines
        if not blocks or blocks[-1] is not self:
            raise DurabilityError(
                "deadline() is left in another branch, or before one that was entered in it: "
                "use it with `async with`"
            )
        execution, op = branch.execution, self.op
        blocks.pop()
        if not self.fired:
            del execution.deadlines[op.path]
            execution.end(op)
            execution.withdrawn.append(op)
            return None
        execution.swallowed = self.swallowed
        if not self.late:
            if branch.doomed or any(one.fired for one in blocks):
                return None
            branch.cancelling, branch.exempt = False, self.exempt
        if error is not None and not isinstance(error, Cancelled):
            return None
        exceeded = DeadlineExceeded(
            f"the block at path {op.path} of run {execution.facts.id!r} did not end within "
            f"{self.seconds:g} s"
        )
        if self.record is not None:
            execution.noted(self.record, exceeded)
        return exceeded


def enter_deadline(execution: Execution, command: DeadlineCommand, op: Op) -> None:
    """Fix when the block is over, and let the branch go on at once."""
    branch, seconds = op.branch, command.seconds
    op.due = execution.now + seconds
    block = Deadline(op, seconds, execution.swallowed)
    branch.deadlines = [*(branch.deadlines or ()), block]
    if seconds > 0:
        execution.deadlines[op.path] = block
        execution.opened.append(op)
    else:
        execution.end(op)
        _fire(execution, block)
    execution.resume(branch, block, None)


def deadline_passed(execution: Execution, block: Deadline, record: Record) -> None:
    """Cancel what a block does. Raises Diverged."""
    op = block.op
    if record.kind != RecordKind.TIMER or record.name != op.name:
        raise Diverged(op.path, described(record), "a deadline")
    del execution.deadlines[op.path]
    block.record = record
    execution.end(op, record)
    _fire(execution, block)


def _fire(execution: Execution, block: Deadline) -> None:
    block.fired = True
    branch = block.op.branch
    if not branch.cancelling:
        branch.cancelling, branch.exempt = True, False
    elif not block.late:
        return  # it was cancelled since it has entered the block
    cut(execution, branch)

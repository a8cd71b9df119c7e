"""Records that are for the run, not for one operation: signals, cancels, ends of detached children.

The failure that begins a rollback, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell_queue.contract import Record, RecordKind
from stepwell_runtime.core.cancelling import cancel_branch
from stepwell_runtime.core.deadlines import deadline_passed
from stepwell_runtime.core.linked import cancel_linked
from stepwell_runtime.core.outcomes import after_signal, described
from stepwell_runtime.core.rollback import begin_rollback, rerun_failed_undos
from stepwell_runtime.errors import Diverged

if TYPE_CHECKING:
    from stepwell_runtime.core.execution import Execution

_SIGNAL, _FAILURE = int(RecordKind.SIGNAL), int(RecordKind.FAILURE)


def deliver_to_run(execution: Execution, record: Record) -> None:
    """Have go on what this record concerns. Raises Diverged."""
    kind = record.kind
    if record.path:
        block = execution.deadlines.get(record.path)
        if block is not None:
            deadline_passed(execution, block, record)
        elif not execution.was_asked(record.path):
            raise Diverged(record.path, described(record), "nothing there")
    elif kind == _SIGNAL:
        _deliver_signal(execution, record)
    elif kind == _FAILURE:
        begin_rollback(execution, record)
    elif kind == RecordKind.QUESTION:
        execution.talk().arrive(record)
    elif kind == RecordKind.CANCEL:
        _deliver_cancel(execution, record)
    elif kind == RecordKind.REOPEN:
        rerun_failed_undos(execution, record)
    elif kind == RecordKind.MARK:
        execution.marked(record.name)
    elif kind != RecordKind.ROLL_BACK:
        _deliver_detached(execution, record)


def _deliver_signal(execution: Execution, record: Record) -> None:
    op = execution.signals().arrive(record.name, record.value)
    if op is not None:
        execution.end(op)
        execution.withdrawn.append(op)
        execution.resume(op.branch, *after_signal(execution.codec, op, record.value))


def _deliver_detached(execution: Execution, record: Record) -> None:
    for op in execution.detached().ended(record):
        execution.end(op)
        execution.withdrawn.append(op)
        execution.resume(op.branch, *execution.join_outcome(op, record))


def _deliver_cancel(execution: Execution, record: Record) -> None:
    ended = execution.main_outcome
    # A run that is about to begin anew has not ended: the cancel would be lost with its journal.
    anew = ended is not None and ended.verdict == "continued"
    if execution.cancel_name is None and (execution.forward or anew):
        execution.cancel_name, execution.cancel_reason = record.name, record.value
        cancel_branch(execution, execution.main)
        cancel_linked(execution)

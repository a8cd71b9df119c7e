"""Child runs and remote steps: rows of their own, whose end comes back through the inbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell_queue.contract import NewRun, RecordKind
from stepwell_queue.errors import IdConflict
from stepwell_runtime.activation._work import Stage, Work
from stepwell_runtime.core.branch import CallOp, OpState
from stepwell_runtime.launch import child_id, derived_nonce, pack_arguments

if TYPE_CHECKING:
    from stepwell_runtime.activation._activation import Activation


class Children:
    """Starts and cancels the children of one run."""

    __slots__ = ("_activation", "gathered")

    def __init__(self, activation: Activation) -> None:
        self._activation = activation
        self.gathered: list[tuple[Work, NewRun]] = []

    def begin(self, work: Work) -> None:
        """Gather a child that the code has asked for, or take up one that exists already."""
        op = work.op
        if work.row:
            if op.state is OpState.SETTLING:
                self._activation.journal.cancel_child(work.child_id)
            return
        if op.state is OpState.SETTLING and op.kind != "start":
            # Never stored, so never started: nothing to cancel, nothing to wait for.
            # A detached child may exist without a row; cancel does not reach it, so it is started.
            self._append(work, RecordKind.CHILD_CANCELLED, b"")
            return
        assert isinstance(op, CallOp)
        row = self._row(op)
        work.child_id = row.id
        if op.kind != "start":
            self._activation.open_row(work)
        self.gathered.append((work, row))

    def withdraw(self, work: Work) -> None:
        if work.child_id and work.op.kind != "start":
            self._activation.journal.cancel_child(work.child_id)
        if work.op.state is OpState.ENDED:
            self._activation.forget(work)

    def _row(self, op: CallOp) -> NewRun:
        activation = self._activation
        worker = activation.worker
        execution = activation.execution
        assert execution is not None
        attempt = 1 if op.kind == "start" else execution.facts.attempt + execution.resumed
        id = op.options.id or child_id(activation.id, op.path, attempt)
        return worker.launcher.child(
            op.definition,
            pack_arguments(op.args),
            op.options,
            id,
            derived_nonce(activation.seed, op.path),
        )

    def submit(self) -> None:
        gathered, self.gathered = self.gathered, []
        rows = [("" if work.op.kind == "start" else work.op.path, row) for work, row in gathered]

        def answered(answer: Exception | None) -> None:
            if not self._activation.ended:
                self._activation.safely(self._answered, gathered, answer)

        self._activation.journal.append_children(rows, answered)

    def _answered(self, gathered: list[tuple[Work, NewRun]], answer: Exception | None) -> None:
        if isinstance(answer, IdConflict):
            self.gathered = [one for one in gathered if one[1].id != answer.id] + self.gathered
            self._refuse([work for work, row in gathered if row.id == answer.id], answer)
        elif answer is not None:
            self._activation.refused(answer)
        else:
            for work, row in gathered:
                if work.op.kind == "start":
                    self._append(work, RecordKind.STARTED, row.id.encode())

    def _refuse(self, works: list[Work], error: IdConflict) -> None:
        """The id is taken by another run.

        That is the outcome of the call, for the workflow to handle.
        """
        activation = self._activation
        activation.journal.drop_opened({work.op.path for work in works})
        data = activation.worker.codec.encode_error(error, f"run {activation.id!r}")
        for work in works:
            work.row = False
            self._append(work, RecordKind.CHILD_FAILED, data)

    def _append(self, work: Work, kind: RecordKind, value: bytes) -> None:
        work.stage = Stage.RECORDED
        journal = self._activation.journal
        journal.append((journal.record(kind, work.op.path, work.op.name, value),))

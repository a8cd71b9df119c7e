"""Child runs and remote steps: rows of their own, whose end comes back through the inbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from stepwell_queue.contract import NewRun, RecordKind
from stepwell_queue.errors import IdConflict
from stepwell_runtime.activation._work import LARGE_WRITE, RECORDED, AnyWork
from stepwell_runtime.codec import PayloadTooLarge
from stepwell_runtime.core.branch import ENDED, OPEN, SETTLING, CallOp
from stepwell_runtime.launch import child_id, derived_nonce
from stepwell_runtime.policy import with_scheduled

if TYPE_CHECKING:
    from stepwell_runtime.activation._activation import Activation

LARGEST_ARGUMENTS = 48 * 1024 * 1024
"""Bytes that the arguments of one child may have; a write takes little more."""
MOST_AT_ONCE = 500
"""Children that one write stores, so that no transaction grows with a `parallel`."""


class Children:
    """Starts and cancels the children of one run."""

    __slots__ = ("_activation", "gathered")

    def __init__(self, activation: Activation) -> None:
        self._activation = activation
        self.gathered: list[tuple[AnyWork, NewRun]] = []

    def begin(self, work: AnyWork) -> None:
        """Gather a child that the code has asked for, or take up one that exists already."""
        op = work.op
        if work.row:
            if op.state is SETTLING:
                self._activation.journal.cancel_child(work.child_id)
            return
        if op.state is SETTLING and op.kind != "start":
            # Never stored, so never started: nothing to cancel, nothing to wait for.
            # A detached child may exist without a row; cancel does not reach it, so it is started.
            self._append(work, RecordKind.CHILD_CANCELLED, b"")
            return
        assert isinstance(op, CallOp)
        try:
            row = self._row(op)
        except Exception as refused:  # noqa: BLE001 - its key is made by a function of the user's
            self._fail(work, refused)
            return
        if len(row.args) > LARGEST_ARGUMENTS:
            where, size = op.definition.its_arguments, len(row.args)
            self._fail(work, PayloadTooLarge(where, "all together", size, LARGEST_ARGUMENTS))
            return
        work.child_id = row.id
        self.gathered.append((work, row))

    def withdraw(self, work: AnyWork) -> None:
        if work.op.kind == "start":
            return
        if work.row:
            self._activation.journal.cancel_child(work.child_id)
        elif work.op.state is SETTLING:
            self.gathered = [one for one in self.gathered if one[0] is not work]
            self._append(work, RecordKind.CHILD_CANCELLED, b"")
        if work.op.state is ENDED:
            self.gathered = [one for one in self.gathered if one[0] is not work]
            self._activation.forget(work)

    def _row(self, op: CallOp) -> NewRun:
        activation = self._activation
        worker = activation.worker
        execution = activation.execution
        assert execution is not None
        attempt = 1 if op.kind == "start" else execution.facts.attempt + execution.resumed
        id = op.options.id or child_id(activation.id, op.path, attempt, activation.generation)
        declared = op.options.declared or op.definition.declared
        if declared is not None:
            worker.declarations.note(declared)
        row = worker.launcher.child_row(
            op.definition, op.args, op.options, id, derived_nonce(activation.seed, op.path)
        )
        if op.kind == "remote":  # a step tells when its run was to start, wherever it is executed
            scheduled = execution.facts.scheduled_at.timestamp()
            row = replace(row, options=with_scheduled(row.options, scheduled))
        return row

    def submit(self) -> None:
        """Store the gathered children, in several writes when they are many, or large."""
        gathered, self.gathered = self.gathered, []
        chunk: list[tuple[AnyWork, NewRun]] = []
        size = 0
        for one in gathered:
            if size > LARGE_WRITE or len(chunk) == MOST_AT_ONCE:
                self._store(chunk)
                chunk, size = [], 0
            chunk.append(one)
            size += len(one[1].args)
        self._store(chunk)

    def _store(self, gathered: list[tuple[AnyWork, NewRun]]) -> None:
        rows = [("" if work.op.kind == "start" else work.op.path, row) for work, row in gathered]
        opened = [work.open_row() for work, _ in gathered if work.op.kind != "start"]

        def answered(answer: Exception | None) -> None:
            if not self._activation.ended:
                self._activation.safely(self._answered, gathered, answer)

        self._activation.journal.append_children(rows, opened, answered)

    def _answered(self, gathered: list[tuple[AnyWork, NewRun]], answer: Exception | None) -> None:
        if isinstance(answer, IdConflict):
            self._refused(gathered, answer)
        elif answer is not None:
            self._activation.refused(answer)
        else:
            for work, row in gathered:
                if work.op.kind == "start":
                    self._append(work, RecordKind.STARTED, row.id.encode())

    def _refused(self, gathered: list[tuple[AnyWork, NewRun]], error: IdConflict) -> None:
        """An id is taken by another run: the outcome of its call, for the workflow to handle.

        The others of the write are stored with the next one.
        """
        named = [work for work, row in gathered if row.id == error.id]
        taken = named[1:] or named  # where several want one new id, the first may have it
        for work, row in gathered:
            work.row = False
            if work.op.state is not OPEN and work.op.kind != "start":
                self.withdraw(work)
            elif work in taken:
                self._fail(work, error)
            else:
                self.gathered.append((work, row))

    def _fail(self, work: AnyWork, error: Exception) -> None:
        activation = self._activation
        data = activation.worker.codec.encode_error(error, f"run {activation.id!r}")
        self._append(work, RecordKind.CHILD_FAILED, data)

    def _append(self, work: AnyWork, kind: RecordKind, value: bytes) -> None:
        work.stage = RECORDED
        journal = self._activation.journal
        journal.append((journal.record(kind, work.op.path, work.op.name, value),))

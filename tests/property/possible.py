"""Whether what a run left behind could have come about without a crash.

Its journal is delivered to a fresh execution, record by record. What a record says must be possible
where the code stands, and at the end the code must have come to the stored outcome.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextvars import Context
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from msgspec import msgpack

from stepwell_queue.contract import History, Record, RecordKind, Rollback, Status
from stepwell_runtime.core.branch import CallOp, Op, OpState
from stepwell_runtime.core.guard import GuardLoop
from stepwell_runtime.core.marks import marks_in
from stepwell_runtime.launch import decode_arguments, decode_each
from tests.property.shapes import PATCHES, START, Broken, held, shaped
from tests.property.world import Scenario, codec
from tests.replay.asked import Events, Watched

OUTCOME_KINDS = frozenset(
    (
        RecordKind.STEP_OK,
        RecordKind.STEP_FAILED,
        RecordKind.STEP_CUT,
        RecordKind.TIMER,
        RecordKind.CHILD_OK,
        RecordKind.CHILD_FAILED,
        RecordKind.CHILD_CANCELLED,
        RecordKind.STARTED,
    )
)
RETURNS_ITS_LABEL = frozenset(
    ("note", "plain", "slow", "interruptible", "book", "remote", "job", "flaky")
)
CHILD_STATUS = {
    RecordKind.CHILD_OK: Status.COMPLETED,
    RecordKind.CHILD_FAILED: Status.FAILED,
    RecordKind.CHILD_CANCELLED: Status.CANCELLED,
}


class Replay:
    """Delivers the journal of one run of `shaped` to fresh code, and checks each record."""

    def __init__(self, scenario: Scenario, histories: dict[str, History], run_id: str) -> None:
        self.scenario, self.histories, self.history = scenario, histories, histories[run_id]
        run = self.history.run
        code = held.definition if run.name == "held" else shaped.definition
        args, kwargs = decode_arguments(codec, code, run.args, trusted=True)
        facts: Any = SimpleNamespace(
            id=run.id, workflow=run.name, created_at=datetime.fromtimestamp(run.created, UTC)
        )
        self.execution = Watched(
            lambda: code.fn(*args, **kwargs),
            facts,
            seed=f"{run.id}/{run.nonce}/0",
            now=run.created,
            codec=codec,
            context=Context(),
            guard=GuardLoop(),
        )
        self.execution.replaying, self.execution.marks = True, marks_in(self.history.journal)
        self.signals = 0

    def check(self) -> Events:
        """Return what the code asked for and was told; fails where that is not possible."""
        try:
            self._deliver(self.history.journal)
            self._check_end()
        finally:
            self.execution.close()
        return self.execution.events

    def until(self, retry: int) -> Events:
        """Return what the code asked for and was told before the `retry`-th retry."""
        reopened = [r.seq for r in self.history.journal if is_retry(r)]
        try:
            self._deliver(self.history.journal[: reopened[retry]])
        finally:
            self.execution.close()
        return self.execution.events

    def _deliver(self, journal: Sequence[Record]) -> None:
        execution = self.execution
        execution.begin()
        recorded: set[str] = set()
        voided = {seq for r in journal if is_retry(r) for seq in msgpack.decode(r.value)}
        for seq, record in enumerate(journal):
            assert record.seq == seq, f"the journal has {record.seq} at {seq}"
            assert execution.stuck is None, execution.stuck
            if seq in voided:
                continue
            if record.name == "resume_rollback":
                recorded = {path for path in recorded if not path.startswith("~")}
            if record.path:
                assert record.path not in recorded, f"{record.path} is recorded twice"
                recorded.add(record.path)
            self._check_record(record)
            execution.deliver(record)
        assert execution.stuck is None, execution.stuck

    def _check_record(self, record: Record) -> None:
        kind = RecordKind(record.kind)
        if kind in OUTCOME_KINDS and record.path:
            op = self.execution.ops.get(record.path)
            block = self.execution.deadlines.get(record.path)
            if op is None and block is not None:
                op = block.op
            if op is not None:
                self._check_outcome(kind, op, record)
            else:
                # On its way into the journal while another outcome ended what it was for.
                assert self.execution.was_asked(record.path), f"{record} is for nothing"
        elif kind == RecordKind.SIGNAL:
            self._check_signal(record)
        elif kind == RecordKind.CANCEL:
            self._check_cancel(record)
        elif kind == RecordKind.FAILURE:
            assert self.execution.wants_rollback
            assert not self.execution.rolling_back
        elif kind == RecordKind.MARK:
            assert record.name in PATCHES
        elif kind in (RecordKind.REOPEN, RecordKind.ROLL_BACK):
            words = {send.what for send in self.scenario.sends if START + send.after <= record.at}
            assert record.name in words
        else:
            assert kind in CHILD_STATUS, record
            self._check_child(kind, record.name, record)

    def _check_outcome(self, kind: RecordKind, op: Op, record: Record) -> None:
        if kind == RecordKind.TIMER:
            assert op.due is not None, record
            assert op.state is OpState.OPEN, record
            assert record.at >= op.due, record
        elif kind == RecordKind.STARTED:
            assert record.value.decode() in self.histories
        elif kind in CHILD_STATUS:
            child = self._child_that_ended(kind, record)
            if child is None:
                assert op.state is OpState.SETTLING, f"{record} tells of a child that never was"
            else:
                self._check_child(kind, child, record)
        else:
            self._check_step(kind, op, record)

    def _check_step(self, kind: RecordKind, op: Op, record: Record) -> None:
        assert isinstance(op, CallOp)
        args, _ = decode_each(codec, op.definition, op.args, trusted=True)
        if kind == RecordKind.STEP_CUT:
            assert op.state is OpState.SETTLING, "a step was cut and its branch was not cancelled"
        elif kind == RecordKind.STEP_OK:
            assert op.name in RETURNS_ITS_LABEL or record.started >= args[1], record
            assert codec.decode(record.value) == (None if op.name == "revert" else args[0])
            assert record.attempt == (args[1] + 1 if op.name == "flaky" else 1), record
        else:
            error = codec.decode_error(record.value)
            assert isinstance(error, Broken), error
            if op.name == "revert":
                assert record.started < args[1]
                assert record.attempt == 2
            elif op.name == "mended":
                assert record.started < args[1]
                assert record.attempt == 1
            elif op.name == "flaky":
                assert op.state is OpState.SETTLING, "a step gave up that had attempts left"
                assert record.attempt <= args[1]
            else:
                assert op.name == "broken"
                assert record.attempt == 1

    def _child_that_ended(self, kind: RecordKind, record: Record) -> str | None:
        """A retry asks for another child at the same path."""
        wanted = self.history.run.id, record.path, CHILD_STATUS[kind], record.value
        for id, child in self.histories.items():
            run = child.run
            if (run.parent_id, run.parent_path, run.status, run.value) == wanted:
                return id
        return None

    def _check_child(self, kind: RecordKind, child_id: str, record: Record) -> None:
        child = self.histories[child_id].run
        assert CHILD_STATUS[kind] == child.status, (record, child)
        assert record.value == child.value
        assert child.parent_id == self.history.run.id

    def _check_signal(self, record: Record) -> None:
        sent = [send for send in self.scenario.sends if send.what != "cancel"]
        sent.sort(key=lambda send: send.after)
        send = sent[self.signals]
        self.signals += 1
        assert (record.name, codec.decode(record.value)) == (send.what, send.value)
        assert record.at >= START + send.after

    def _check_cancel(self, record: Record) -> None:
        deadline = self.history.run.deadline
        if record.name == "deadline":
            assert deadline is not None
            assert record.at >= deadline
        elif self.history.run.parent_id is None:
            times = [send.after for send in self.scenario.sends if send.what == "cancel"]
            assert record.at >= START + min(times)

    def _check_end(self) -> None:
        execution, run = self.execution, self.history.run
        assert execution.finished, f"the code goes on after its journal: {execution.waits_for()}"
        outcome = execution.outcome
        assert outcome is not None
        assert Status(run.status).name.lower() == outcome.verdict
        if outcome.verdict == "completed":
            assert run.value == outcome.value
        elif outcome.verdict == "failed":
            assert told(codec.decode_error(run.value)) == told(outcome.error)
        assert not execution.deadlines
        assert not execution.ops, f"left open: {execution.waits_for()}"
        self._check_undos()

    def _check_undos(self) -> None:
        execution, run = self.execution, self.history.run
        undos = [record for record in self.history.journal if record.path.startswith("~")]
        began = [r.seq for r in self.history.journal if r.kind == RecordKind.FAILURE]
        in_scopes = [record for record in undos if not began or record.seq < began[0]]
        undos = undos[len(in_scopes) :]
        done = [undone(record) for record in in_scopes if record.kind == RecordKind.STEP_OK]
        assert sorted(done) == [undo.index for undo in execution.undos if undo.undone]
        failed = Counter(undone(r) for r in in_scopes if r.kind == RecordKind.STEP_FAILED)
        assert failed == {u.index: u.failures for u in execution.undos if u.failures}
        wanted = [undo.index for undo in reversed(execution.undos) if undo.stands]
        if not execution.rolling_back:
            assert not undos
            for_good = run.status == Status.FAILED and execution.undone_for_good
            assert run.rollback == (Rollback.COMPLETE if for_good else Rollback.NONE)
        else:
            while undos:
                now, undos = undos[: len(wanted)], undos[len(wanted) :]
                assert [undone(record) for record in now] == wanted
                # a resumed rollback repeats what failed, and only that
                wanted = [undone(r) for r in now if r.kind == RecordKind.STEP_FAILED]
            incomplete = bool(execution.undo_errors)
            assert run.rollback == (Rollback.INCOMPLETE if incomplete else Rollback.COMPLETE)


def is_retry(record: Record) -> bool:
    return record.kind == RecordKind.REOPEN and record.name == "retry"


def undone(record: Record) -> int:
    return int(record.path[1:].partition(".")[0])


def told(error: BaseException | None) -> tuple[str, str]:
    return type(error).__name__, str(error)

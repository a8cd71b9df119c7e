"""One workflow run in the hands of a worker: replay, execute what it asks for, journal, park or end."""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from stepwell_queue.contract import (
    Append,
    Claimed,
    Finish,
    InboxKind,
    InboxRow,
    NewRun,
    OpenOp,
    Park,
    Phase,
    Record,
    RecordKind,
    Reschedule,
    Rollback,
    Settle,
    Status,
    Verb,
)
from stepwell_queue.errors import IdConflict, StaleFence, StepwellError
from stepwell_runtime.attempt import Attempt
from stepwell_runtime.codec import DecodingError
from stepwell_runtime.core.branch import Op, OpState
from stepwell_runtime.core.commands import CallCommand
from stepwell_runtime.core.execution import Execution
from stepwell_runtime.definitions import StepDefinition, WorkflowDefinition
from stepwell_runtime.errors import Diverged, RetryLater, WorkerCrashed
from stepwell_runtime.launch import decode_arguments, derived_nonce, encode_arguments
from stepwell_runtime.policy import Policy
from stepwell_runtime.scope import StepScope
from stepwell_runtime.work import Stage, Work

if TYPE_CHECKING:
    from stepwell_runtime.worker import Worker

log = structlog.get_logger("stepwell")
_seqs = msgspec.msgpack.Encoder()
_seqs_back = msgspec.msgpack.Decoder(list[int])

_CHILD_RECORD = {Status.COMPLETED: RecordKind.CHILD_OK, Status.FAILED: RecordKind.CHILD_FAILED}
_OP_ROW = {"step": "retry", "sleep": "sleep", "wait": "wait", "child": "child", "remote": "remote"}


@dataclass(frozen=True, slots=True)
class Facts:
    """What the workflow may know of its run."""

    id: str
    workflow: str
    version: int
    queue: str
    created_at: datetime
    scheduled_at: datetime
    deadline: datetime | None
    parent_id: str | None
    attempt: int


def _utc(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


class Activation:
    """A claimed workflow run. All methods run on the loop; nothing here waits."""

    def __init__(self, worker: Worker, claimed: Claimed, definition: WorkflowDefinition) -> None:
        self.worker, self.definition = worker, definition
        self.run, self.id, self.fence = claimed.run, claimed.id, claimed.fence
        self.seed = f"{claimed.id}/{claimed.nonce}/{claimed.generation}"
        self.parent, self.deadline = claimed.parent, claimed.deadline
        self.execution: Execution
        self.works: dict[str, Work] = {}
        self.running = 0
        self.ended = False
        self._claimed: Claimed | None = claimed
        self._next_seq = 0
        self._in_flight = 0
        self._seen: set[int] = set()
        self._leaving = False
        self._concluding = False
        self._deadline_told = False
        self._roll_back_ordered = False
        self._retry: InboxRow | None = None
        self._timer: Any = None
        self._opened: list[OpenOp] = []
        self._closed: list[str] = []
        self._children: list[tuple[Work, NewRun]] = []
        self._cancels: list[str] = []
        self._had_rows = False
        self._queued = 0
        self._earliest: float | None = None  # no operation is due before this
        self._armed: float | None = None

    # --- entering ---

    def start(self) -> None:
        """Replay the journal of a fresh claim and go on."""
        claimed = self._claimed
        assert claimed is not None
        self._claimed = None
        if claimed.crashes > self.definition.max_crashes:
            # Failing its running steps did not help, so it is the workflow's own code that kills the process.
            self._settle(Status.STUCK, WorkerCrashed(f"run {self.id!r}: its worker died {claimed.crashes} times in a row"))
            return
        try:
            args, kwargs = decode_arguments(
                self.worker.codec, self.definition, claimed.args, trusted=self.worker.trusts_clients
            )
        except DecodingError as error:
            self._next_seq = len(claimed.journal)
            self._settle(Status.STUCK, error)
            return
        self.execution = execution = self._execution(claimed, args, kwargs)
        self._next_seq = execution.seq = claimed.journal[-1].seq + 1 if claimed.journal else 0
        execution.replaying = claimed.fence > 1
        execution.begin()
        self._replay(claimed)
        execution.replaying = False
        self._had_rows = bool(claimed.open_ops)
        if execution.stuck is None:
            self._take_up_rows(claimed.open_ops, first=claimed.fence == 1)
        if execution.stuck is None and claimed.crashes >= self.definition.max_crashes:
            self._fail_running_steps(claimed.crashes)
        if claimed.inbox:
            self._absorb(claimed.inbox)
        self._pump()

    def resume(self, claimed: Claimed) -> None:
        """Go on with the live coroutine of a run that this worker parked."""
        self.fence = claimed.fence
        if claimed.inbox:
            self._absorb(claimed.inbox)
        self._pump()

    def _execution(self, claimed: Claimed, args: list[Any], kwargs: dict[str, Any]) -> Execution:
        definition = self.definition
        facts = Facts(
            claimed.id,
            claimed.name,
            claimed.version,
            claimed.queue,
            _utc(claimed.created),
            _utc(claimed.created if claimed.due is None else claimed.due),
            None if claimed.deadline is None else _utc(claimed.deadline),
            claimed.parent_id,
            1 + sum(r.kind == RecordKind.REOPEN and r.name == "retry" for r in claimed.journal),
        )
        return Execution(
            lambda: definition.fn(*args, **kwargs),
            facts,
            seed=self.seed,
            now=claimed.created,
            codec=self.worker.codec,
            context=self.worker.context.copy(),
        )

    def _replay(self, claimed: Claimed) -> None:
        execution = self.execution
        voided: set[int] = set()
        for record in claimed.journal:
            if record.kind == RecordKind.REOPEN and record.name == "retry":
                voided.update(_seqs_back.decode(record.value))
        for record in claimed.journal:
            if record.seq in voided:
                continue
            if record.kind == RecordKind.CANCEL and record.name == "deadline":
                self._deadline_told = True
            elif record.kind == RecordKind.ROLL_BACK:
                self._roll_back_ordered = True
            execution.deliver(record)
            if execution.stuck is not None:
                return
        execution.seq = self._next_seq

    def _take_up_rows(self, rows: Sequence[OpenOp], *, first: bool) -> None:
        """Give the open operations what was stored of them: due times, failures, children."""
        execution = self.execution
        for op in execution.take_opened():
            self._add_work(op)
        for row in rows:
            work = self.works.get(row.path)
            if work is None:
                if not execution.was_asked(row.path):
                    execution.stuck = Diverged(row.path, f"an open {row.kind} {row.name!r}", "nothing there")
                    return
                self._closed.append(row.path)
                if row.kind in ("child", "remote"):
                    self._cancels.append(row.value.decode())
                continue
            if _OP_ROW[work.op.kind] != row.kind or work.op.name != row.name:
                asked = f"{work.op.kind} {work.op.name!r}"
                execution.stuck = Diverged(row.path, f"an open {row.kind} {row.name!r}", asked)
                return
            work.row, work.due = True, row.due
            if row.kind == "retry":
                work.failures, work.error = row.attempt, row.value
                work.begun = row.due is None or row.due <= self.worker.clock.now()
            elif row.kind in ("child", "remote"):
                work.child_id = row.value.decode()
        for work in list(self.works.values()):
            # Whether an earlier claim had begun this step is not known: if it may have, it must reach an outcome.
            work.begun = work.begun or not (first or work.row)
            self._begin(work)

    def _fail_running_steps(self, crashes: int) -> None:
        for work in self.works.values():
            if work.op.kind == "step" and work.stage in (Stage.RUNNING, Stage.QUEUED):
                self._drop_attempt(work)
                name = work.op.name
                error = WorkerCrashed(
                    f"step {name!r} at path {work.op.path} of run {self.id!r}: its worker died {crashes} times in a row while running it"
                )
                self._record_outcome(work, RecordKind.STEP_FAILED, self.worker.codec.encode_error(error, name))

    # --- what comes from outside ---

    def told(self, rows: Sequence[InboxRow]) -> None:
        """Absorb inbox rows and go on."""
        if self.ended:
            return
        self._absorb(rows)
        self._pump()

    def _absorb(self, rows: Sequence[InboxRow]) -> None:
        """Turn inbox rows into journal records, which are delivered once committed."""
        records: list[Record] = []
        absorbed: list[int] = []
        phase: int | None = None
        for row in rows:
            if row.id in self._seen:
                continue
            self._seen.add(row.id)
            if row.kind == InboxKind.RETRY:
                self._retry = row
                continue
            if row.kind == InboxKind.CHILD_ENDED and row.path and not self.execution.was_asked(row.path):
                self.execution.stuck = Diverged(row.path, f"the end of child {row.name!r}", "nothing there")
                break
            if row.kind == InboxKind.RESUME_ROLLBACK:
                phase = Phase.ROLLING_BACK
            records.append(self._inbox_record(row))
            absorbed.append(row.id)
        if records:
            closed = [r.path for r in records if r.path]
            self._submit_append(records, closed=closed, absorbed=absorbed, phase=phase)

    def _inbox_record(self, row: InboxRow) -> Record:
        now = self.worker.clock.now()
        kind = row.kind
        if kind == InboxKind.SIGNAL:
            return self._new_record(RecordKind.SIGNAL, "", row.name, row.value, now)
        if kind == InboxKind.CANCEL:
            return self._new_record(RecordKind.CANCEL, "", "cancel", row.value, now)
        if kind == InboxKind.CHILD_ENDED:
            record = _CHILD_RECORD.get(Status(row.status), RecordKind.CHILD_CANCELLED)
            work = self.works.get(row.path)
            if work is None:
                return self._new_record(record, row.path, row.name, row.value, now)
            work.stage = Stage.RECORDED
            return self._new_record(record, row.path, work.op.name, row.value, now)
        if kind == InboxKind.ROLL_BACK:
            self._roll_back_ordered = True
            return self._new_record(RecordKind.ROLL_BACK, "", row.name, row.value, now)
        assert kind == InboxKind.RESUME_ROLLBACK
        return self._new_record(RecordKind.REOPEN, "", "resume_rollback", b"", now)

    def lost(self) -> None:
        """Another worker holds the run now: drop everything, write nothing."""
        if self.ended:
            return
        log.warning("run_lost", run=self.id, fence=self.fence)
        self._end()
        self.discard()
        self.worker.released(self)

    def leave(self) -> None:
        """Hand the run back as soon as what it is doing has settled; begin nothing new."""
        self._leaving = True
        if self.ended:
            return
        for work in self.works.values():
            if work.stage is Stage.QUEUED:
                self._unqueue(work)
        self._pump()

    def hand_back(self) -> None:
        """Stop what still runs, which no longer counts, and let another worker begin anew."""
        if self.ended:
            return
        for work in self.works.values():
            if work.stage is Stage.RUNNING:
                self._drop_attempt(work)
                work.stage = Stage.WAITING
        if not self._concluding:
            self._submit_last(Reschedule(self.run, self.fence, None))

    def discard(self) -> None:
        """Close the coroutines."""
        execution = getattr(self, "execution", None)
        if execution is not None:
            execution.close()
            self.worker.bury(execution.zombies, self.id)
        self.works.clear()

    @property
    def running_names(self) -> list[str]:
        return [w.op.name for w in self.works.values() if w.stage is Stage.RUNNING]

    # --- the pump ---

    def _pump(self) -> None:
        """Carry out whatever the code has asked for; conclude, park or hand back when nothing else is left to do."""
        if self.ended:
            return
        execution = self.execution
        if execution.stuck is not None:
            if not self._in_flight:
                self._settle(Status.STUCK, execution.stuck)
            return
        if execution.withdrawn:
            self._withdraw()
        if execution.opened:
            for op in execution.take_opened():
                self._begin(self._add_work(op))
        if self._concluding:
            return
        self._fire_due()
        if self.running:
            self._write_changes()
            self._arm_timer()
        elif self._in_flight:
            self._write_changes()
        else:
            self._rest()

    def _rest(self) -> None:
        """Nothing runs and nothing is on its way: conclude, hand back, or park."""
        execution = self.execution
        if self._retry is not None:
            self._reopen(self._retry)
        elif execution.outcome is not None and (not execution.rolling_back or execution.rolled_back):
            self._conclude()
        elif self._leaving:
            self._write_changes()
            if not self._in_flight:
                self._submit_last(Reschedule(self.run, self.fence, None))
        elif self._queued:
            self._write_changes()
        elif self._children or self._cancels:
            self._write_changes()
        else:
            self._park()

    def _write_changes(self) -> None:
        if self._children:
            self._submit_children()
        elif self._opened or self._closed or self._cancels:
            self._submit_append(())

    def _add_work(self, op: Op) -> Work:
        work = Work(op)
        if op.kind == "step":
            definition = op.call.definition
            assert isinstance(definition, StepDefinition)
            work.policy = Policy.of_call(definition, op.call.options)
        self.works[op.path] = work
        return work

    def _begin(self, work: Work) -> None:
        """Do what a newly seen operation needs."""
        op = work.op
        kind = op.kind
        if op.state is OpState.ENDED:
            self._forget(work)
        elif kind == "step":
            self._begin_step(work)
        elif kind == "sleep" or kind == "wait":
            if not work.row and work.due is not None:
                self._open_row(work)
        elif kind == "child" or kind == "remote":
            if work.row:
                if op.state is OpState.SETTLING:
                    self._cancels.append(work.child_id)
            else:
                self._start_child(work)
        elif kind == "start":
            self._start_detached(work)

    def _begin_step(self, work: Work) -> None:
        if work.op.state is OpState.SETTLING and not work.begun:
            self._cut(work)
        elif work.row and work.due is not None and work.due > self.worker.clock.now():
            self._note_due(work.due)
        else:
            self._queue(work)

    def _queue(self, work: Work) -> None:
        if not self._leaving:
            work.stage = Stage.QUEUED
            self._queued += 1
            self.worker.want_step(self, work)

    def _unqueue(self, work: Work) -> None:
        if work.stage is Stage.QUEUED:
            work.stage = Stage.WAITING
            self._queued -= 1
            self.worker.unwant_step(work)

    def _cut(self, work: Work) -> None:
        self._record_outcome(work, RecordKind.STEP_CUT, work.error)

    def _withdraw(self) -> None:
        for op in self.execution.take_withdrawn():
            work = self.works.get(op.path)
            if work is None or work.stage is Stage.RECORDED:
                continue
            if op.kind == "step":
                self._withdraw_step(work)
            elif op.kind in ("child", "remote"):
                if work.child_id:
                    self._cancels.append(work.child_id)
                if op.state is OpState.ENDED:
                    self._forget(work)
            elif op.state is OpState.ENDED:
                self._forget(work)

    def _withdraw_step(self, work: Work) -> None:
        if work.op.state is OpState.SETTLING:
            if work.stage is not Stage.RUNNING:
                self._unqueue(work)
                self._cut(work)
            return
        attempt = work.attempt
        if attempt is not None and work.stage is Stage.RUNNING:
            attempt.interrupt()
        else:
            self._unqueue(work)
            self._forget(work)

    def _forget(self, work: Work) -> None:
        self.works.pop(work.op.path, None)
        if work.row:
            self._closed.append(work.op.path)

    def _open_row(self, work: Work) -> None:
        op = work.op
        work.row = True
        if work.due is not None:
            self._note_due(work.due)
        value = work.child_id.encode() if work.child_id else work.error
        self._opened.append(OpenOp(op.path, _OP_ROW[op.kind], op.name, work.due, work.failures, value))

    # --- steps in the activation ---

    def run_step(self, work: Work) -> None:
        """Begin an attempt; the worker has a free place for it."""
        op = work.op
        call = op.call
        policy = work.policy
        assert policy is not None
        args, kwargs = self.worker.codec.decode(op.args)
        scope = StepScope(self.id, op.path, op.name, work.failures + 1, self.seed, self.worker.app)
        started = self.worker.clock.now()

        def ended(value: Any, error: BaseException | None) -> None:
            self._step_ended(work, started, value, error)

        work.attempt = Attempt(call.definition, args, kwargs, scope, policy.timeout, self.worker.threads, ended)
        work.stage = Stage.RUNNING
        work.begun = True
        self._queued -= 1
        self.running += 1
        work.attempt.begin(self.worker.loop, op.branch.context)

    def _step_ended(self, work: Work, started: float, value: Any, error: BaseException | None) -> None:
        self.running -= 1
        attempt, work.attempt = work.attempt, None
        self.worker.step_done()
        if self.ended:
            return
        op = work.op
        if op.state is OpState.ENDED:
            self._forget(work)
            self._pump()
            return
        if error is None:
            try:
                data = self.worker.codec.encode(value, f"the result of step {op.name!r} at path {op.path} of run {self.id!r}")
            except StepwellError as refused:
                self._fail_step(work, started, refused, final=True)
            else:
                self._record_outcome(work, RecordKind.STEP_OK, data, started)
        elif isinstance(error, RetryLater):
            self._postpone(work, error.delay)
        else:
            self._fail_step(work, started, error, final=False)
        self._pump()

    def _postpone(self, work: Work, delay: float) -> None:
        work.begun = False
        if work.op.state is OpState.SETTLING:
            self._cut(work)
            return
        self._wait_for_retry(work, delay)

    def _wait_for_retry(self, work: Work, delay: float) -> None:
        work.stage = Stage.WAITING
        work.due = self.worker.clock.now() + delay
        self._open_row(work)

    def _fail_step(self, work: Work, started: float, error: BaseException, *, final: bool) -> None:
        work.failures += 1
        policy = work.policy
        assert policy is not None
        data = self.worker.codec.encode_error(error, f"step {work.op.name!r}")
        again = not final and work.op.state is OpState.OPEN and policy.wants(error, work.failures)
        if not again:
            self._record_outcome(work, RecordKind.STEP_FAILED, data, started, attempt=work.failures)
            return
        work.error = data
        delay = policy.delay_after(work.failures, self.worker.chance)
        log.info("step_retry", run=self.id, step=work.op.name, path=work.op.path, failures=work.failures, delay=round(delay, 3))
        self._wait_for_retry(work, delay)

    def _drop_attempt(self, work: Work) -> None:
        if work.attempt is not None:
            work.attempt.drop()
            work.attempt = None
            self.running -= 1
            self.worker.step_done()
        else:
            self._unqueue(work)

    def _record_outcome(
        self, work: Work, kind: RecordKind, value: bytes, started: float = 0.0, attempt: int | None = None
    ) -> None:
        op = work.op
        work.stage = Stage.RECORDED
        record = Record(
            self._next_seq,
            kind,
            op.path,
            op.name,
            value,
            self.worker.clock.now(),
            work.failures + 1 if attempt is None else attempt,
            started,
            op.digest,
        )
        self._next_seq += 1
        self._submit_append((record,), closed=(op.path,) if work.row else ())

    # --- children ---

    def _start_child(self, work: Work) -> None:
        op = work.op
        if op.state is OpState.SETTLING:
            # Never stored, so never started: there is nothing to cancel and nothing to wait for.
            self._record_child_cut(work)
            return
        row = self._child_row(op)
        work.child_id = row.id
        self._open_row(work)
        self._children.append((work, row))

    def _record_child_cut(self, work: Work) -> None:
        work.stage = Stage.RECORDED
        record = self._new_record(RecordKind.CHILD_CANCELLED, work.op.path, work.op.name, b"", self.worker.clock.now())
        self._submit_append((record,))

    def _child_row(self, op: Op) -> NewRun:
        call = op.call
        args, kwargs = self.worker.codec.decode(op.args)
        data = encode_arguments(self.worker.codec, call.definition, tuple(args), kwargs)
        id = call.options.id or f"{self.id}/{op.path}"
        return self.worker.launcher.child(call.definition, data, call.options, id, derived_nonce(self.seed, op.path))

    def _start_detached(self, work: Work) -> None:
        row = self._child_row(work.op)
        work.child_id = row.id
        self._children.append((work, row))

    def _submit_children(self) -> None:
        """Insert children and their open operations; no record rides along, so a refusal leaves no gap in the journal."""
        gathered = self._children
        opened, closed, cancels = self._opened, self._closed, self._cancels
        rows = [("" if work.op.kind == "start" else work.op.path, row) for work, row in gathered]
        verb = Append(self.run, self.fence, (), closed, opened, (), rows, cancels)
        self._had_rows = True
        self._opened, self._closed, self._children, self._cancels = [], [], [], []
        self._in_flight += 1

        def done(answer: None | Exception) -> None:
            self._in_flight -= 1
            if self.ended:
                return
            if isinstance(answer, IdConflict):
                self._opened, self._closed, self._cancels = opened + self._opened, closed + self._closed, cancels + self._cancels
                self._children = [one for one in gathered if one[1].id != answer.id] + self._children
                self._child_refused([work for work, row in gathered if row.id == answer.id], answer)
            elif answer is not None:
                self._refused(answer)
            else:
                for work, row in gathered:
                    if work.op.kind == "start":
                        self._child_exists(work, RecordKind.STARTED, row.id.encode())
            self._pump()

        self.worker.store.submit(verb, done)

    def _child_refused(self, works: list[Work], error: IdConflict) -> None:
        """The id is taken by another run: that is the outcome of the call, for the workflow to handle."""
        data = self.worker.codec.encode_error(error, f"run {self.id!r}")
        paths = {work.op.path for work in works}
        self._opened = [row for row in self._opened if row.path not in paths]
        for work in works:
            work.row = False
            self._child_exists(work, RecordKind.CHILD_FAILED, data)

    def _child_exists(self, work: Work, kind: RecordKind, value: bytes) -> None:
        work.stage = Stage.RECORDED
        self._submit_append((self._new_record(kind, work.op.path, work.op.name, value, self.worker.clock.now()),))

    # --- time ---

    def _note_due(self, due: float) -> None:
        if self._earliest is None or due < self._earliest:
            self._earliest = due

    def _fire_due(self) -> None:
        deadline = None if self._deadline_told else self.deadline
        if self._earliest is None and deadline is None:
            return
        now = self.worker.clock.now()
        if deadline is not None and now >= deadline and self.execution.outcome is None:
            self._deadline_told = True
            self._submit_append((self._new_record(RecordKind.CANCEL, "", "deadline", b"", now),))
        if self._earliest is None or self._earliest > now:
            return
        self._earliest = None
        for work in list(self.works.values()):
            if work.stage is not Stage.WAITING or work.due is None:
                continue
            if work.due > now:
                self._note_due(work.due)
            elif work.op.kind == "step":
                self._queue(work)
            elif work.op.state is OpState.OPEN:
                work.stage = Stage.RECORDED
                record = self._new_record(RecordKind.TIMER, work.op.path, work.op.name, b"", now)
                self._submit_append((record,), closed=(work.op.path,) if work.row else ())

    def _next_due(self) -> float | None:
        deadline = None if self._deadline_told or self.execution.outcome is not None else self.deadline
        dues = [due for due in (self._earliest, deadline) if due is not None]
        return min(dues, default=None)

    def _arm_timer(self) -> None:
        due = self._next_due()
        if due == self._armed:
            return
        self._disarm()
        if due is not None:
            self._armed = due
            self._timer = self.worker.clock.call_at(due, self._woken)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._armed = None

    def _woken(self) -> None:
        self._timer = self._armed = None
        if not self.ended:
            self._pump()

    # --- writing ---

    def _new_record(self, kind: RecordKind, path: str, name: str, value: bytes, at: float) -> Record:
        record = Record(self._next_seq, kind, path, name, value, at)
        self._next_seq += 1
        return record

    def _submit_append(
        self,
        records: Sequence[Record],
        *,
        closed: Sequence[str] = (),
        absorbed: Sequence[int] = (),
        phase: int | None = None,
    ) -> None:
        """Write records together with all changes that have gathered; deliver the records once committed."""
        if self._opened or self._closed or self._cancels:
            verb = Append(
                self.run, self.fence, records, [*self._closed, *closed], self._opened, absorbed, (), self._cancels, phase
            )
            self._had_rows = True
            self._opened, self._closed, self._cancels = [], [], []
        else:
            verb = Append(self.run, self.fence, records, closed, (), absorbed, (), (), phase)
        self._in_flight += 1

        def done(answer: None | Exception) -> None:
            self._in_flight -= 1
            if answer is None:
                self._committed(records)
            elif not self.ended:
                self._refused(answer)

        self.worker.store.submit(verb, done)

    def _committed(self, records: Sequence[Record]) -> None:
        if self.ended:
            return
        execution = self.execution
        for record in records:
            if record.path:
                self.works.pop(record.path, None)
            execution.deliver(record)
        self._pump()

    def _refused(self, error: Exception) -> None:
        if isinstance(error, StaleFence):
            self.lost()
        else:
            self._settle(Status.STUCK, error)

    def _submit_last(self, verb: Verb[None]) -> None:
        """Submit what gives up the claim."""
        self._concluding = True
        self._in_flight += 1

        def done(answer: None | Exception) -> None:
            self._in_flight -= 1
            if self.ended:
                return
            if isinstance(answer, StaleFence):
                self.lost()
                return
            if answer is not None:
                log.error("run_not_released", run=self.id, error=str(answer))
            self._end()
            self.discard()
            self.worker.released(self)

        self.worker.store.submit(verb, done)

    def _end(self) -> None:
        self.ended = True
        self._disarm()
        for work in self.works.values():
            if work.stage in (Stage.RUNNING, Stage.QUEUED):
                self._drop_attempt(work)

    # --- giving up the claim ---

    def _settle(self, status: Status, error: BaseException) -> None:
        if status is Status.STUCK:
            log.error("run_stuck", run=self.id, workflow=self.definition.name, reason=str(error))
        data = self.worker.codec.encode_error(error, f"run {self.id!r}")
        self._submit_last(Settle(self.run, self.fence, status, data))

    def _conclude(self) -> None:
        execution = self.execution
        outcome = execution.outcome
        assert outcome is not None
        if outcome.verdict == "completed":
            self._finish(Status.COMPLETED, outcome.value, Rollback.NONE)
            return
        error = outcome.error
        assert error is not None
        if not execution.rolling_back:
            if outcome.verdict == "failed" and self.definition.on_failure == "hold" and not self._roll_back_ordered:
                self._settle(Status.HELD, error)
                return
            if execution.wants_rollback:
                data = self.worker.codec.encode_error(error, f"run {self.id!r}")
                record = self._new_record(RecordKind.FAILURE, "", outcome.verdict, data, self.worker.clock.now())
                self._submit_append((record,), phase=Phase.ROLLING_BACK)
                return
        undo_errors = execution.undo_errors
        rollback = Rollback.NONE
        if execution.rolling_back:
            rollback = Rollback.INCOMPLETE if undo_errors else Rollback.COMPLETE
        for failed in undo_errors:
            error.add_note(f"rollback incomplete: an undo failed with {type(failed).__name__}: {failed}")
        if outcome.verdict == "cancelled":
            self._finish(Status.CANCELLED, execution.cancel_reason, rollback)
        else:
            self._finish(Status.FAILED, self.worker.codec.encode_error(error, f"run {self.id!r}"), rollback)

    def _finish(self, status: Status, value: bytes, rollback: Rollback) -> None:
        if self.execution.unread_signals:
            log.info("signals_unread", run=self.id, count=self.execution.unread_signals)
        clean = not self._had_rows and not self._closed
        now = self.worker.clock.now()
        self._submit_last(Finish(self.run, self.fence, status, value, now, rollback, self.parent, clean))

    def _reopen(self, row: InboxRow) -> None:
        """Void what stands in the way of a retry, and be claimed anew."""
        self._retry = None
        voids = self.execution.retry_voids()
        record = self._new_record(RecordKind.REOPEN, "", "retry", _seqs.encode(voids), self.worker.clock.now())
        self._concluding = True
        self._in_flight += 1
        verb = Append(self.run, self.fence, (record,), (), (), (row.id,))

        def done(answer: None | Exception) -> None:
            self._in_flight -= 1
            self._concluding = False
            if answer is not None:
                self._refused(answer)
            elif not self.ended:
                self._submit_last(Reschedule(self.run, self.fence, None))

        self.worker.store.submit(verb, done)

    def _park(self) -> None:
        self._disarm()
        self._concluding = True
        self._in_flight += 1
        verb = Park(self.run, self.fence, self._next_due(), self._waiting(), self._opened, self._closed)
        if self._opened:
            self._had_rows = True
        self._opened, self._closed = [], []

        def done(answer: Sequence[InboxRow] | Exception) -> None:
            self._in_flight -= 1
            self._concluding = False
            if self.ended:
                return
            if isinstance(answer, StaleFence):
                self.lost()
            elif isinstance(answer, Exception):
                log.error("park_refused", run=self.id, error=str(answer))
                self._settle(Status.STUCK, answer)
            elif answer:
                self.told(answer)
            else:
                self.worker.parked(self)

        self.worker.store.submit(verb, done)

    def _waiting(self) -> str:
        words = []
        for op in self.execution.waits_for()[:4]:
            words.append(f"{'retry of step' if op.kind == 'step' else op.kind} {op.name}" if op.kind != "sleep" else "sleep")
        return ", ".join(words)



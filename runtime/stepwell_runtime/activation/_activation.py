"""The pump of one claimed run: deliver, carry out, and conclude, park or hand back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from stepwell_queue.contract import (
    Claimed,
    Continue,
    Finish,
    InboxRow,
    OpenOp,
    Phase,
    Record,
    RecordKind,
    Reschedule,
    Rollback,
    Settle,
    Status,
    Verb,
)
from stepwell_queue.errors import StaleFence, StoreUnavailable
from stepwell_runtime.activation._children import Children
from stepwell_runtime.activation._entering import enter
from stepwell_runtime.activation._inbox import Inbox
from stepwell_runtime.activation._journal import JournalWriter
from stepwell_runtime.activation._replaying import misfit, seed_of, standing
from stepwell_runtime.activation._steps import LocalSteps, in_order
from stepwell_runtime.activation._timers import Timers, fire_due
from stepwell_runtime.activation._work import (
    RECORDED,
    RUNNING,
    AnyWork,
    Work,
    due_from,
    waiting,
)
from stepwell_runtime.core.branch import ENDED, OPEN, CallOp
from stepwell_runtime.core.execution import Execution
from stepwell_runtime.core.linked import LINKED
from stepwell_runtime.definitions import WorkflowDefinition
from stepwell_runtime.lag import WORKFLOW_TURN, clock, workflow_blocked
from stepwell_runtime.log import log

if TYPE_CHECKING:
    from stepwell_runtime.worker import Worker

_encode_seqs = msgspec.msgpack.Encoder().encode


class Activation:
    """A claimed workflow run. All methods run on the loop; nothing here waits."""

    __slots__ = (
        "__weakref__",
        "_blocked",
        "_claimed",
        "_concluding",
        "_defect",
        "_inbox",
        "children",
        "definition",
        "ended",
        "execution",
        "generation",
        "id",
        "journal",
        "never_hold",
        "parent",
        "pausing",
        "retry",
        "run",
        "seed",
        "steps",
        "timers",
        "worker",
        "works",
    )

    def __init__(self, worker: Worker, claimed: Claimed, definition: WorkflowDefinition) -> None:
        self.worker, self.definition = worker, definition
        self.run, self.id, self.parent = claimed.run, claimed.id, claimed.parent
        self.seed = seed_of(claimed)
        self.generation = claimed.generation
        self.execution: Execution | None = None
        self.works: dict[str, AnyWork] = {}
        self.ended = False
        self.journal = JournalWriter(self, claimed.run, claimed.fence)
        self.timers = Timers(
            worker.clock, self._woken, claimed.deadline, claimed.deadline is not None
        )
        self.steps = LocalSteps(self)
        self.children: Children | None = None  # made for the first one
        self._inbox: Inbox | None = None  # likewise
        self._claimed: Claimed | None = None  # until the code has begun
        self._blocked = 0.0  # seconds of a turn that was too long
        self._concluding = False
        self._defect: Exception | None = None
        self.pausing = False  # begin nothing that is not stored yet
        self.never_hold = False  # told to roll back, or to end: no retry can help
        self.retry: InboxRow | None = None

    @property
    def fence(self) -> int:
        return self.journal.fence

    # --- entering ---

    def start(self, claimed: Claimed) -> None:
        """Make ready to replay a fresh claim; that begins with the next turn of workflow code."""
        try:
            self.execution = enter(self, claimed)
        except Exception as error:  # noqa: BLE001 - it is logged there
            self._broke(error)
        else:
            if self.execution is not None:
                self._claimed = claimed
                self.worker.committed.append((self, None))

    def _begun(self, execution: Execution) -> None:
        """The code stands at its first operations: replay what there is, and hear what was told."""
        claimed, self._claimed = self._claimed, None
        if claimed is None or self._defect is not None:
            return
        if claimed.fence > 1:
            self._replay(execution, claimed)
        if claimed.inbox:
            self._absorb(execution, claimed.inbox)

    def resume(self, claimed: Claimed) -> None:
        """Go on with the live coroutine of a run that this worker parked."""
        assert self.execution is not None
        self.journal.fence = claimed.fence
        if claimed.inbox:
            self._absorb(self.execution, claimed.inbox)

    def _replay(self, execution: Execution, claimed: Claimed) -> None:
        """Bring the code to where an earlier claim has left it, and take up what is open."""
        journal = claimed.journal
        self.journal.next_seq = journal[-1].seq + 1 if journal else 0
        self.journal.had_rows = bool(claimed.open_ops)
        self._deliver_again(execution, journal)
        execution.replaying = False
        for op in execution.other_arguments:
            log.warning(
                "step_replayed_with_other_arguments", run=self.id, step=op.name, path=op.path
            )
        if execution.stuck is None:
            execution.seq = self.journal.next_seq
            self._take_up(execution, claimed)

    def _deliver_again(self, execution: Execution, journal: Sequence[Record]) -> None:
        for record in standing(journal):
            if record.kind == RecordKind.CANCEL:
                self.never_hold = True
                if record.name == "deadline":
                    self.timers.deadline = None
            elif record.kind == RecordKind.ROLL_BACK:
                self.never_hold = True
            elif record.kind == RecordKind.REOPEN:
                # What was ordered after a failure does not hold for one after a retry.
                self.never_hold = execution.cancel_name is not None
            execution.deliver(record)
            if execution.stuck is not None:
                return

    def _take_up(self, execution: Execution, claimed: Claimed) -> None:
        """Give the open operations what was stored of them (due times, failures, children).

        Begin them.
        """
        for op in execution.take_opened():
            self.works[op.path] = Work(op, op.due)
        for row in claimed.open_ops:
            self._take_up_row(execution, row)
            if execution.stuck is not None:
                return
        now = self.worker.clock.now()
        crashed = claimed.crashes >= self.definition.max_crashes
        for work in in_order(self.works, execution.withdrawn):
            # Whether an earlier claim has begun this step is not known; if it may have, it must
            # reach an outcome.
            work.begun = claimed.fence > 1 and (not work.row or work.due is None or work.due <= now)
            if crashed and work.begun and work.op.kind == "step":
                self.steps.fail_crashed(work, claimed.crashes)
            else:
                self._begin(work)

    def _take_up_row(self, execution: Execution, row: OpenOp) -> None:
        work = self.works.get(row.path)
        execution.stuck = misfit(execution, None if work is None else work.op, row)
        if execution.stuck is not None:
            return
        if work is not None:
            work.row, work.due = True, row.due
            if row.kind == "retry":
                work.failures, work.error = row.attempt, row.value
            elif row.kind in ("child", "remote"):
                work.child_id = row.value.decode()
        else:
            self.journal.close(row.path)
            if row.kind in ("child", "remote"):
                self.journal.cancel_child(row.value.decode())

    # --- what comes from outside ---

    def told(self, rows: Sequence[InboxRow]) -> None:
        """Absorb inbox rows and go on."""
        execution = self.execution
        if not self.ended and execution is not None:
            self.safely(self._absorb, execution, rows)

    def _absorb(self, execution: Execution, rows: Sequence[InboxRow]) -> None:
        if execution.stuck is not None:
            return  # code that does not fit adds nothing to the journal
        if self._inbox is None:
            self._inbox = Inbox(self)
        self._inbox.absorb(rows)

    def deliver(self, record: Record | None, begun: float) -> float:
        """Deliver a record that is durable now: workflow code runs, and nothing else.

        None: begin. `begun` and the answer are times of `lag.clock`, before and after.
        """
        execution = self.execution
        if execution is None:
            return begun
        try:
            if record is None:
                execution.begin()
            else:
                if record.path:
                    self.works.pop(record.path, None)
                execution.deliver(record)
        except Exception as error:  # noqa: BLE001 - a defect of the runtime: said once code may run
            self._defect = error
        now = clock()
        if now - begun > WORKFLOW_TURN:
            self._blocked = now - begun  # logged once there is a loop again, which a log may need
        return now

    def proceed(self, records: Sequence[Record] | None) -> None:
        """Carry out what the code has asked for since it began or the first of these was delivered.

        Deliver the others. Each delivery has its effects before the next, as after a crash.
        """
        execution = self.execution
        if execution is None:
            return
        try:
            if self._blocked:
                seconds, self._blocked = self._blocked, 0.0
                workflow_blocked(self.id, self.definition.name, seconds)
            if records is None:
                self._begun(execution)
            else:
                self.journal.in_flight -= 1
            self._follow(execution)
            if records is not None and len(records) > 1:
                for record in records[1:]:
                    self.deliver(record, clock())
                    self._follow(execution)
            self._go_on(execution)
        except Exception as error:  # noqa: BLE001 - it is logged there
            self._broke(error)

    def refused(self, error: Exception) -> None:
        if self.ended:
            return
        if isinstance(error, StaleFence):
            self.lost()
        else:
            self.settle(Status.STUCK, error)

    def lost(self) -> None:
        """Another worker holds the run now: drop everything, write nothing."""
        if not self.ended:
            log.warning("run_lost", run=self.id, fence=self.fence)
            self._released()

    def leave(self) -> None:
        """Hand the run back as soon as what it is doing has settled; begin nothing new."""
        self.steps.leaving = True
        for work in self.works.values():
            self.steps.unqueue(work)
        self.safely(_nothing)

    def pause(self) -> None:
        """Hand the run back as `leave` does; beside steps, nothing else begins either."""
        self.pausing = self.steps.leaving = True
        for work in self.works.values():
            self.steps.unqueue(work)

    def hand_back(self) -> None:
        """Stop what still runs, which no longer counts, and let another worker begin anew."""
        for work in self.works.values():
            self.steps.drop(work)
        if not self._concluding and not self.ended:
            self.give_up(Reschedule(self.run, self.fence, None))

    def discard(self) -> None:
        """Close the coroutines, and drop what holds this activation in turn."""
        self.ended = True
        execution, self.execution = self.execution, None
        if execution is not None:
            execution.close()
            execution.forget()
            self.worker.bury(execution.zombies, self.id)
        self.works.clear()
        del self.journal, self.timers, self.steps, self.children, self._inbox

    @property
    def running_names(self) -> list[str]:
        return [work.op.name for work in self.works.values() if work.stage is RUNNING]

    def _woken(self) -> None:
        self.safely(_nothing)

    def safely(self, change: Callable[..., None], *args: Any) -> None:
        """Apply a change, then pump.

        A defect of the runtime itself leaves the run stuck, and says so.
        """
        try:
            change(*args)
            execution = self.execution
            if not self.ended and execution is not None:
                self._follow(execution)
                self._go_on(execution)
        except Exception as error:  # noqa: BLE001 - it is logged there
            self._broke(error)

    def _broke(self, error: Exception) -> None:
        # Logged last: a processor of the user's that raises must not leave the run as it is.
        if not self.ended and not self._concluding:
            self.settle(Status.STUCK, error)
        log.error("activation_broke", run=self.id, exc_info=error)

    # --- the pump ---

    def _follow(self, execution: Execution) -> None:
        """End what the code no longer waits for, and begin what it has asked for."""
        if self._defect is not None:
            raise self._defect
        if execution.stuck is not None:
            return
        if execution.withdrawn:
            self._withdraw(execution)
        if (talk := execution.said) is not None:
            self.journal.say(talk.take())
        marks = execution.marks
        if marks is not None and marks.unwritten:
            self.journal.mark(marks.take_unwritten())
        opened = execution.opened
        if opened and (marks is None or not marks.pending):
            execution.opened = []
            for op in opened:
                if op.state is OPEN and op.kind == "step" and isinstance(op, CallOp):
                    step = self.works[op.path] = Work(op)
                    self.steps.queue(step)
                elif op.state is not ENDED:
                    work = self.works[op.path] = Work(op, op.due)
                    self._begin(work)

    def _go_on(self, execution: Execution) -> None:
        """Carry out what is due, and conclude, park or hand back when nothing is left to do."""
        journal, steps, timers = self.journal, self.steps, self.timers
        if execution.stuck is not None:
            if not journal.in_flight and not self._concluding:
                self.settle(Status.STUCK, execution.stuck)
            return
        if self._concluding:
            return
        if timers.active:
            fire_due(self, execution)
        if self.children is not None and self.children.gathered:
            self.children.submit()
        if steps.running or steps.queued or journal.in_flight:
            if journal.has_changes:
                journal.append(())
            if timers.active:
                timers.arm()
        else:
            self._rest(execution)

    def _begin(self, work: AnyWork) -> None:
        kind = work.op.kind
        if work.op.state is ENDED:
            self.forget(work)
        elif kind == "step":
            self.steps.begin(work)
        elif self.pausing and not work.row:
            pass  # the code asks again when the run is resumed
        elif kind in ("child", "remote", "start"):
            self._its_children().begin(work)
        elif work.due is not None:
            if work.row:
                self.timers.note(work.due)
            else:
                # The code knows only the time of its journal, which for a run that has waited for
                # a worker is long past.
                work.due = due_from(work.op, self.worker.clock.now())
                self.open_row(work)

    def _its_children(self) -> Children:
        if self.children is None:
            self.children = Children(self)
        return self.children

    def open_row(self, work: AnyWork) -> None:
        """Store the operation with the next write."""
        if work.due is not None:
            self.timers.note(work.due)
        self.journal.open(work.open_row())

    def forget(self, work: AnyWork) -> None:
        """The operation is over without a record."""
        self.works.pop(work.op.path, None)
        if work.row:
            self.journal.close(work.op.path)

    def _withdraw(self, execution: Execution) -> None:
        for op in execution.take_withdrawn():
            if op.kind == LINKED:
                self.journal.cancel_child(op.name)
                continue
            work = self.works.get(op.path)
            if work is None or work.stage is RECORDED:
                continue
            if op.kind == "step":
                self.steps.withdraw(work)
            elif op.kind in ("child", "remote", "start"):
                self._its_children().withdraw(work)
            else:
                self.forget(work)

    # --- giving up the claim ---

    def _rest(self, execution: Execution) -> None:
        """Nothing runs and nothing is on its way: reopen, conclude, hand back, or park."""
        if self.journal.has_notes or self.journal.has_cancels:
            self.journal.append(())  # what it has said stands before its end, or its wait
        elif self.retry is not None:
            if self.journal.has_changes:
                self.journal.append(())
            else:
                self._reopen(execution, self.retry)
        elif execution.outcome is not None and (
            not execution.rolling_back or execution.rolled_back
        ):
            self._conclude(execution)
        elif self.steps.leaving:
            if self.journal.has_changes:
                self.journal.append(())
            else:
                self.give_up(Reschedule(self.run, self.fence, None))
        else:
            self._park(execution)

    def _conclude(self, execution: Execution) -> None:
        outcome = execution.outcome
        assert outcome is not None
        error = outcome.error
        if outcome.verdict == "continued":
            now, left = self.worker.clock.now(), execution.left
            self.give_up(Continue(self.run, self.fence, outcome.value, left, now))
            return
        if error is None:
            self._finish(execution, Status.COMPLETED, outcome.value, Rollback.NONE)
            return
        codec = self.worker.codec
        where = f"run {self.id!r}"
        if not execution.rolling_back:
            if (
                outcome.verdict == "failed"
                and self.definition.on_failure == "hold"
                and not self.never_hold
                and not execution.undone_for_good
            ):
                if self.journal.has_changes:
                    self.journal.append(())  # what is over must not meet the code after a retry
                else:
                    self.settle(Status.HELD, error)
                return
            if execution.wants_rollback:
                record = self.journal.record(
                    RecordKind.FAILURE, "", outcome.verdict, codec.encode_error(error, where)
                )
                # so that a fork can tell what has been undone, without the code
                undone_since = min(undo.since for undo in execution.undos if undo.stands)
                record = replace(record, digest=undone_since)
                self.journal.append((record,), phase=int(Phase.ROLLING_BACK))
                return
        undo_errors = execution.undo_errors
        rollback = Rollback.COMPLETE if execution.undone_for_good else Rollback.NONE
        if execution.rolling_back:
            rollback = Rollback.INCOMPLETE if undo_errors else Rollback.COMPLETE
        for failed in undo_errors:
            error.add_note(
                f"rollback incomplete: an undo failed with {type(failed).__name__}: {failed}"
            )
        if outcome.verdict == "cancelled":
            self._finish(execution, Status.CANCELLED, execution.cancel_reason, rollback)
        else:
            stored = execution.failure if not undo_errors else b""
            value = stored or codec.encode_error(error, where)
            self._finish(execution, Status.FAILED, value, rollback)
        error.__traceback__ = None  # frames of the workflow, kept alive for nobody

    def _finish(
        self, execution: Execution, status: Status, value: bytes, rollback: Rollback
    ) -> None:
        if execution.unread_signals:
            log.info("signals_unread", run=self.id, count=execution.unread_signals)
        now = self.worker.clock.now()
        ended, clean = int(status), self.journal.clean
        self.give_up(
            Finish(self.run, self.fence, ended, value, now, int(rollback), self.parent, clean)
        )

    def settle(self, status: Status, error: BaseException) -> None:
        data = self.worker.codec.encode_error(error, f"run {self.id!r}")
        self.give_up(Settle(self.run, self.fence, status, data))
        if status is Status.STUCK:
            log.error("run_stuck", run=self.id, workflow=self.definition.name, reason=str(error))

    def _reopen(self, execution: Execution, row: InboxRow) -> None:
        """Void what stands in the way of a retry, and be claimed anew."""
        self._concluding, self.retry = True, None
        record = self.journal.record(
            RecordKind.REOPEN, "", "retry", _encode_seqs(execution.retry_voids())
        )

        def answered(answer: Exception | None) -> None:
            if self.ended:
                return
            if answer is None:
                self.give_up(Reschedule(self.run, self.fence, None))
            else:
                self.refused(answer)

        self.journal.reopen(record, row.id, answered)

    def give_up(self, verb: Verb[None]) -> None:
        """Submit what ends this claim."""
        self._concluding = True
        self.timers.disarm()

        def answered(answer: Exception | None) -> None:
            if self.ended:
                return
            if isinstance(answer, StaleFence):
                self.lost()
                return
            if answer is not None:
                log.error("run_not_released", run=self.id, error=str(answer))
                if not isinstance(answer, StoreUnavailable) and not isinstance(verb, Settle):
                    # nobody would go on with it while this worker lives
                    self.settle(Status.STUCK, answer)
                    return
            self._released()

        self.journal.last(verb, answered)

    def _released(self) -> None:
        self.ended = True
        self.timers.disarm()
        for work in self.works.values():
            self.steps.drop(work)
        self.discard()
        self.worker.released(self)

    def _park(self, execution: Execution) -> None:
        self._concluding = True
        self.timers.disarm()
        self.timers.recount(work.due for work in self.works.values())

        def answered(answer: Any) -> None:
            self._concluding = False
            if self.ended:
                return
            if isinstance(answer, Exception):
                self.refused(answer)
            elif answer:
                self.told(answer)
            else:
                self.worker.parked(self)

        self.journal.park(self.timers.next_due, waiting(execution.waits_for()), answered)


def _nothing() -> None:
    """Pump only."""

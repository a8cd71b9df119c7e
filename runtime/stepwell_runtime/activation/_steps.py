"""The steps that run inside an activation: attempts, retries, cuts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from stepwell_queue.contract import RecordKind
from stepwell_runtime.activation._work import QUEUED, RECORDED, RUNNING, WAITING, AnyWork, StepWork
from stepwell_runtime.attempt import Attempt
from stepwell_runtime.codec import SerializationError
from stepwell_runtime.core.branch import ENDED, OPEN, SETTLING, Op
from stepwell_runtime.errors import RetryLater, WorkerCrashed
from stepwell_runtime.launch import decode_each
from stepwell_runtime.log import log
from stepwell_runtime.reports import Reports

if TYPE_CHECKING:
    from stepwell_runtime.activation._activation import Activation

_STEP_OK = int(RecordKind.STEP_OK)


class LocalSteps:
    """Executes the steps of one run in its worker."""

    __slots__ = ("_activation", "_reports", "_worker", "leaving", "queued", "running")

    def __init__(self, activation: Activation) -> None:
        self._activation, self._worker = activation, activation.worker
        self.running = 0
        self.queued = 0
        self.leaving = False  # begin nothing new
        self._reports: Reports | None = None  # made for the first

    def reports(self) -> Reports:
        """What the steps say of their run, all of them together."""
        if self._reports is None:
            self._reports = Reports(self._activation)
        return self._reports

    def scheduled(self) -> float:
        """When the run was to start."""
        execution = self._activation.execution
        assert execution is not None  # its code asked for the step
        return execution.facts.scheduled_at.timestamp()

    # --- beginning ---

    def begin(self, work: StepWork) -> None:
        """Do what a step that the code has asked for needs.

        A cut, a wait for its next attempt, or an attempt.
        """
        if work.op.state is SETTLING and not work.begun:
            self._cut(work)
        elif work.row and work.due is not None and work.due > self._worker.clock.now():
            self._activation.timers.note(work.due)
        else:
            self.queue(work)

    def unqueue(self, work: StepWork) -> None:
        if work.stage is QUEUED:
            work.stage = WAITING
            self.queued -= 1

    def run_queued(self, work: StepWork) -> None:
        """The worker has a place for a step that was queued."""
        self.queued -= 1
        self.queue(work)

    def queue(self, work: StepWork) -> None:
        """Begin an attempt now, or as soon as the worker has a place for it."""
        if self.leaving:
            return
        op, activation, worker = work.op, self._activation, self._worker
        if worker.free_steps <= 0:
            work.stage = QUEUED
            self.queued += 1
            worker.step_queue.append((self, work))
            return
        try:
            args, kwargs = decode_each(worker.codec, op.definition, op.args, trusted=True)
        except Exception as error:  # noqa: BLE001 - it may be another run's end that called here
            work.stage = WAITING
            activation.refused(error)
            return
        worker.free_steps -= 1
        work.attempt = attempt = Attempt(
            "step",
            op.name,
            activation.id,
            op.path,
            op.branch.facts.queue,
            work.failures + 1,
            activation.seed,
            worker.app,
            op.definition.signature,
            args,
            kwargs,
            op.definition,
            op.timeout,
            worker.executors,
            worker.loop,
            partial(self._ended, work, worker.clock.now()),
            self,
        )
        work.stage = RUNNING
        work.begun = True
        self.running += 1
        attempt.begin(worker.lanes, op.branch.context)

    # --- ending ---

    def _ended(
        self, work: StepWork, started: float, value: Any, error: BaseException | None
    ) -> None:
        self.running -= 1
        work.attempt = None
        activation, worker = self._activation, self._worker
        worker.free_steps += 1
        if worker.step_queue:
            worker.run_queued_step()
        if activation.ended:
            return
        op = work.op
        if error is None and op.state is not ENDED:
            try:
                data = worker.codec.encode(value, op.definition.its_result)
            except SerializationError as refused:
                error = refused
            else:
                work.stage = RECORDED
                try:
                    activation.journal.append_step(
                        _STEP_OK, op, data, work.failures + 1, started, work.row
                    )
                except Exception as broken:  # noqa: BLE001 - nobody above could tell the run
                    activation.refused(broken)
                return
        activation.safely(self._take_failure, work, started, error)

    def _take_failure(self, work: StepWork, started: float, error: BaseException | None) -> None:
        if work.op.state is ENDED or error is None:
            self._activation.forget(work)
        elif isinstance(error, SerializationError):
            error.add_note(f"at path {work.op.path} of run {self._activation.id!r}")
            self._failed(work, started, error, final=True)
        elif isinstance(error, RetryLater):
            self._postpone(work, error.delay)
        else:
            self._failed(work, started, error, final=False)

    def _postpone(self, work: StepWork, delay: float) -> None:
        if work.op.state is SETTLING:
            self._cut(work)
        else:
            self._wait(work, delay)

    def _failed(self, work: StepWork, started: float, error: BaseException, *, final: bool) -> None:
        work.failures += 1
        retry, op = work.retry, work.op
        data = self._worker.codec.encode_error(error, f"step {op.name!r}")
        if final or op.state is not OPEN or not retry.wants(error, work.failures):
            self._record(work, RecordKind.STEP_FAILED, data, started, attempt=work.failures)
            return
        work.error = data
        delay = retry.delay_after(work.failures, self._worker.chance)
        log.info(
            "step_retry",
            run=self._activation.id,
            step=op.name,
            path=op.path,
            failures=work.failures,
            delay=round(delay, 3),
        )
        self._wait(work, delay)

    def _wait(self, work: StepWork, delay: float) -> None:
        work.stage, work.begun = WAITING, False
        work.due = self._worker.clock.now() + delay
        self._activation.open_row(work)

    def fail_crashed(self, work: StepWork, crashes: int) -> None:
        """End a step that was running whenever the worker died."""
        name, path = work.op.name, work.op.path
        error = WorkerCrashed(
            f"step {name!r} at path {path} of run {self._activation.id!r}: its worker died "
            f"{crashes} times in a row while running it"
        )
        self._record(
            work, RecordKind.STEP_FAILED, self._worker.codec.encode_error(error, f"step {name!r}")
        )

    def _cut(self, work: StepWork) -> None:
        self._record(work, RecordKind.STEP_CUT, work.error)

    def _record(
        self,
        work: StepWork,
        kind: RecordKind,
        value: bytes,
        started: float = 0.0,
        attempt: int | None = None,
    ) -> None:
        op = work.op
        work.stage = RECORDED
        attempt = work.failures + 1 if attempt is None else attempt
        self._activation.journal.append_step(int(kind), op, value, attempt, started, work.row)

    # --- stopping ---

    def withdraw(self, work: StepWork) -> None:
        """React to the cancellation of the branch that waits for this step."""
        if work.op.state is SETTLING:
            if not work.begun:
                self.unqueue(work)
                self._cut(work)
        elif work.attempt is not None:
            work.attempt.interrupt()
        else:
            self.unqueue(work)
            self._activation.forget(work)

    def drop(self, work: StepWork) -> None:
        """Stop the attempt, if there is one; its outcome no longer counts."""
        if work.attempt is None:
            self.unqueue(work)
            return
        work.attempt.drop()
        work.attempt = None
        work.stage = WAITING
        self.running -= 1
        self._worker.free_steps += 1
        self._worker.run_queued_step()


def in_order(works: Mapping[str, AnyWork], withdrawn: Iterable[Op]) -> list[AnyWork]:
    """Return works as a live run would come to them: what was cancelled, as it was, then the rest.

    The order of records depends on it: a step that is cut has one.
    """
    cancelled = {op.path: works[op.path] for op in withdrawn if op.path in works}
    return [*cancelled.values(), *(work for path, work in works.items() if path not in cancelled)]

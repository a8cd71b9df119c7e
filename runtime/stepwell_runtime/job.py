"""One claimed task or node job: execute its function once, and say how it went."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stepwell_queue.contract import (
    Claimed,
    Finish,
    InboxKind,
    InboxRow,
    Reschedule,
    Settle,
    Status,
    Verb,
)
from stepwell_queue.errors import StaleFence, StepwellError, StoreUnavailable
from stepwell_runtime.attempt import Attempt
from stepwell_runtime.batch import Seat
from stepwell_runtime.codec import DecodingError
from stepwell_runtime.definitions import StepDefinition, TaskDefinition
from stepwell_runtime.errors import BatchMismatch, DeadlineExceeded, RetryLater, WorkerCrashed
from stepwell_runtime.launch import decode_arguments, lasting_id
from stepwell_runtime.log import log
from stepwell_runtime.policy import Policy, scheduled_of
from stepwell_runtime.reports import Reports

if TYPE_CHECKING:
    from stepwell_runtime.worker import Worker


# As the store writes them: to read a member of an enum costs more than all else about it.
_CANCEL = int(InboxKind.CANCEL)
_PAUSE = int(InboxKind.PAUSE)
_COMPLETED, _FAILED, _CANCELLED = map(int, (Status.COMPLETED, Status.FAILED, Status.CANCELLED))
_STUCK = int(Status.STUCK)


class Job:
    """A claimed task, or a step with `queue=` on behalf of its workflow."""

    __slots__ = (
        "_attempt",
        "_cancel_reason",
        "_claimed",
        "_deadline_timer",
        "_definition",
        "ended",
        "id",
        "run",
        "worker",
    )

    def __init__(
        self, worker: Worker, claimed: Claimed, definition: TaskDefinition | StepDefinition
    ) -> None:
        self.worker, self._claimed, self._definition = worker, claimed, definition
        self.run, self.id = claimed.run, claimed.id
        self._attempt: Attempt | Seat | None = None
        self._cancel_reason: bytes | None = None
        self._deadline_timer: Any = None
        self.ended = False

    @property
    def fence(self) -> int:
        return self._claimed.fence

    @property
    def running_names(self) -> list[str]:
        return [] if self._attempt is None else [self._definition.name]

    def start(self) -> None:
        """Begin; a defect of the runtime itself fails the job, and says so."""
        claimed, worker, definition = self._claimed, self.worker, self._definition
        of_step = isinstance(definition, StepDefinition)
        try:
            if (
                claimed.crashes or claimed.inbox or claimed.deadline is not None
            ) and not self._may_begin():
                return
            try:
                args, kwargs = decode_arguments(
                    worker.codec,
                    definition,
                    claimed.args,
                    trusted=worker.trusts_clients or of_step,
                )
            except DecodingError as error:
                self._fail(error)
                return
            if definition.batch is not None and isinstance(definition, TaskDefinition):
                self._attempt = worker.batches.join(
                    claimed, definition, args[0], self._attempt_ended, self
                )
                return
            lasting = lasting_id(claimed.id) if of_step else claimed.id
            self._attempt = Attempt(
                "step" if of_step else "task",
                definition.name,
                claimed.parent_id if of_step and claimed.parent_id else claimed.id,
                claimed.parent_path or "",
                claimed.queue,
                claimed.attempts + 1,
                f"{lasting}/{claimed.nonce}/{claimed.generation}",
                worker.app,
                definition.signature,
                args,
                kwargs,
                definition,
                self._policy.timeout if claimed.options else definition.timeout,
                worker.executors,
                worker.loop,
                self._attempt_ended,
                self,
            )
            self._attempt.begin(worker.lanes, worker.context)
        except Exception as error:  # noqa: BLE001 - a defect of the runtime fails the job
            log.exception("job_broke", run=self.id)
            if not self.ended:
                self._fail(error)

    def _may_begin(self) -> bool:
        """Whether nothing stands against it; otherwise it has ended."""
        claimed, clock = self._claimed, self.worker.clock
        if claimed.crashes >= self._definition.max_crashes:
            self._fail(
                WorkerCrashed(
                    f"{self._word}: its worker died {claimed.crashes} times in a row while "
                    "running it"
                )
            )
            return False
        if self._is_cancelled(claimed.inbox) and not self._must_settle:
            self._finish(_CANCELLED, self._cancel_reason or b"")
            return False
        if claimed.deadline is not None:
            if clock.now() >= claimed.deadline:
                self._fail(DeadlineExceeded(f"{self._word} did not end by its deadline"))
                return False
            self._deadline_timer = clock.call_at(claimed.deadline, self._deadline_passed)
        return True

    @property
    def _policy(self) -> Policy:
        return Policy.of_run(self._definition, self._claimed.options)

    @property
    def _word(self) -> str:
        return f"{self._definition.word} {self._definition.name!r} (run {self.id!r})"

    def reports(self) -> Reports:
        """What is said of this run while it is executed."""
        return Reports(self)

    def scheduled(self) -> float:
        """When the run was to start; of a step: its workflow's run."""
        return scheduled_of(self._claimed)

    def told(self, rows: Sequence[InboxRow]) -> None:
        if not self.ended and any(row.kind == _PAUSE for row in rows):
            self.leave()
        if (
            not self.ended
            and self._attempt is not None
            and self._is_cancelled(rows)
            and self._may_interrupt
        ):
            self._attempt.interrupt()

    def _is_cancelled(self, rows: Sequence[InboxRow]) -> bool:
        for row in rows:
            if row.kind == _CANCEL:
                self._cancel_reason = row.value
                return True
        return False

    @property
    def _may_interrupt(self) -> bool:
        return not (
            isinstance(self._definition, StepDefinition) and self._definition.on_cancel == "finish"
        )

    @property
    def _must_settle(self) -> bool:
        """Whether an earlier claim may have begun what must reach an outcome.

        It has if it did not end with a failure, which was counted.
        """
        claimed = self._claimed
        return not self._may_interrupt and claimed.fence - 1 > claimed.attempts

    def lost(self) -> None:
        if not self.ended:
            log.warning("run_lost", run=self.id, fence=self._claimed.fence)
            self._end()
            self.worker.released(self)

    def leave(self) -> None:
        """Hand back what has not begun; a running attempt may end within the grace time."""
        if isinstance(self._attempt, Seat) and self._attempt.waits:
            self.hand_back()

    def hand_back(self) -> None:
        """Stop the attempt, which no longer counts, and let another worker begin anew."""
        if self.ended or self._attempt is None:
            return
        unstarted = isinstance(self._attempt, Seat) and self._attempt.waits
        self._attempt.drop()
        self._attempt = None
        self._submit(Reschedule(self.run, self._claimed.fence, None, unstarted=unstarted))

    def discard(self) -> None:
        self._attempt = None

    def _deadline_passed(self) -> None:
        self._deadline_timer = None
        if self._attempt is not None:
            self._attempt.drop()
            self._attempt = None
            self._fail(DeadlineExceeded(f"{self._word} did not end by its deadline"))

    def _attempt_ended(self, value: Any, error: BaseException | None) -> None:
        try:
            if error is None and self._cancel_reason is None and not self.ended:
                self._attempt = None
                self._succeed(value)
            else:
                self._outcome(value, error)
        except Exception as broken:  # noqa: BLE001 - as above
            if not self.ended:
                self._fail(broken)
            log.exception("job_broke", run=self.id)

    def _outcome(self, value: Any, error: BaseException | None) -> None:
        attempt, self._attempt = self._attempt, None
        if self.ended:
            return
        if self._cancel_reason is not None and attempt is not None and attempt.interrupted:
            self._finish(_CANCELLED, self._cancel_reason)
        elif error is None:
            self._succeed(value)
        elif isinstance(error, RetryLater):
            if self._cancel_reason is not None:
                self._finish(_CANCELLED, self._cancel_reason)
                return
            # The number of failures is told though it is the same: the attempt has come to an end,
            # so crashes are counted anew.
            claimed = self._claimed
            self._submit(
                Reschedule(self.run, claimed.fence, self._after(error.delay), claimed.attempts)
            )
        else:
            self._failed(error)

    def _succeed(self, value: Any) -> None:
        try:
            data = self.worker.codec.encode(value, self._definition.its_result)
        except StepwellError as refused:
            refused.add_note(f"in run {self.id!r}")
            self._fail(refused)
        else:
            self._finish(_COMPLETED, data)

    def _failed(self, error: BaseException) -> None:
        failures, policy = self._claimed.attempts + 1, self._policy
        if (
            self._cancel_reason is not None
            or isinstance(error, BatchMismatch)
            or not policy.wants(error, failures)
        ):
            self._fail(error)
            return
        worker, claimed = self.worker, self._claimed
        delay = policy.delay_after(failures, worker.chance)
        data = worker.codec.encode_error(error, self._word)
        self._submit(Reschedule(self.run, claimed.fence, self._after(delay), failures, data))
        # Logged last: a processor of the user's that raises must not leave the run as it is.
        log.info(
            "job_retry",
            run=self.id,
            name=self._definition.name,
            failures=failures,
            delay=round(delay, 3),
        )

    def _after(self, delay: float) -> float:
        """Return when to look at the job again: at its deadline if that comes first."""
        due = self.worker.clock.now() + delay
        deadline = self._claimed.deadline
        return due if deadline is None else min(due, deadline)

    def _fail(self, error: BaseException) -> None:
        self._finish(
            _FAILED,
            self.worker.codec.encode_error(error, self._word),
            self._claimed.attempts + 1,
        )

    def _finish(self, status: int, value: bytes, failures: int | None = None) -> None:
        claimed = self._claimed
        now = self.worker.clock.now()
        self._submit(
            Finish(
                claimed.run, claimed.fence, status, value, now, 0, claimed.parent, True, failures
            )
        )

    def _submit(self, verb: Verb[None]) -> None:
        self.ended = True
        if self._deadline_timer is not None or self._attempt is not None:
            self._end()
        self.worker.leaving()
        try:
            self.worker.store.submit(verb, self._stored)
        except Exception as refused:  # noqa: BLE001 - its place must not stay taken
            self._stored(refused)

    def _stored(self, answer: Exception | None) -> None:
        if isinstance(answer, Exception) and not isinstance(answer, StaleFence):
            if not isinstance(answer, StoreUnavailable):
                self._put_aside(answer)
            log.error("job_not_released", run=self.id, error=str(answer))
        self.worker.left(self)

    def _put_aside(self, refused: Exception) -> None:
        """Leave it stuck: else it would be held, by nobody, for as long as this worker lives."""
        reason = self.worker.codec.encode_error(refused, self._word)
        verb = Settle(self.run, self._claimed.fence, _STUCK, reason)
        with contextlib.suppress(StoreUnavailable):  # it is closed, and hands its runs over
            self.worker.store.submit(verb, _ignore)

    def _end(self) -> None:
        self.ended = True
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None
        if self._attempt is not None:
            self._attempt.drop()
            self._attempt = None


def _ignore(answer: object) -> None:
    """The run that nobody could put aside is handed over with what else the worker holds."""

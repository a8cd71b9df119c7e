"""Jobs of a task with `batch=`: they are gathered, and then one attempt executes them all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeGuard

from stepwell_queue.contract import Claimed
from stepwell_runtime.attempt import Attempt
from stepwell_runtime.definitions import TaskDefinition
from stepwell_runtime.errors import BatchMismatch
from stepwell_runtime.log import log
from stepwell_runtime.reports import Holder, Shared

if TYPE_CHECKING:
    from stepwell_runtime.worker import Worker

ALONE_FROM = 2
"""Crashes after which a run is executed alone."""

Ended = Callable[[Any, BaseException | None], None]


class Seat:
    """The place of one job in a batch; to the job it is what an attempt of its own would be."""

    __slots__ = ("_batch", "_ended", "attempt", "holder", "interrupted", "run_id", "seed", "value")

    def __init__(
        self, batch: Batch, claimed: Claimed, value: Any, ended: Ended, holder: Holder
    ) -> None:
        self._batch: Batch | None = batch
        self._ended, self.holder = ended, holder
        self.run_id, self.value, self.attempt = claimed.id, value, claimed.attempts + 1
        self.seed = f"{claimed.id}/{claimed.nonce}/{claimed.generation}"
        self.interrupted = False

    @property
    def taken(self) -> bool:
        """Whether the job has not left."""
        return self._batch is not None

    @property
    def waits(self) -> bool:
        """Whether its batch is still being gathered."""
        return self._batch is not None and self._batch.attempt is None

    def interrupt(self) -> None:
        """Leave a batch that has not begun; of one that has, drop what becomes of this job."""
        if self._batch is None or self.interrupted:
            return
        waits, self.interrupted = self.waits, True
        self._batch.counting -= 1
        if waits:
            self.over(None, asyncio.CancelledError())
        else:
            self._batch.stop_for_nobody()

    def drop(self) -> None:
        """Leave the batch; nobody is told of its end."""
        batch, self._batch = self._batch, None
        if batch is not None:
            batch.left(self)

    def over(self, value: Any, error: BaseException | None) -> None:
        """Tell the job how it went, unless it has left."""
        batch, self._batch = self._batch, None
        if batch is not None:
            batch.left(self)
            self._ended(value, error)


class Batch:
    """Jobs of one task that are executed together."""

    def __init__(
        self,
        worker: Worker,
        definition: TaskDefinition,
        queue: str,
        gathered: Callable[[Batch], None],
    ) -> None:
        self._worker, self.definition, self._queue = worker, definition, queue
        self._gathered = gathered
        self._seats: list[Seat] = []
        self.taken = 0
        self.counting = 0  # of those taken, whose outcome is wanted
        self.attempt: Attempt | None = None
        self._earliest = 0.0
        self.timer: asyncio.Handle | None = None

    def add(self, seat: Seat) -> None:
        self._seats.append(seat)
        self.taken += 1
        self.counting += 1

    def left(self, seat: Seat) -> None:
        self.taken -= 1
        if not seat.interrupted:
            self.counting -= 1
        if not self.taken and self.timer is not None:  # whoever comes next waits from then on
            self._gathered(self)
        self.stop_for_nobody()

    def stop_for_nobody(self) -> None:
        """Stop what runs once no outcome of it is wanted."""
        if self.attempt is None or self.counting:
            return
        if self.taken:  # they end when it has
            self.attempt.interrupt()
        else:
            attempt, self.attempt = self.attempt, None
            attempt.drop()

    def begin(self) -> None:
        """Execute what has been gathered; a defect of the runtime fails the jobs, and says so."""
        seats = self._seats = [seat for seat in self._seats if seat.taken]
        if not seats:
            return
        worker, definition, first = self._worker, self.definition, seats[0]
        others = f" (and {len(seats) - 1} more)" if len(seats) > 1 else ""
        try:
            # Now: a thread that cannot be stopped may still ask when the seats are gone.
            self._earliest = min(seat.holder.scheduled() for seat in seats)
            self.attempt = Attempt(
                "task",
                definition.name,
                first.run_id + others,
                "",
                self._queue,
                max(seat.attempt for seat in seats),
                # Of all, so that the key of one set of jobs is never that of another.
                "\0".join(seat.seed for seat in seats),
                worker.app,
                definition.signature,
                [[seat.value for seat in seats]],
                {},
                definition,
                definition.timeout,
                worker.executors,
                worker.loop,
                self._over,
                self,
            )
            self.attempt.begin(worker.lanes, worker.context)
        except Exception as error:  # noqa: BLE001 - as the docstring says
            log.exception("batch_broke", name=definition.name)
            self._over(None, error)

    def reports(self) -> Shared:
        """What is said of all of its jobs."""
        return Shared([seat.holder.reports() for seat in self._seats if seat.taken])

    def scheduled(self) -> float:
        """When the first of its jobs was to start."""
        return self._earliest

    def _over(self, value: Any, error: BaseException | None) -> None:
        seats, self._seats, self.attempt = self._seats, [], None
        if error is None:
            try:
                results = results_of(self.definition, value, len(seats))
            except BatchMismatch as mismatch:
                error = mismatch
            else:
                for seat, result in zip(seats, results, strict=True):
                    _tell(seat, result)
                return
        for seat in seats:
            seat.over(None, error)


def _tell(seat: Seat, result: Any) -> None:
    if isinstance(result, BaseException):
        seat.over(None, result)
        result.__traceback__ = None  # it is stored by now, and holds the function's locals
    else:
        seat.over(result, None)


def results_of(definition: TaskDefinition, returned: Any, count: int) -> list[Any]:
    """Return what the function of a batch returned, one for each item.

    Raises BatchMismatch if it is anything else.
    """
    if returned is None:
        return [None] * count
    if _is_list(returned):
        if len(returned) == count:
            return returned
        what = f"{len(returned)} results"
    else:
        what = type(returned).__name__
    raise BatchMismatch(
        f"task {definition.name!r} got a batch of {count} and returned {what}: return a list with "
        "one result for each item, in their order (an exception in it fails that item alone), or "
        "None for all"
    )


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def of_one(definition: TaskDefinition, returned: Any) -> Any:
    """Return the result of the only item of a batch; raise it if it is an exception."""
    (result,) = results_of(definition, returned, 1)
    if isinstance(result, BaseException):
        raise result
    return result


class Batches:
    """What is being gathered on a worker: one batch of each task."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._gathering: dict[TaskDefinition, Batch] = {}

    def join(
        self,
        claimed: Claimed,
        definition: TaskDefinition,
        value: Any,
        ended: Ended,
        holder: Holder,
    ) -> Seat:
        """Take a job in; `ended` is called once it has its outcome, unless it was dropped."""
        # What killed workers gets a batch of its own, so that its neighbours are not blamed again.
        alone = claimed.crashes >= ALONE_FROM
        batch = None if alone else self._gathering.get(definition)
        if batch is None:
            batch = Batch(self._worker, definition, claimed.queue, self._gathered)
            loop = self._worker.loop
            if not alone:
                self._gathering[definition] = batch
            batch.timer = (
                loop.call_later(definition.linger, self._begin, batch)
                if definition.linger and not alone
                else loop.call_soon(self._begin, batch)  # when all that this claim brought is in
            )
        seat = Seat(batch, claimed, value, ended, holder)
        batch.add(seat)
        if batch.taken >= self._most(definition, claimed.queue):
            self._begin(batch)
        elif self._worker.full:  # nobody can join, so none of them may keep the others waiting
            self.begin_all()
        return seat

    def begin_all(self) -> None:
        """Wait for no more jobs."""
        for batch in list(self._gathering.values()):
            self._begin(batch)

    def _most(self, definition: TaskDefinition, queue: str) -> int:
        """Return how many jobs a batch has at most: what the worker has places for."""
        assert definition.batch is not None
        return min(definition.batch, self._worker.places_for(queue))

    def _begin(self, batch: Batch) -> None:
        if batch.timer is not None:
            self._gathered(batch)
            batch.begin()

    def _gathered(self, batch: Batch) -> None:
        """Let nobody join any more."""
        if self._gathering.get(batch.definition) is batch:
            del self._gathering[batch.definition]
        if batch.timer is not None:
            batch.timer.cancel()
            batch.timer = None

"""When one activation must look again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from stepwell_queue.clock import Clock, Timer
from stepwell_queue.contract import RecordKind
from stepwell_runtime.activation._work import RECORDED, WAITING

if TYPE_CHECKING:
    from stepwell_runtime.activation._activation import Activation
    from stepwell_runtime.core.execution import Execution


class Timers(msgspec.Struct, eq=False):
    """The earliest time at which an operation, or the run's deadline, wants attention.

    `deadline` None: there is none, or it has been told. `active`: there is, or has been, any time
    to look at. `earliest`: no operation is due before this.
    """

    _clock: Clock
    _wake: Callable[[], None]
    deadline: float | None
    active: bool
    earliest: float | None = None
    _timer: Timer | None = None
    _armed: float | None = None

    def note(self, due: float) -> None:
        self.active = True
        if self.earliest is None or due < self.earliest:
            self.earliest = due

    def recount(self, dues: Iterable[float | None]) -> None:
        """What was due first may have been cancelled since: nobody shall be woken for it."""
        if self.earliest is not None:
            self.earliest = min((due for due in dues if due is not None), default=None)

    @property
    def deadline_passed(self) -> bool:
        return self.deadline is not None and self.deadline <= self._clock.now()

    @property
    def next_due(self) -> float | None:
        if self.deadline is None or self.earliest is None:
            return self.earliest if self.deadline is None else self.deadline
        return min(self.earliest, self.deadline)

    def arm(self) -> None:
        due = self.next_due
        if due == self._armed:
            return
        self.disarm()
        if due is not None:
            self._armed = due
            self._timer = self._clock.call_at(due, self._fired)

    def disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._armed = None

    def _fired(self) -> None:
        self._timer = self._armed = None
        self._wake()


def fire_due(activation: Activation, execution: Execution) -> None:
    """Carry out what is due: the deadline of the run, sleeps and waits, next attempts of steps."""
    timers, journal = activation.timers, activation.journal
    due, now = timers.next_due, activation.worker.clock.now()
    if due is None or due > now:
        return
    if timers.deadline is not None and timers.deadline <= now:
        timers.deadline = None
        if execution.outcome is None:
            activation.never_hold = True
            journal.append((journal.record(RecordKind.CANCEL, "", "deadline"),))
    timers.earliest = None
    waiting = [
        (work.due, work)
        for work in activation.works.values()
        if work.stage is WAITING and work.due is not None
    ]
    if len(waiting) > 1:
        # the shorter of two sleeps ends first, however late it is
        waiting.sort(key=itemgetter(0))
    for due, work in waiting:
        if due > now:
            timers.note(due)
        elif work.op.kind == "step":
            activation.steps.queue(work)
        elif work.op.kind in ("sleep", "wait", "ask", "deadline"):
            work.stage = RECORDED
            record = journal.record(RecordKind.TIMER, work.op.path, work.op.name)
            journal.append((record,), closed=(work.op.path,) if work.row else ())

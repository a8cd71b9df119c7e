"""When one activation must look again."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stepwell_queue.clock import Clock, Timer


class Timers:
    """The earliest time at which an operation, or the run's deadline, wants attention.

    `active`: there is, or has been, any time to look at.
    """

    __slots__ = ("_armed", "_clock", "_timer", "_wake", "active", "deadline", "earliest")

    def __init__(self, clock: Clock, deadline: float | None, wake: Callable[[], None]) -> None:
        self._clock, self._wake = clock, wake
        self.deadline = deadline  # None: there is none, or it has been told
        self.active = deadline is not None
        self.earliest: float | None = None  # no operation is due before this
        self._timer: Timer | None = None
        self._armed: float | None = None

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
        self._timer = self._armed = None

    def _fired(self) -> None:
        self._timer = self._armed = None
        self._wake()

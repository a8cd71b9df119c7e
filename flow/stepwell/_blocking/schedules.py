"""Schedules, for code that blocks."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from stepwell._app.schedules import Schedule, ScheduleInfo, ScheduleTick
from stepwell._blocking.handles import BlockingRun
from stepwell._blocking.waiting import Work
from stepwell._calls import TaskCall, WorkflowCall
from stepwell._schedules import ScheduleMissed, ScheduleOverlap
from stepwell_runtime.definitions import Seconds

if TYPE_CHECKING:
    from stepwell._app.app import Stepwell
    from stepwell._blocking.calls import BlockingCalls

R = TypeVar("R")
T = TypeVar("T")


class BlockingSchedule(Generic[R]):
    """A schedule in a store, with methods that block."""

    __slots__ = ("_calls", "_result_type", "id")

    def __init__(self, calls: BlockingCalls, id: str, result_type: Any = Any) -> None:
        self._calls, self._result_type = calls, result_type
        self.id = id

    def __repr__(self) -> str:
        return f"BlockingSchedule({self.id!r})"

    def pause(self) -> None:
        """Have it tick no more until it is resumed. Raises ScheduleNotFound."""
        self._calls.do(lambda app: self._in(app).pause())

    def resume(self) -> None:
        """Have it tick again; see Schedule.resume. Raises ScheduleNotFound."""
        self._calls.do(lambda app: self._in(app).resume())

    def run_now(self) -> BlockingRun[R]:
        """Start a run of it; see Schedule.run_now. Raises ScheduleNotFound."""
        return BlockingRun(self._calls, self._calls.do(lambda app: self._in(app).run_now()))

    def delete(self) -> None:
        """Delete it with its history; its runs stay. One that is not there is none."""
        self._calls.do(lambda app: self._in(app).delete())

    def info(self) -> ScheduleInfo:
        """Return it as it stands. Raises ScheduleNotFound."""
        return self._calls.do(lambda app: self._in(app).info())

    def history(self, *, limit: int = 100) -> list[ScheduleTick]:
        """Return what became of its last ticks, the newest first. Raises ScheduleNotFound."""
        return self._calls.do(lambda app: self._in(app).history(limit=limit))

    def _in(self, app: Stepwell) -> Schedule[R]:
        # After a fork the app is another one than that which made this handle.
        return Schedule(app, self.id, self._result_type)


class BlockingSchedules:
    """What an app does with schedules, for code that blocks."""

    def do(self, work: Work[T]) -> T:
        raise NotImplementedError

    def schedule(
        self,
        id: str,
        call: TaskCall[R] | WorkflowCall[R],
        /,
        *,
        cron: str | None = None,
        tz: str | None = None,
        every: Seconds | None = None,
        at: datetime | None = None,
        overlap: ScheduleOverlap = "skip",
        missed: ScheduleMissed = "once",
        jitter: Seconds | None = None,
    ) -> BlockingSchedule[R]:
        """Have a call started at certain times; see Stepwell.schedule."""
        self.do(
            lambda app: app.schedule(
                id,
                call,
                cron=cron,
                tz=tz,
                every=every,
                at=at,
                overlap=overlap,
                missed=missed,
                jitter=jitter,
            )
        )
        return BlockingSchedule(cast("BlockingCalls", self), id, call.definition.result_type)

    def get_schedule(self, id: str, /) -> BlockingSchedule[Any]:
        """Return the handle of a schedule; does no I/O, so it does not say whether it exists."""
        return BlockingSchedule(cast("BlockingCalls", self), id)

    def schedules(self) -> list[ScheduleInfo]:
        """Return all schedules of the store, by id."""
        return self.do(lambda app: app.schedules())

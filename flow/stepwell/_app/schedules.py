"""Schedules as users hold and see them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

from stepwell import _options as check
from stepwell._app.handles import Run
from stepwell._app.views import RunStatus, moment
from stepwell._calls import TaskCall, WorkflowCall
from stepwell._schedules import (
    ScheduleMissed,
    ScheduleOverlap,
    declaration,
    missed_word,
    rule_of,
)
from stepwell_queue.clock import utc
from stepwell_queue.contract import Kind, Overlap, ScheduleRow, Status, TickRow
from stepwell_runtime.definitions import Definition, Seconds

if TYPE_CHECKING:
    from stepwell._app.app import Stepwell
    from stepwell_runtime.engine import Engine
    from stepwell_runtime.schedules.plans import Plan

R = TypeVar("R")
MOST_TICKS = 1000


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule, as it stands. Times are aware, in UTC; None = there is none."""

    id: str
    kind: Literal["workflow", "task"]
    name: str
    """Of the task or workflow that is started."""
    version: int
    queue: str
    when: str
    """When it ticks, in words."""
    overlap: ScheduleOverlap
    missed: ScheduleMissed
    jitter: float
    """Seconds."""
    module: str | None
    """The module whose code declares it; None = made at run time."""
    paused: bool
    next_at: datetime | None
    """The next tick; a paused schedule does not tick."""
    last_at: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ScheduleTick:
    """What became of one tick of a schedule, or of a run that somebody asked for."""

    tick_at: datetime
    at: datetime
    """When it was dealt with."""
    run_id: str | None
    """None = it was left out."""
    status: RunStatus | None
    """Of the run; None = there is none, or it has been deleted."""
    why: str
    """Why it was left out, or ticks before it."""
    manual: bool
    """It was no tick: it comes from `run_now()`."""


class Schedule(Generic[R]):
    """A schedule in a store."""

    __slots__ = ("_app", "_result_type", "id")

    def __init__(self, app: Stepwell, id: str, result_type: Any = Any) -> None:
        self._app, self._result_type = app, result_type
        self.id = id

    def __repr__(self) -> str:
        return f"Schedule({self.id!r})"

    async def pause(self) -> None:
        """Have it tick no more until it is resumed. Raises ScheduleNotFound."""
        await self._app.engine.schedules.pause(self.id)

    async def resume(self) -> None:
        """Have it tick again; the ticks of the pause are not made up for.

        Raises ScheduleNotFound.
        """
        await self._app.engine.schedules.resume(self.id)

    async def run_now(self) -> Run[R]:
        """Start a run of it, also while it is paused or another run goes on.

        The ticks stay as they are. Raises ScheduleNotFound.
        """
        started = await self._app.engine.schedules.run_now(self.id)
        return Run(self._app, started.id, self._result_type, started.created)

    async def delete(self) -> None:
        """Delete it with its history; its runs stay. One that is not there is none."""
        await self._app.engine.schedules.drop(self.id)

    async def info(self) -> ScheduleInfo:
        """Return it as it stands. Raises ScheduleNotFound."""
        schedules = self._app.engine.schedules
        row = await schedules.row(self.id)
        return schedule_info(row, await schedules.plan(row))

    async def history(self, *, limit: int = 100) -> list[ScheduleTick]:
        """Return what became of its last ticks, the newest first. Raises ScheduleNotFound."""
        check.whole(limit, "limit", 1, MOST_TICKS)
        rows = await self._app.engine.schedules.history(self.id, limit)
        return [schedule_tick(row) for row in rows]


class ScheduleMethods:
    """What an app does with schedules."""

    @property
    def engine(self) -> Engine:
        raise NotImplementedError

    async def schedule(
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
    ) -> Schedule[R]:
        """Have a call started at certain times; returns once that is durable.

        The options are those of the decorator `schedule`. If there is a schedule of this id, it is
        changed; if it is the same, nothing is. Raises RequestRefused if code declares that one.
        """
        given: Any = call
        if not isinstance(given, (TaskCall, WorkflowCall)):
            from stepwell._app.starts import refused

            raise TypeError(f"schedule() takes a task or workflow call, not {refused(given)}")
        call.hand_on()
        engine = self.engine
        rule = await asyncio.to_thread(rule_of, cron, tz, every, at)
        declared = declaration(id, call, rule, overlap, missed, jitter)
        definition: Definition = call.definition
        queue = call.options.declared or definition.declared
        if queue is not None:
            await engine.declarations.say(queue)
        await engine.schedules.put(declared, definition)
        return Schedule(cast("Stepwell", self), id, definition.result_type)

    def get_schedule(self, id: str, /) -> Schedule[Any]:
        """Return the handle of a schedule; does no I/O, so it does not say whether it exists."""
        if check.text(id, "id") is None:
            raise TypeError("get_schedule() takes the id of a schedule, not None")
        return Schedule(cast("Stepwell", self), id)

    async def schedules(self) -> list[ScheduleInfo]:
        """Return all schedules of the store, by id."""
        schedules = self.engine.schedules
        return [schedule_info(row, await schedules.plan(row)) for row in await schedules.rows()]


def schedule_info(row: ScheduleRow, plan: Plan) -> ScheduleInfo:
    run = plan.run
    return ScheduleInfo(
        id=row.id,
        kind=cast("Literal['workflow', 'task']", Kind(run.kind).name.lower()),
        name=run.name,
        version=run.version,
        queue=run.queue,
        when=str(plan.rule),
        overlap=cast("ScheduleOverlap", Overlap(row.overlap).name.lower()),
        missed=missed_word(plan.missed),
        jitter=plan.jitter,
        module=row.source or None,
        paused=row.paused,
        next_at=moment(row.next),
        last_at=moment(row.last),
        created_at=utc(row.created),
        updated_at=utc(row.updated),
    )


def schedule_tick(row: TickRow) -> ScheduleTick:
    status = None if row.status is None else Status(row.status).name.lower()
    return ScheduleTick(
        tick_at=utc(row.tick),
        at=utc(row.at),
        run_id=row.run_id,
        status=cast("RunStatus | None", status),
        why=row.why,
        manual=row.manual,
    )

"""What is done with schedules: make, pause, run, look at."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from stepwell_queue.clock import Ids
from stepwell_queue.contract import (
    DropSchedule,
    Identity,
    ListSchedules,
    PauseSchedule,
    PutSchedule,
    ResumeSchedule,
    RunSchedule,
    ScheduleHistory,
    ScheduleRow,
    Started,
    Store,
    TickRow,
    Verb,
)
from stepwell_queue.errors import RequestRefused, ScheduleNotFound, StepwellError
from stepwell_runtime.codec import Codec
from stepwell_runtime.definitions import DEFAULT_QUEUE, Definition
from stepwell_runtime.errors import DefinitionError
from stepwell_runtime.launch import Launcher
from stepwell_runtime.log import log
from stepwell_runtime.schedules.plans import Declaration, Plan, StandingClock, put_verb, read_plan
from stepwell_runtime.schedules.scheduler import Scheduler

R = TypeVar("R")
_PAGE = 1000


class Schedules:
    """The schedules of a store, and the schedulers of this process, which hear of changes."""

    def __init__(self, store: Store, codec: Codec, ids: Ids) -> None:
        self._store, self._ids = store, ids
        # Without a mark of the code: a deploy would be a change of each schedule.
        self._launcher = Launcher(codec, StandingClock(), ids, marks=False)
        self._clock = store.clock
        self._schedulers: list[Scheduler] = []

    # --- who starts the runs ---

    def scheduler(self, chance: random.Random) -> Scheduler:
        """Return a scheduler that has been started."""
        made = Scheduler(self._store, chance)
        self._schedulers.append(made)
        made.start()
        return made

    async def stop(self, scheduler: Scheduler) -> None:
        self._schedulers.remove(scheduler)
        await scheduler.stop()

    async def _changed(self, verb: Verb[R]) -> R:
        answer = await self._store.do(verb)
        for scheduler in self._schedulers:
            scheduler.poke()
        return answer

    # --- what is declared in code ---

    async def declare(
        self, definitions: Mapping[Identity, Definition], queues: Collection[str]
    ) -> None:
        """Make or change what the code declares for these queues, and report what it lost.

        Raises DefinitionError when two schedules have one id.
        """
        declared = _by_id(definitions.values())
        now = self._clock.now()
        await asyncio.gather(
            *(
                self._put_declared(
                    put_verb(one, definition, self._launcher, definition.module, now)
                )
                for one, definition in declared.values()
                if (one.options.queue or definition.queue or DEFAULT_QUEUE) in queues
            )
        )
        modules = {definition.module for definition in definitions.values()}
        for row in await self.rows():
            if row.source in modules and row.id not in declared:
                log.warning(
                    "schedule_not_in_code",
                    schedule=row.id,
                    module=row.source,
                    hint=f"it goes on; `stepwell schedules delete {row.id}` ends it",
                )

    async def _put_declared(self, verb: PutSchedule) -> None:
        try:
            await self._changed(verb)
        except RequestRefused as error:  # the worker serves all the same
            log.error("schedule_refused", schedule=verb.id, error=str(error))

    # --- one schedule ---

    async def put(self, declared: Declaration, definition: Definition) -> None:
        """Make or change a schedule at run time. Raises RequestRefused, SerializationError."""
        verb = put_verb(declared, definition, self._launcher, "", self._clock.now())
        await self._changed(verb)

    async def pause(self, id: str) -> None:
        """Have it tick no more. Raises ScheduleNotFound."""
        await self._changed(PauseSchedule(id))

    async def resume(self, id: str) -> None:
        """Have it tick again, from now on. Raises ScheduleNotFound."""
        plan = await self.plan(await self.row(id))
        await self._changed(ResumeSchedule(id, plan.rule.first(self._clock.now())))

    async def run_now(self, id: str) -> Started:
        """Start a run of it. Raises ScheduleNotFound."""
        plan = await self.plan(await self.row(id))
        run_id = f"schedule:{id}@{self._ids.run_id()}"
        run = plan.run_at(run_id, self._ids.nonce(), None, self._clock.now())
        return await self._changed(RunSchedule(id, run))

    async def drop(self, id: str) -> None:
        """Delete it; one that is not there is none."""
        await self._changed(DropSchedule(id))

    # --- reads ---

    async def row(self, id: str) -> ScheduleRow:
        """Return a schedule. Raises ScheduleNotFound."""
        for row in await self._store.read(ListSchedules(id)):
            return row
        raise ScheduleNotFound(id)

    async def rows(self) -> list[ScheduleRow]:
        """Return all schedules, by id."""
        found: list[ScheduleRow] = []
        while True:
            after = found[-1].id if found else ""
            page = await self._store.read(ListSchedules(after=after, limit=_PAGE))
            found += page
            if len(page) < _PAGE:
                return found

    async def history(self, id: str, limit: int) -> list[TickRow]:
        """Return what became of the last ticks, the newest first. Raises ScheduleNotFound."""
        await self.row(id)
        found: Sequence[TickRow] = await self._store.read(ScheduleHistory(id, limit))
        return list(found)

    async def plan(self, row: ScheduleRow) -> Plan:
        """Return what a schedule does. Raises StepwellError if this code cannot read it."""
        try:
            return await asyncio.to_thread(read_plan, row.plan)
        except StepwellError as error:
            raise StepwellError(f"schedule {row.id!r}: {error}") from error


def _by_id(definitions: Iterable[Definition]) -> dict[str, tuple[Declaration, Definition]]:
    found: dict[str, tuple[Declaration, Definition]] = {}
    for definition in definitions:
        for declared in definition.schedules:
            if declared.id in found:
                other = found[declared.id][1]
                raise DefinitionError(
                    f"two schedules are called {declared.id!r}: one of {other.name!r} "
                    f"({other.place}) and one of {definition.name!r} ({definition.place}); give "
                    "one of them another id=…"
                )
            found[declared.id] = declared, definition
    return found

"""Starts the runs of ticks that have come. Each worker has one, and the store hears the first."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Final

import anyio
from anyio import to_thread

from stepwell_queue.contract import FindDue, ScheduleRow, Store, Tick
from stepwell_queue.errors import StepwellError
from stepwell_runtime.log import log
from stepwell_runtime.schedules.plans import Plan, read_plan, tick_verbs

LOOK_EVERY: Final = 5.0
"""Seconds until it looks again by itself: other processes may have made schedules."""
_PLANS_KEPT: Final = 1000


class Scheduler:
    """Waits for the next tick of any schedule in the store, from `start` to `stop`."""

    def __init__(self, store: Store, chance: random.Random) -> None:
        self._store, self._clock, self._chance = store, store.clock, chance
        self._woken = asyncio.Event()
        self._plans: dict[tuple[str, bytes], Plan | None] = {}
        self._reading = anyio.CapacityLimiter(1)
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    def start(self) -> None:
        self._task = asyncio.create_task(self._serve(), name="stepwell scheduler")

    async def stop(self) -> None:
        """Stop; what it has said is done or not done, as a whole."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def poke(self) -> None:
        """Look again: a schedule has been made or changed here."""
        self._woken.set()

    async def _serve(self) -> None:
        while True:
            self._woken.clear()
            following: float | None = None
            try:
                following = await self.deal()
                self._failing = False
            except StepwellError as error:
                if not self._failing:  # said once, however long it lasts
                    log.warning("schedules_wait", error=str(error), hint="tried again every 5 s")
                self._failing = True
            await self._until(following)

    async def _until(self, following: float | None) -> None:
        timer = None if following is None else self._clock.call_at(following, self._woken.set)
        try:
            # on the loop's clock, which never jumps
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY):
                    await self._woken.wait()
        finally:
            if timer is not None:
                timer.cancel()

    async def deal(self) -> float | None:
        """Deal with all ticks that have come; return when the next one comes."""
        said: set[tuple[str, bytes, float | None]] = set()
        while True:
            now = self._clock.now()
            found = await self._store.read(FindDue(now))
            verbs: list[Tick] = []
            for row in found.due:
                address = row.id, row.digest, row.next
                plan = None if address in said else await self._plan(row)
                said.add(address)
                if plan is not None:
                    verbs += tick_verbs(row, plan, now, self._chance)
            if not verbs:
                return found.next
            await asyncio.gather(*(self._store.do(verb) for verb in verbs))

    async def _plan(self, row: ScheduleRow) -> Plan | None:
        """Return the plan of a schedule; None, and it is logged once, if it cannot be read here."""
        key = row.id, row.digest
        if key not in self._plans:
            if len(self._plans) >= _PLANS_KEPT:
                self._plans.clear()
            try:
                # a time zone is read from disk
                self._plans[key] = await to_thread.run_sync(
                    read_plan, row.plan, limiter=self._reading
                )
            except StepwellError as error:
                self._plans[key] = None
                log.error("schedule_unreadable", schedule=row.id, error=str(error))
        return self._plans[key]

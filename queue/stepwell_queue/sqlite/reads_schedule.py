"""What is read of schedules."""

from __future__ import annotations

from typing import Any, Final

from stepwell_queue.contract import (
    DueSchedules,
    FindDue,
    ListSchedules,
    ScheduleHistory,
    ScheduleRow,
    TickRow,
)
from stepwell_queue.sqlite.reads import Reads
from stepwell_queue.sqlite.statements import SQL

_MOST: Final = 1000


async def list_schedules(reads: Reads, query: ListSchedules) -> list[ScheduleRow]:
    if query.id is not None:
        return _rows(await reads.rows(SQL["one_schedule"], (query.id,)))
    return _rows(await reads.rows(SQL["list_schedules"], (query.after, _page(query.limit))))


async def find_due(reads: Reads, query: FindDue) -> DueSchedules:
    due = _rows(await reads.rows(SQL["due_schedules"], (query.now, _page(query.limit))))
    [(following,)] = await reads.rows(SQL["next_schedule"], (query.now,))
    return DueSchedules(due, following)


async def history(reads: Reads, query: ScheduleHistory) -> list[TickRow]:
    found = await reads.rows(SQL["ticks_of_schedule"], (query.id, _page(query.limit)))
    return [
        TickRow(tick, at, run_id, status, why, bool(manual))
        for tick, at, run_id, status, why, manual in found
    ]


def _rows(found: list[Any]) -> list[ScheduleRow]:
    return [
        ScheduleRow(id, digest, plan, overlap, source, created, updated, next_, last, bool(paused))
        for id, digest, plan, overlap, source, created, updated, next_, last, paused in found
    ]


def _page(limit: int) -> int:
    return max(min(limit, _MOST), 0)

"""Who answers which question."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec

from stepwell_queue.contract import (
    AnyQuery,
    CountRuns,
    FindDue,
    ListQueues,
    ListSchedules,
    Query,
    QueueRow,
    QueueSettings,
    RunCount,
    ScheduleHistory,
)
from stepwell_queue.sqlite import reads_schedule
from stepwell_queue.sqlite.reads import Reads
from stepwell_queue.sqlite.statements import SQL

R = TypeVar("R")

_settings: Final = msgspec.json.Decoder(QueueSettings).decode


async def _list_queues(reads: Reads, query: ListQueues) -> list[QueueRow]:
    return [
        QueueRow(
            queue, _settings(settings or "{}"), bool(paused), until, reason, running, ready, oldest
        )
        for queue, settings, paused, until, reason, running, ready, oldest in await reads.rows(
            SQL["list_queues"], (query.queue, query.queue)
        )
    ]


async def _count_runs(reads: Reads, query: CountRuns) -> list[RunCount]:
    return [RunCount(*row) for row in await reads.rows(SQL["count_runs"], (query.queue,))]


_HANDLERS: Final[dict[type[AnyQuery], Callable[[Reads, Any], Awaitable[Any]]]] = {
    ListQueues: _list_queues,
    CountRuns: _count_runs,
    ListSchedules: reads_schedule.list_schedules,
    ScheduleHistory: reads_schedule.history,
    FindDue: reads_schedule.find_due,
}


async def answer(reads: Reads, query: Query[R]) -> R:
    handler = _HANDLERS.get(type(query))
    if handler is None:
        raise TypeError(f"{type(query).__name__} is not a question of the store contract")
    found: R = await handler(reads, query)
    return found

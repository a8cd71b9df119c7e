"""Who answers which question."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec

from stepwell_queue.contract import (
    AnyQuery,
    CountEnds,
    CountRuns,
    EndCount,
    FindDue,
    FindPrunable,
    FindRunning,
    KeptSince,
    ListAnswers,
    ListDeadLetters,
    ListKept,
    ListPausedNames,
    ListQueues,
    ListSchedules,
    ListSettings,
    ListStreams,
    NamedSettings,
    PausedName,
    Query,
    QueueRow,
    QueueSettings,
    ReadAnswer,
    ReadAside,
    ReadEvents,
    ReadLog,
    ReadProgress,
    ReadState,
    ReadStream,
    ReadValues,
    RunCount,
    ScheduleHistory,
)
from stepwell_queue.sqlite import (
    reads_copy,
    reads_note,
    reads_report,
    reads_retention,
    reads_schedule,
)
from stepwell_queue.sqlite.reads import Reads
from stepwell_queue.sqlite.statements import SQL

R = TypeVar("R")

_MOST_FOUND: Final = 10_000
_settings: Final = msgspec.json.Decoder(QueueSettings).decode


async def _list_queues(reads: Reads, query: ListQueues) -> list[QueueRow]:
    return [
        QueueRow(queue, _settings(settings or "{}"), bool(paused), until, reason, running, ready)
        for queue, settings, paused, until, reason, running, ready in await reads.rows(
            SQL["list_queues"], (query.queue,)
        )
    ]


async def _count_runs(reads: Reads, query: CountRuns) -> list[RunCount]:
    return [RunCount(*row) for row in await reads.rows(SQL["count_runs"], (query.queue,))]


async def _count_ends(reads: Reads, query: CountEnds) -> list[EndCount]:
    return [
        EndCount(*row) for row in await reads.rows(SQL["count_ends"], (query.queue, query.since))
    ]


async def _find_running(reads: Reads, query: FindRunning) -> list[str]:
    return [
        id
        for (id,) in await reads.rows(
            SQL["find_running"], (query.queue, max(0, min(query.limit, _MOST_FOUND)))
        )
    ]


async def _list_paused_names(reads: Reads, query: ListPausedNames) -> list[PausedName]:
    return [PausedName(*row) for row in await reads.rows(SQL["paused_names"])]


async def _list_settings(reads: Reads, query: ListSettings) -> list[NamedSettings]:
    return [
        NamedSettings(queue, _settings(settings))
        for queue, settings in await reads.rows(SQL["list_settings"])
    ]


_HANDLERS: Final[dict[type[AnyQuery], Callable[[Reads, Any], Awaitable[Any]]]] = {
    ListQueues: _list_queues,
    CountRuns: _count_runs,
    CountEnds: _count_ends,
    FindRunning: _find_running,
    KeptSince: reads_retention.kept_since,
    FindPrunable: reads_retention.find_prunable,
    ListKept: reads_retention.list_kept,
    ListSettings: _list_settings,
    ListPausedNames: _list_paused_names,
    ListDeadLetters: reads_report.list_dead_letters,
    ReadProgress: reads_report.read_progress,
    ReadLog: reads_report.read_log,
    ListSchedules: reads_schedule.list_schedules,
    ScheduleHistory: reads_schedule.history,
    FindDue: reads_schedule.find_due,
    ReadState: reads_note.read_state,
    ReadValues: reads_note.read_values,
    ReadAnswer: reads_note.read_answer,
    ReadStream: reads_note.read_stream,
    ListStreams: reads_note.list_streams,
    ReadEvents: reads_note.read_events,
    ListAnswers: reads_copy.list_answers,
    ReadAside: reads_copy.read_aside,
}


async def answer(reads: Reads, query: Query[R]) -> R:
    handler = _HANDLERS.get(type(query))
    if handler is None:
        raise TypeError(f"{type(query).__name__} is not a question of the store contract")
    found: R = await handler(reads, query)
    return found

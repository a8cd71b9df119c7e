"""What is read of dead letters, and of what runs say of themselves."""

from __future__ import annotations

from typing import Any, Final

from stepwell_queue.contract import (
    DeadLetterRow,
    ListDeadLetters,
    LogRow,
    ProgressRow,
    ReadLog,
    ReadProgress,
)
from stepwell_queue.contract.reports import MOST_LINES
from stepwell_queue.errors import RunNotFound
from stepwell_queue.sqlite.reads import Reads
from stepwell_queue.sqlite.statements import SQL

_ROWS: Final = 100
_BYTES: Final = 8 * 1024 * 1024
_NEWEST: Final = (float("inf"), 0)


async def list_dead_letters(reads: Reads, query: ListDeadLetters) -> list[DeadLetterRow]:
    since: tuple[float, int] = _NEWEST
    if isinstance(query.after, str):
        found = await reads.rows(SQL["when_it_failed"], (query.after,))
        if not found:
            raise RunNotFound(query.after)
        since = found[0]
    elif query.after is not None:
        since = query.after
    limit = max(min(query.limit, _ROWS), 0)
    rows = await reads.rows(SQL["list_dead_letters"], (*since, query.queue, query.name, limit))
    page: list[DeadLetterRow] = []
    room = _BYTES
    for row in rows:
        letter = _dead_letter(row)
        room -= len(letter.error)
        if room < 0 and page:
            break
        page.append(letter)
    return page


def _dead_letter(row: Any) -> DeadLetterRow:
    run, id, name, version, queue, failed, attempts, crashes, parent_id, handled, error = row
    return DeadLetterRow(
        run, id, name, version, queue, failed, attempts, crashes, parent_id, bool(handled), error
    )


async def read_progress(reads: Reads, query: ReadProgress) -> ProgressRow | None:
    run = await _number(reads, query.id)
    rows = await reads.rows(SQL["progress_of"], (run, run))
    return ProgressRow(*rows[0]) if rows else None


async def read_log(reads: Reads, query: ReadLog) -> list[LogRow]:
    limit = max(min(query.limit, MOST_LINES), 0)
    run = await _number(reads, query.id)
    rows = await reads.rows(SQL["log_of"], (query.after, run, run, limit))
    return [LogRow(*row) for row in rows]


async def _number(reads: Reads, id: str) -> int:
    found = await reads.rows(SQL["run_numbered"], (id,))
    if not found:
        raise RunNotFound(id)
    number: int = found[0][0]
    return number

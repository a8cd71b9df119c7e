"""How far runs are, and what they log, as people see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from stepwell import _options as check
from stepwell_queue.clock import utc
from stepwell_queue.contract import LogRow, ReadLog, ReadProgress
from stepwell_queue.contract.reports import MOST_LINES

if TYPE_CHECKING:
    from stepwell_runtime.engine import Engine


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run was when it said so last."""

    fraction: float
    """From 0 to 1."""
    note: str
    at: datetime
    """Aware, in UTC."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that a task, or a step of a workflow, has logged."""

    number: int
    """What `logs(after=…)` takes; later lines have higher ones."""
    at: datetime
    """Aware, in UTC."""
    text: str
    fields: Mapping[str, Any]
    """As JSON shows them."""
    path: str
    """Where in the code of its workflow the step stands; empty for a task."""
    attempt: int


class ReportMethods:
    """What an app knows of runs that report."""

    @property
    def engine(self) -> Engine:
        raise NotImplementedError

    async def progress(self, id: str, /) -> Progress | None:
        """Return how far a run is, as it reported last; None = it has not. Raises RunNotFound.

        Of a workflow run, what any of its steps has said last.
        """
        row = await self.engine.store.read(ReadProgress(check.run_id(id)))
        return None if row is None else Progress(row.fraction, row.note, utc(row.at))

    async def logs(self, id: str, /, *, after: int = 0, limit: int = MOST_LINES) -> list[LogLine]:
        """Return lines that a run has logged, oldest first. Raises RunNotFound.

        `after`: only those with a higher number. At most `limit`, 1 to 1,000.
        """
        check.run_id(id)
        check.whole(after, "after", 0)
        check.whole(limit, "limit", 1, MOST_LINES)
        return [log_line(row) for row in await self.engine.store.read(ReadLog(id, after, limit))]


def log_line(row: LogRow) -> LogLine:
    fields: dict[str, Any] = msgspec.json.decode(row.fields) if row.fields else {}
    return LogLine(row.line, utc(row.at), row.text, fields, row.path, row.attempt)

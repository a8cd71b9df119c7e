"""What is read: on a connection of its own, one statement at a time, never across an await."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiosqlite
import msgspec

from stepwell_queue.contract import (
    AuditRow,
    FailedAttempt,
    History,
    Identity,
    InboxRow,
    OpenOp,
    Record,
    RunFilter,
    RunInfo,
    Status,
    WorkerInfo,
    WorkerState,
)
from stepwell_queue.errors import StoreUnavailable
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import Target

_COLUMNS: Final = SQL["info_columns"]
_INFO, _INFOS, _CHILDREN = (
    SQL[name].format(columns=_COLUMNS) for name in ("info", "infos", "children")
)
_WORDS: Final = {status.name.lower(): status for status in Status}
_MAX_PAGE: Final = 10_000


class WorkerRow(NamedTuple):
    """What tells whether a worker is alive."""

    worker: int
    token: str
    boot: str
    until: float
    key: str


def _worker_row(row: Any) -> WorkerRow:
    return WorkerRow(row[0], row[7], row[8], row[9], row[11])


class Reads:
    """One aiosqlite connection, opened on first use. Raises StoreUnavailable once it is closed."""

    def __init__(self, path: Path, alive: Callable[[WorkerRow], bool]) -> None:
        self._path, self._alive = path, alive
        self._db: aiosqlite.Connection | None = None
        self._closed = False

    async def rows(self, sql: str, parameters: Iterable[Any] = ()) -> list[Any]:
        db = self._db
        if db is None or self._closed:
            db = await self._open()
        return list(await db.execute_fetchall(sql, parameters))

    async def _open(self) -> aiosqlite.Connection:
        self._check_open()
        connecting = aiosqlite.connect(self._path, isolation_level=None, timeout=10.0)
        _die_with_program(connecting)
        db = await connecting
        if self._db is not None or self._closed:  # another reader was first, or it was closed
            await db.close()
            self._check_open()
            assert self._db is not None
            return self._db
        self._db = db
        await db.execute("PRAGMA query_only = ON")
        return db

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")

    async def close(self) -> None:
        self._closed = True
        if self._db is not None:
            await self._db.close()
            self._db = None

    async def info(self, id: str) -> RunInfo | None:
        found = await self._infos(await self.rows(_INFO, (id,)))
        return found[0] if found else None

    async def infos(self, runs: Iterable[int]) -> list[RunInfo]:
        return await self._infos(await self.rows(_INFOS, (json.dumps(list(runs)),)))

    async def _infos(self, rows: list[Any]) -> list[RunInfo]:
        if not rows:
            return []
        served = await self._served()
        infos: list[RunInfo] = []
        for row in rows:
            has_code = (row[5], row[2], row[3], row[4]) in served
            whole: list[Any] = [*row[:24], has_code, *row[24:]]
            infos.append(RunInfo(*whole))
        return infos

    async def _served(self) -> set[tuple[str, int, str, int]]:
        return {
            Target(queue, name.kind, name.name, name.version)
            for row in await self.rows(SQL["all_workers"])
            if self._alive(_worker_row(row))
            for queue in _strings(row[5])
            for name in _identities(row[6])
        }

    async def workers(self) -> list[WorkerInfo]:
        holding: dict[int, dict[str, int]] = {}
        for worker, name, count in await self.rows(SQL["all_held"]):
            holding.setdefault(worker, {})[name] = count
        return [
            WorkerInfo(
                row[0], row[1], row[2], row[3], row[4], _strings(row[5]),
                [name.name for name in _identities(row[6])], self._alive(_worker_row(row)),
                row[10], WorkerState(row[12]).name.lower(), holding.get(row[0], {}),
            )
            for row in await self.rows(SQL["all_workers"])
        ]  # fmt: skip

    async def history(self, id: str) -> History | None:
        run = await self.info(id)
        if run is None:
            return None
        key = (run.run,)
        return History(
            run,
            [Record(*row) for row in await self.rows(SQL["journal_of"], key)],
            [OpenOp(*row) for row in await self.rows(SQL["ops_of"], key)],
            [InboxRow(*row) for row in await self.rows(SQL["inbox"], key)],
            [AuditRow(*row) for row in await self.rows(SQL["audit_of"], key)],
            await self._infos(await self.rows(_CHILDREN, key)),
            [_failed(row) for row in reversed(await self.rows(SQL["failures_of"], key * 2))],
        )

    async def journal_page(self, run: int, seq: int, size: int) -> tuple[list[Record], bool]:
        rows = await self.rows(SQL["journal_page"], (run, seq, run, seq, _MAX_PAGE, max(size, 1)))
        if not rows:
            return [], False
        more = await self.rows(SQL["journal_after"], (run, rows[-1][0]))
        return [Record(*row) for row in rows], bool(more)

    async def inbox_page(self, run: int, after: int, size: int) -> tuple[list[InboxRow], bool]:
        key = (run, after, run, after, _MAX_PAGE, max(size, 1))
        rows = await self.rows(SQL["inbox_page"], key)
        if not rows:
            return [], False
        more = await self.rows(SQL["inbox_after"], (run, rows[-1][0]))
        return [InboxRow(*row) for row in rows], bool(more)

    async def list_runs(self, filter: RunFilter) -> list[RunInfo]:
        conditions, parameters = _conditions(filter)
        if filter.statuses is not None:
            allowed, values = await self._statuses(filter.statuses)
            conditions.append(allowed)
            parameters += values
        sql = SQL["listing"].format(columns=_COLUMNS, conditions=" AND ".join(conditions))
        return await self._infos(await self.rows(sql, [*parameters, filter.limit]))

    async def _statuses(self, words: Iterable[str]) -> tuple[str, list[Any]]:
        parts: list[str] = []
        parameters: list[Any] = []
        for word in words:
            if word == "rolling_back":
                parts.append("(phase = 1 AND status < 4)")
            elif word == "no_code":
                parts.append(
                    "(status < 4 AND json_array(queue, kind, name, version)"
                    " NOT IN (SELECT value FROM json_each(?)))"
                )
                served = [
                    json.dumps(target, separators=(",", ":")) for target in await self._served()
                ]
                parameters.append(json.dumps(served))
            elif word in _WORDS:
                status = _WORDS[word]
                hidden = " AND phase = 0" if status < Status.PAUSED else ""
                parts.append(f"(status = {int(status)}{hidden})")
            else:
                allowed = ", ".join([*_WORDS, "rolling_back", "no_code"])
                raise ValueError(f"unknown status {word!r}: use one of {allowed}")
        return "(" + (" OR ".join(parts) or "0") + ")", parameters


def _failed(row: Any) -> FailedAttempt:
    path, number, started, ended, worker, crashed, error = row
    return FailedAttempt(path, number, started, ended, worker, bool(crashed), error)


def _conditions(filter: RunFilter) -> tuple[list[str], list[Any]]:
    if not 0 < filter.limit <= _MAX_PAGE:
        raise ValueError(f"limit must be from 1 to {_MAX_PAGE}, got {filter.limit}")
    conditions = ["t.kind IN (SELECT value FROM json_each(?))"]
    parameters: list[Any] = [json.dumps([int(kind) for kind in filter.kinds])]
    for column, value in (
        ("name =", filter.name),
        ("queue =", filter.queue),
        ("parent_id =", filter.parent_id),
        ("(SELECT m.key FROM terms m WHERE m.run = r.run) =", filter.key),
        ("created >=", filter.created_after),
        ("created <", filter.created_before),
        ("ended >=", filter.ended_after),
        ("ended <", filter.ended_before),
        ("run <", filter.after),
    ):
        if value is not None:
            conditions.append(f"{column} ?")
            parameters.append(value)
    return conditions, parameters


def _die_with_program(connection: Any) -> None:
    """Let a program that could not close the store end all the same."""
    # Older versions of aiosqlite have no `_thread`: the connection is the thread itself.
    thread: threading.Thread = getattr(connection, "_thread", connection)
    thread.daemon = True


def _strings(text: str) -> list[str]:
    return msgspec.json.decode(text, type=list[str])


def _identities(text: str) -> list[Identity]:
    return msgspec.json.decode(text, type=list[Identity])

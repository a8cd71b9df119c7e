"""What is read for retention: which trees may go, and what is said of how long they are kept."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from stepwell_queue.contract import (
    EndedFilter,
    EndedTree,
    FindPrunable,
    KeptSince,
    ListKept,
    NamedKeep,
)
from stepwell_queue.sqlite.reads import Reads
from stepwell_queue.sqlite.statements import SQL

_MOST_FOUND: Final = 10_000
_EVER: Final = float("inf")
_named: Final = msgspec.json.Decoder(NamedKeep).decode


async def kept_since(reads: Reads, query: KeptSince) -> float | None:
    if query.keep <= 0:
        return _EVER
    statuses, chosen = _statuses(query.which, "r")
    sql = SQL["kept_since"].format(statuses=statuses)
    found = await reads.rows(sql, (*_which(query.which), *chosen, min(query.keep, 2**62) - 1))
    return found[0][0] if found else None


async def find_prunable(reads: Reads, query: FindPrunable) -> list[EndedTree]:
    limit = max(0, min(query.limit, _MOST_FOUND))
    statuses, chosen = _statuses(query.which, "o")
    sql = SQL["prunable"].format(statuses=statuses, must_stay=SQL["must_stay"])
    before = _EVER if query.before is None else query.before
    times = (query.since, before, *chosen, query.now)
    found: list[EndedTree] = []
    runs = 0
    for run, id, ended, tree in await reads.rows(sql, (*_which(query.which), *times, limit, limit)):
        size, fences = json.loads(tree)
        runs += size
        # a tree over the limit goes alone: leaving it would stop retention for ever
        if found and runs > limit:
            break
        found.append(EndedTree(run, id, ended, size, fences))
    return found


async def list_kept(reads: Reads, query: ListKept) -> list[NamedKeep]:
    return [_named(rule) for (rule,) in await reads.rows(SQL["list_kept"])]


def _which(which: EndedFilter) -> tuple[Any, ...]:
    but_queues, but_names = json.dumps(list(which.but_queues)), json.dumps(list(which.but_names))
    return which.queue, but_queues, which.name, but_names


def _statuses(which: EndedFilter, run: str) -> tuple[str, tuple[str, ...]]:
    """The condition, which costs a look at the row of each run, and what it is about."""
    if not which.statuses:
        return "", ()
    condition = f"AND {run}.status IN (SELECT value FROM json_each(?))"
    return condition, (json.dumps(list(which.statuses)),)

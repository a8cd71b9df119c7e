"""Inserting many runs on terms: so many with each statement as are new and need no second look."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from stepwell_queue.contract import NewRun, Started, Status
from stepwell_queue.errors import RunNotFound
from stepwell_queue.sqlite.gate import close
from stepwell_queue.sqlite.inserts import ARGS, row_of
from stepwell_queue.sqlite.lengths import ready_in
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.terms import (
    NO_TERMS,
    Columns,
    Need,
    Plan,
    announce,
    columns_of,
    depend,
    longest,
    needs_of,
    plan_of,
    said,
    standing,
)
from stepwell_queue.sqlite.tx import INLINE, Tx

SOME: Final = 50
"""Runs in one statement."""

_INSERT: Final = SQL["insert_some_with_terms"].format(
    rows=", ".join([f"({', '.join('?' * 15)})"] * SOME)
)
_TERMS_ROW: Final = "(?, ?, ?, ?, ?, ?, ?)"
_PUT: Final = SQL["insert_terms"].format(rows=_TERMS_ROW)
_PUT_SOME: Final = SQL["insert_terms"].format(rows=", ".join([_TERMS_ROW] * SOME))
_BLOB, _HELD, _LEAVE = SQL["put_blob"], SQL["hold_of_keys"], SQL["leave_keys"]
_REPLACED, _LAST = SQL["any_replaced"], SQL["last_run"]
_READY, _FAILED = int(Status.READY), int(Status.FAILED)


def start_some(tx: Tx, some: Sequence[NewRun]) -> list[Started] | None:
    """Insert SOME runs at once; None, and nothing is inserted, if one of them is to be looked at.

    That is one which is there already, fails at once, waits for one of the others, is too many for
    its queue, or has a unique key that is taken.
    """
    if len(some) < SOME:
        return None
    needs = _all_needs(tx, some)
    if needs is None:
        return None
    lengths: dict[str, int] = {}
    columns: list[Columns] = []
    plans: list[Plan] = []
    for new, waits_for in zip(some, needs, strict=True):
        plan = plan_of(tx, new, waits_for)
        if plan.status == _FAILED or not _fits(tx, new.queue, plan, lengths):
            return None
        plans.append(plan)
        columns.append(columns_of(tx, new, new.terms or NO_TERMS))
    keys = [one.unique for one in columns if one.unique is not None]
    if keys and not _take_keys(tx, some, keys):
        return None
    first = _insert(tx, some, columns, plans)
    if first is None:
        return None
    tx.lengths.update(lengths)
    depend(tx, [(run, need) for run, plan in enumerate(plans, first) for need in plan.needs])
    started: list[Started] = []
    for run, (new, own, plan) in enumerate(zip(some, columns, plans, strict=True), first):
        announce(tx, own.target, plan, None if new.terms is None else new.terms.expires)
        started.append(Started(run, new.id, True, plan.status))
    return started


def _all_needs(tx: Tx, some: Sequence[NewRun]) -> list[list[Need]] | None:
    """The runs that each waits for; None: one of them is not there yet."""
    ids = {id for new in some if new.terms is not None for id in new.terms.after}
    found = standing(tx, sorted(ids)) if ids else {}
    try:
        return [[] if new.terms is None else needs_of(new.terms, found) for new in some]
    except RunNotFound:
        return None


def _fits(tx: Tx, queue: str, plan: Plan, lengths: dict[str, int]) -> bool:
    """Whether the queue has room; `lengths`: how many are ready in queues that have an end."""
    limit = longest(tx, queue)
    if limit is None:
        return True
    ready = lengths[queue] if queue in lengths else ready_in(tx, queue, limit)
    lengths[queue] = ready + (plan.status == _READY)
    return ready < limit


def _take_keys(tx: Tx, some: Sequence[NewRun], keys: Sequence[str]) -> bool:
    """Make sure that nobody has these unique keys."""
    if len(set(keys)) < len(keys):
        return False
    calls = [said(new) for new in some if new.terms is not None and new.terms.replace]
    if calls and tx.one(_REPLACED, (json.dumps(calls),)) is not None:
        return False
    held = [hold for (hold,) in tx.execute(_HELD, (tx.now, json.dumps(keys))).fetchall()]
    if any(held):
        return False
    if held:  # by runs that have it no more
        tx.execute(_LEAVE, (json.dumps(keys),))
    return True


def _insert(
    tx: Tx, some: Sequence[NewRun], columns: Sequence[Columns], plans: Sequence[Plan]
) -> int | None:
    """Insert the rows, whose numbers are consecutive; answers the first, None if an id is taken."""
    values: list[object] = []
    for new, own, plan in zip(some, columns, plans, strict=True):
        id, target, _, *rest = row_of(new, own.target, tx.now)
        values += (id, target, own.priority, *rest)
        values += (plan.status, plan.due, new.due, new.deadline, own.lane, plan.waiting)
    try:
        tx.execute(_INSERT, values)
    except sqlite3.IntegrityError:
        return None
    first: int = tx.one(_LAST)[0] - len(some) + 1
    blobs = [(run, ARGS, new.args) for run, new in enumerate(some, first) if len(new.args) > INLINE]
    if blobs:
        tx.executemany(_BLOB, blobs)
    for target in {own.target for own in columns if own.special}:
        close(tx, target)
    rows = [
        (run, *own.terms)
        for run, own in enumerate(columns, first)
        if any(one is not None for one in own.terms)
    ]
    if len(rows) == SOME:
        tx.execute(_PUT_SOME, [value for row in rows for value in row])
    elif rows:
        tx.executemany(_PUT, rows)
    return first

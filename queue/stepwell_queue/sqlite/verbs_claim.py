"""Claiming: promotion of due rows, top-n seeks per served identity, and the batch prefetch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from stepwell_queue.contract import Claim, Claimed, ClaimResult, InboxRow, OpenOp, Record, Status
from stepwell_queue.errors import RequestRefused
from stepwell_queue.sqlite.leases import renew
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import SessionState, Tx

_PROMOTE, _NEXT_DUE, _ANY_ALONE = SQL["promote"], SQL["next_due"], SQL["any_alone"]
_JOURNALS, _OPS, _INBOXES = SQL["journals"], SQL["all_open_ops"], SQL["inboxes"]
_ANY_WAITING, _BLOB_OF, _WHERE = SQL["any_waiting"], SQL["blob"], SQL["where_held"]
_FOREVER = float("inf")
# places in the row of the statement `claim`
_RUN, _ID, _FENCE, _PRIORITY, _ARGS, _VALUE = 0, 1, 6, 10, 19, 20


def promote(tx: Tx) -> None:
    """Make ready what is due, and note when the next row will be."""
    for target in set(tx.execute(_PROMOTE, (tx.now, tx.now)).fetchall()):
        tx.made_ready(*target)
    due = tx.one(_NEXT_DUE)[0]
    tx.context.next_due = _FOREVER if due is None else due
    if due is not None:
        tx.made_due(due)


def claim(tx: Tx, verb: Claim) -> ClaimResult:
    session = tx.context.sessions.get(verb.worker)
    if session is None:
        raise RequestRefused(f"worker {verb.worker} is not registered: open a session first")
    if tx.now >= tx.context.next_due:
        promote(tx)
    if not session.seeks or verb.limit <= 0 or holds_alone(tx, session):
        return ClaimResult([], False, False)
    if session.until < tx.monotonic + tx.context.lease / 2:
        renew(tx, session)
    rows: list[Any] = []
    alone_waiting = False
    if tx.one(_ANY_ALONE) is not None:
        if verb.idle:
            rows = _take(tx, session, session.alone_sql, 1)
        else:
            alone_waiting = _alone_waits(tx, session)
    if rows:
        session.alone = rows[0][_RUN]
        return ClaimResult(_assemble(tx, session.worker, rows, verb.live), True, False)
    rows = _take(tx, session, session.claim_sql, verb.limit)
    more = len(rows) == verb.limit
    session.drained = not more
    return ClaimResult(_assemble(tx, session.worker, rows, verb.live), more, alone_waiting)


def holds_alone(tx: Tx, session: SessionState) -> bool:
    """Whether the worker has a run that is executed alone: it takes nothing beside it."""
    if session.alone is None:
        return False
    if tx.one(_WHERE, (session.alone,)) == (Status.RUNNING, session.worker):
        return True
    session.alone = None
    return False


def _take(tx: Tx, session: SessionState, sql: str, limit: int) -> list[Any]:
    now = tx.now
    parameters: list[Any] = [session.worker, now, now]
    for seek in session.seeks:
        parameters += seek
        parameters.append(limit)
    parameters.append(limit)
    rows = tx.execute(sql, parameters).fetchall()
    rows.sort(key=_order)
    return rows


def _order(row: Any) -> tuple[int, int]:
    return -row[_PRIORITY], row[_RUN]


def _alone_waits(tx: Tx, session: SessionState) -> bool:
    parameters: list[Any] = []
    for seek in session.seeks:
        parameters += seek
        parameters.append(1)
    return tx.execute(session.any_alone_sql, parameters).fetchone() is not None


def _assemble(tx: Tx, worker: int, rows: list[Any], live: Mapping[int, int]) -> list[Claimed]:
    if not rows:
        return []
    tx.effects.moves.extend([(row[_RUN], row[_ID], worker) for row in rows])
    again = [row[_RUN] for row in rows if row[_FENCE] > 1]
    kept = {run for run in again if run in live}
    kept = {row[_RUN] for row in rows if row[_RUN] in kept and live[row[_RUN]] + 1 == row[_FENCE]}
    replayed = [run for run in again if run not in kept] if kept else again
    journals: dict[int, list[Record]] = {}
    ops: dict[int, list[OpenOp]] = {}
    if replayed:
        key = (json.dumps(replayed),)
        for run, *record in tx.execute(_JOURNALS, key).fetchall():
            journals.setdefault(run, []).append(Record(*record))
        for run, *op in tx.execute(_OPS, key).fetchall():
            ops.setdefault(run, []).append(OpenOp(*op))
    inboxes = _inboxes(tx, rows)
    claimed: list[Claimed] = []
    for row in rows:
        run = row[_RUN]
        if row[_ARGS] is None or row[_VALUE] is None:
            row = _with_blobs(tx, row)
        if row[_FENCE] == 1:
            whole: list[Any] = [*row, False, (), (), inboxes.get(run, ())]
        else:
            known = run in kept
            whole = [*row, known, journals.get(run, ()), ops.get(run, ()), inboxes.get(run, ())]
        claimed.append(Claimed(*whole))
    return claimed


def _inboxes(tx: Tx, rows: list[Any]) -> dict[int, list[InboxRow]]:
    inboxes: dict[int, list[InboxRow]] = {}
    if tx.one(_ANY_WAITING) is not None:
        key = (json.dumps([row[_RUN] for row in rows]),)
        for row in tx.execute(_INBOXES, key).fetchall():
            inboxes.setdefault(row[1], []).append(InboxRow(*row))
    return inboxes


def _with_blobs(tx: Tx, row: Any) -> Any:
    whole = list(row)
    for place, role in ((_ARGS, 0), (_VALUE, 1)):
        if whole[place] is None:
            whole[place] = tx.one(_BLOB_OF, (row[_RUN], role))[0]
    return whole

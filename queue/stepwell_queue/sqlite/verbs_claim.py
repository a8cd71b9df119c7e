"""Claiming: promotion of due rows, top-n seeks per served identity, and the batch prefetch."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from operator import itemgetter
from typing import Any

from stepwell_queue.contract import Claim, Claimed, ClaimResult, InboxRow, OpenOp, Record, Status
from stepwell_queue.errors import RequestRefused
from stepwell_queue.sqlite.ageing import go_on
from stepwell_queue.sqlite.expiry import any_expired, expire, started
from stepwell_queue.sqlite.gate import Passage, passage, refresh
from stepwell_queue.sqlite.leases import renew
from stepwell_queue.sqlite.lengths import left_ready
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import SessionState, Tx

_PROMOTE, _NEXT_DUE, _ANY_ALONE = SQL["promote"], SQL["next_due"], SQL["any_alone"]
_JOURNALS, _OPS, _INBOXES = SQL["journals"], SQL["all_open_ops"], SQL["inboxes"]
_ANY_WAITING, _BLOB_OF, _WHERE = SQL["any_waiting"], SQL["blob"], SQL["where_held"]
_REST = SQL["claimed_before"]
_FOREVER = float("inf")
_FEW, _MANY = 10, 1000
# places in the row of the statement `claim`
_RUN, _ID, _TARGET, _FENCE, _PRIORITY, _PARENT = 0, 1, 2, 3, 4, 9
_priority = itemgetter(_PRIORITY)
_RUNNING = int(Status.RUNNING)


def promote(tx: Tx) -> None:
    """Make ready what is due, end what has expired, and note when the next row will be."""
    for (target,) in set(tx.execute(_PROMOTE, (tx.now, tx.now)).fetchall()):
        tx.made_ready(target)
    context = tx.context
    if tx.now >= context.opens_at:
        context.opens_at = _FOREVER
        for target in context.closed:
            tx.wake(target)
    due = tx.one(_NEXT_DUE)[0]
    context.next_due = min(_FOREVER if due is None else due, expire(tx))
    if due is not None:
        tx.made_due(due)
    if context.opens_at != _FOREVER:
        tx.made_due(context.opens_at)
    if context.gates_stale:
        refresh(tx)
    go_on(tx)


def claim(tx: Tx, verb: Claim) -> ClaimResult:
    session = tx.context.sessions.get(verb.worker)
    if session is None:
        raise RequestRefused(f"worker {verb.worker} is not registered: open a session first")
    context = tx.context
    gates = passage(tx, session)
    if tx.now >= context.next_due or (gates is not None and not context.alone and any_expired(tx)):
        promote(tx)
    if context.next_expiry <= tx.now:
        return ClaimResult([], True, False)  # there are so many that the next one goes on with it
    if not session.targets or verb.limit <= 0 or holds_alone(tx, session):
        return ClaimResult([], False, False)
    if session.until < tx.monotonic + tx.context.lease / 2:
        renew(tx, session)
    rows: list[Any] = []
    alone_waiting = False
    if tx.one(_ANY_ALONE) is not None:
        alone = _alone(tx, session, gates)
        if verb.idle and alone is not None:
            chosen = json.dumps([alone])
            rows = _take(tx, session, session.gated_sql, 1, session.targets, chosen, 1)
        alone_waiting = alone is not None
    if rows:
        session.alone = rows[0][_RUN]
        if gates is not None:
            gates.claimed([(row[_RUN], row[_TARGET]) for row in rows])
        return ClaimResult(_assemble(tx, session, rows, verb.live), True, False)
    if gates is None:
        rows = _take(tx, session, session.claim_sql, verb.limit, ())
    else:
        chosen = json.dumps(gates.candidates(verb.limit))
        rows = _take(tx, session, session.gated_sql, verb.limit, gates.targets, chosen, verb.limit)
        gates.claimed([(row[_RUN], row[_TARGET]) for row in rows])
    more = len(rows) == verb.limit
    session.drained = not more
    return ClaimResult(_assemble(tx, session, rows, verb.live), more, alone_waiting)


def holds_alone(tx: Tx, session: SessionState) -> bool:
    """Whether the worker has a run that is executed alone: it takes nothing beside it."""
    if session.alone is None:
        return False
    if (tx.one(_WHERE, (session.alone,)) or ())[:2] == (_RUNNING, session.worker):
        return True
    session.alone = None
    return False


def _take(
    tx: Tx, session: SessionState, sql: str, limit: int, beside: Collection[int], *chosen: str | int
) -> list[Any]:
    """Claim from all targets but those `beside`, and what was chosen of these."""
    now = tx.now
    parameters: list[Any] = [session.worker, now, now]
    parameters += _seeks(session, limit, beside)
    parameters += (*chosen, limit)
    rows = tx.execute(sql, parameters).fetchall()
    if tx.lengths:
        left_ready(tx, [session.targets[row[_TARGET]].queue for row in rows])
    if rows and tx.context.next_expiry != _FOREVER:
        started(tx, [row[_RUN] for row in rows])
    rows.sort()  # by run
    rows.sort(key=_priority, reverse=True)
    return rows


def _seeks(session: SessionState, limit: int, beside: Collection[int]) -> list[Any]:
    parameters: list[Any] = []
    for target in session.targets:
        parameters += (None if beside and target in beside else target, limit)
    return parameters


def _alone(tx: Tx, session: SessionState, gates: Passage | None) -> tuple[int, int, int] | None:
    """The first run with >= 2 crashes that may be claimed, as `candidates` says it."""
    shut = gates.shut() if gates is not None else ()
    few, seen = _FEW, 0
    while True:  # keys with no room may have the first of them, so that one looks further
        rows = tx.execute(session.alone_sql, _seeks(session, few, shut)).fetchall()
        rows.sort(key=_by_rank)
        for priority, run in rows:
            if gates is None or gates.admits(run, tx.one(_WHERE, (run,))[3]):
                return priority, run, run
        if len(rows) in (seen, 0) or few >= _MANY:
            return None
        few, seen = few * 10, len(rows)


def _by_rank(row: tuple[int, int]) -> tuple[int, int]:
    return (-row[0], row[1])


def _assemble(
    tx: Tx, session: SessionState, rows: list[Any], live: Mapping[int, int]
) -> list[Claimed]:
    if not rows:
        return []
    worker = session.worker
    tx.effects.moves += [(row[_RUN], row[_ID], worker) for row in rows]
    inboxes = _inboxes(tx, rows)
    # whose coroutines the worker has kept: of these it needs to hear only what is new
    kept = {row[_RUN] for row in rows if live.get(row[_RUN], -1) + 1 == row[_FENCE]} if live else ()
    known = [
        row
        for row in rows
        if (row[_FENCE] > 1 or row[_PARENT] is not None) and row[_RUN] not in kept
    ]
    before = _Before(tx, known) if known else None
    claimed: list[Claimed] = []
    for row in rows:
        (run, id, target, fence, priority, nonce, created, scheduled, deadline, parent, args,
         options) = row  # fmt: skip
        if run in kept:
            args = b""
        elif args is None:
            args = tx.one(_BLOB_OF, (run, 0))[0]
        queue, kind, name, version = session.targets[target]
        inbox = inboxes.get(run, ()) if inboxes else ()
        if before is None or run not in before.rest:
            one = Claimed(
                run, id, kind, name, version, queue, fence, 0, 0, 0, priority, nonce, 0, created,
                scheduled, deadline, None, None, None, args, b"",
                options, run in kept, (), (), inbox,
            )  # fmt: skip
        else:
            attempts, crashes, phase, generation, parent_id, path, value = before.rest[run]
            one = Claimed(
                run, id, kind, name, version, queue, fence, attempts, crashes, phase, priority,
                nonce, generation, created, scheduled, deadline, parent, parent_id, path, args,
                value, options, False, before.journals.get(run, ()), before.ops.get(run, ()), inbox,
            )  # fmt: skip
        claimed.append(one)
    return claimed


class _Before:
    """What there is of runs that were claimed before, or are children: most have none of it."""

    def __init__(self, tx: Tx, rows: list[Any]) -> None:
        runs = [row[_RUN] for row in rows]
        self.rest = {run: rest for run, *rest in tx.execute(_REST, (json.dumps(runs),)).fetchall()}
        self.journals: dict[int, list[Record]] = {}
        self.ops: dict[int, list[OpenOp]] = {}
        again = [row[_RUN] for row in rows if row[_FENCE] > 1]
        if again:
            key = (json.dumps(again),)
            for run, *record in tx.execute(_JOURNALS, key).fetchall():
                self.journals.setdefault(run, []).append(Record(*record))
            for run, *op in tx.execute(_OPS, key).fetchall():
                self.ops.setdefault(run, []).append(OpenOp(*op))


def _inboxes(tx: Tx, rows: list[Any]) -> dict[int, list[InboxRow]]:
    inboxes: dict[int, list[InboxRow]] = {}
    if tx.one(_ANY_WAITING) is not None:
        key = (json.dumps([row[_RUN] for row in rows]),)
        for row in tx.execute(_INBOXES, key).fetchall():
            inboxes.setdefault(row[1], []).append(InboxRow(*row))
    return inboxes

"""Telling a run something: the inbox row, the wake-up, and whom to inform after COMMIT."""

from __future__ import annotations

from stepwell_queue.contract import Ended, InboxKind, InboxRow, Phase, Status
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import Tx

_TELL, _WAKE, _WAKE_DELAYED = SQL["tell"], SQL["wake"], SQL["wake_delayed"]
_WHERE, _ADDRESS, _JOBS = SQL["where_held"], SQL["address"], SQL["unended_jobs"]
_CANCEL, _CHILD_OF, _STANDING = SQL["cancel_unclaimed"], SQL["child_of"], SQL["parent_of"]
_READY = SQL["make_ready"]
_RUNNING, _CANCELS = int(Status.RUNNING), int(InboxKind.CANCEL)


def tell(
    tx: Tx,
    run: int,
    kind: int,
    uid: str,
    name: str,
    path: str,
    status: int,
    value: bytes,
    at: float,
) -> None:
    """Put a row into the inbox, once per uid, and wake the run if it waits."""
    tx.execute(_TELL, (run, int(kind), uid, name, path, int(status), bytearray(value), at))
    if tx.cursor.rowcount == 0:
        return
    row = InboxRow(tx.cursor.lastrowid or 0, run, kind, uid, name, path, status, value, at)
    woken = tx.execute(_WAKE, (tx.now, run)).fetchall()
    if not woken and kind == _CANCELS:
        # a task that waits for its next attempt is cancelled now, not then
        woken = tx.execute(_WAKE_DELAYED, (tx.now, run)).fetchall()
    if woken:
        tx.made_ready(woken[0][0])
        return
    status_now, worker = tx.one(_WHERE, (run,))
    if status_now == _RUNNING:
        tx.effects.told.append((worker, row))


def child_ended(tx: Tx, child: int, parent: int, status: int, value: bytes, at: float) -> None:
    row = tx.one(_CHILD_OF, (child, parent))
    if row is not None:
        id, path = row
        tell(tx, parent, InboxKind.CHILD_ENDED, id, id, path, status, value, at)


def cancel(tx: Tx, run: int, uid: str, reason: bytes, at: float) -> int:
    """End at once what was never claimed, else tell it; answers the status afterwards."""
    status, fence, parent = tx.one(_STANDING, (run,))
    if status >= Status.COMPLETED:
        return int(status)
    if fence == 0:
        tx.execute(_CANCEL, (reason, at, tx.now, run))
        if tx.cursor.rowcount == 1:
            tx.effects.rested.append(Ended(run, Status.CANCELLED, reason))
            if parent is not None:
                child_ended(tx, run, parent, Status.CANCELLED, reason, at)
            return int(Status.CANCELLED)
    tell(tx, run, InboxKind.CANCEL, uid, "cancel", "", 0, reason, at)
    if status == Status.HELD:
        release_held(tx, run)
    return int(tx.one(_WHERE, (run,))[0])


def release_held(tx: Tx, run: int) -> None:
    """Let a held run go on: a cancel decides what its operator has not decided."""
    row = (tx.now, 0, int(Phase.FORWARD), run, int(Status.HELD))
    for (target,) in tx.execute(_READY, row).fetchall():
        tx.made_ready(target)


def cancel_child(tx: Tx, parent: int, id: str) -> None:
    found = tx.one(_ADDRESS, (id,))
    if found is not None and found[5] == parent:
        cancel(tx, found[0], f"parent-{parent}", b"", tx.now)


def cancel_jobs_of(tx: Tx, parent: int) -> None:
    """Withdraw the node jobs of a run that has ended: nobody waits for them any more."""
    for (run,) in tx.execute(_JOBS, (parent,)).fetchall():
        cancel(tx, run, f"parent-{parent}", b"", tx.now)

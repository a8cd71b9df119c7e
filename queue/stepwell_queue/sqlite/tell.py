"""Telling a run something: the inbox row, the wake-up, and whom to inform after COMMIT."""

from __future__ import annotations

from stepwell_queue.contract import Ended, InboxKind, InboxRow, Phase, Status
from stepwell_queue.sqlite.dependents import give_up, release
from stepwell_queue.sqlite.pauses import drop_pause, end_pause
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import Tx

_TELL, _WAKE = SQL["tell"], SQL["wake"]
_WHERE, _ADDRESS, _JOBS = SQL["where_held"], SQL["address"], SQL["unended_jobs"]
_CANCEL, _CHILD_OF, _STANDING = SQL["cancel_unclaimed"], SQL["child_of"], SQL["parent_of"]
_READY = SQL["make_ready"]
_SCHEDULED, _RUNNING, _PARKED = int(Status.SCHEDULED), int(Status.RUNNING), int(Status.PARKED)
_PAUSED = int(Status.PAUSED)
_MAY_BE_TO_PAUSE = (_RUNNING, _PAUSED, int(Status.HELD), int(Status.STUCK))
_CANCELS = int(InboxKind.CANCEL)


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
) -> bool:
    """Put a row into the inbox and wake the run if it waits; False if its uid was told before."""
    tx.execute(_TELL, (run, int(kind), uid, name, path, int(status), bytearray(value), at))
    if tx.cursor.rowcount == 0:
        return False
    number = tx.cursor.lastrowid or 0
    stands, worker, fence, target = tx.one(_WHERE, (run,))
    # a task that waits for its next attempt is cancelled now, not then
    if stands == _PARKED or (stands == _SCHEDULED and fence > 0 and kind == _CANCELS):
        tx.execute(_WAKE, (tx.now, run))
        tx.made_ready(target)
    elif stands == _RUNNING:
        row = InboxRow(number, run, kind, uid, name, path, status, value, at)
        tx.effects.told.append((worker, row))
    return True


def child_ended(tx: Tx, child: int, parent: int, status: int, value: bytes, at: float) -> None:
    row = tx.one(_CHILD_OF, (child, parent))
    if row is not None:
        id, path = row
        tell(tx, parent, InboxKind.CHILD_ENDED, id, id, path, status, value, at)


def cancel(tx: Tx, run: int, uid: str, reason: bytes, at: float) -> int:
    """End at once what was never claimed, else tell it; answers the status afterwards."""
    status, fence, parent, awaited = tx.one(_STANDING, (run,))
    if status >= Status.COMPLETED:
        return int(status)
    if fence == 0:
        tx.execute(_CANCEL, (reason, at, tx.now, run))
        if tx.cursor.rowcount == 1:
            tx.lengths.clear()
            tx.effects.rested.append(Ended(run, Status.CANCELLED, reason))
            if status in (_SCHEDULED, _PAUSED):
                give_up(tx, run)
            if status == _PAUSED:
                drop_pause(tx, run)
            if awaited:
                release(tx, run, Status.CANCELLED)
            if parent is not None:
                child_ended(tx, run, parent, Status.CANCELLED, reason, at)
            return int(Status.CANCELLED)
    if status in _MAY_BE_TO_PAUSE:
        end_pause(tx, run)
    told = tell(tx, run, InboxKind.CANCEL, uid, "cancel", "", 0, reason, at)
    if told and status == Status.HELD:
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

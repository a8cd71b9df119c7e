"""Runs that were not started in time end, and never run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from stepwell_queue.contract import Ended, Status
from stepwell_queue.sqlite.dependents import give_up, go_on, release
from stepwell_queue.sqlite.pauses import drop_pause
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tell import child_ended
from stepwell_queue.sqlite.tx import Tx

_EXPIRED_RUNS, _EXPIRE, _NEXT = SQL["expired"], SQL["expire"], SQL["next_expiry"]
_NO_MORE, _ANY = SQL["expires_no_more"], SQL["any_expired"]
_EXPIRED, _COMPLETED = int(Status.EXPIRED), int(Status.COMPLETED)
_SCHEDULED: Final = int(Status.SCHEDULED)
_PAUSED: Final = int(Status.PAUSED)
_AT_ONCE: Final = 1000
_NEVER: Final = float("inf")


def expire(tx: Tx) -> float:
    """End runs whose time to be started is over; answers when the next one's is, or infinity.

    Where that has passed already there is more to be done than one transaction should do: also of
    what follows of other ends.
    """
    rows = tx.execute(_EXPIRED_RUNS, (tx.now, _AT_ONCE)).fetchall()
    if rows:
        started(tx, [row[0] for row in rows])
    for run, parent, status, fence in rows:
        if fence == 0 and status < _COMPLETED:
            _end(tx, run, parent, status)
    first = tx.now if go_on(tx) else tx.one(_NEXT)[0]
    tx.context.next_expiry = _NEVER if first is None else first
    if first is not None:
        tx.made_expiring(first)
    return tx.context.next_expiry


def _end(tx: Tx, run: int, parent: int | None, status: int) -> None:
    tx.execute(_EXPIRE, (tx.now, tx.now, run))
    tx.lengths.clear()
    tx.effects.rested.append(Ended(run, _EXPIRED, b""))
    if status in (_SCHEDULED, _PAUSED):
        give_up(tx, run)
    if status == _PAUSED:
        drop_pause(tx, run)
    if parent is not None:
        child_ended(tx, run, parent, _EXPIRED, b"", tx.now)
    release(tx, run, _EXPIRED)


def started(tx: Tx, runs: Sequence[int]) -> None:
    """These runs do not expire any more."""
    tx.execute(_NO_MORE, (json.dumps(runs),))


def any_expired(tx: Tx) -> bool:
    """Whether there may be such runs, of which another process has not told."""
    return tx.one(_ANY, (tx.now,)) is not None

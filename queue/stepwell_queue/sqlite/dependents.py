"""Runs that wait for the ends of others: they are let go, or fail, when the ends come."""

from __future__ import annotations

from typing import Final

from stepwell_queue.contract import Ended, Status
from stepwell_queue.sqlite.inserts import VALUE
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import INLINE, Tx

_DEPENDENTS, _DROP, _DROP_ALL = (
    SQL["dependents"], SQL["drop_dependency"], SQL["drop_dependencies"],
)  # fmt: skip
_ANY, _LET_START, _FAIL, _BLOB = (
    SQL["any_dependency"], SQL["let_start"], SQL["fail_waiting"], SQL["put_blob"],
)  # fmt: skip
_COMPLETED: Final = int(Status.COMPLETED)
_FAILED: Final = int(Status.FAILED)


def release(tx: Tx, run: int, status: int) -> None:
    """Tell those that wait for the end of a run how it ended; some of them may end by that."""
    ended = [(run, status)]
    while ended:  # no recursion: a chain may be as long as it likes
        needed, how = ended.pop()
        for dependent, anyhow, failure in tx.execute(_DEPENDENTS, (needed,)).fetchall():
            if how == _COMPLETED or anyhow:
                tx.execute(_DROP, (dependent, needed))
                if tx.one(_ANY, (dependent,)) is None:
                    _let_start(tx, dependent)
            else:
                fail(tx, dependent, failure)
                ended.append((dependent, _FAILED))


def give_up(tx: Tx, run: int) -> None:
    """A run that waits has ended otherwise: it waits for nothing any more."""
    tx.execute(_DROP_ALL, (run,))


def _let_start(tx: Tx, run: int) -> None:
    for target, due in tx.execute(_LET_START, (tx.now, tx.now, tx.now, run)).fetchall():
        if due is None:
            tx.made_ready(target)
        else:
            tx.made_due(due)


def fail(tx: Tx, run: int, failure: bytes) -> None:
    """End a run by what it waits for; those that wait for its own end are to be told."""
    large = len(failure) > INLINE
    tx.execute(_FAIL, (None if large else failure, tx.now, tx.now, run))
    if tx.cursor.rowcount == 1:
        if large:
            tx.execute(_BLOB, (run, VALUE, failure))
        tx.effects.rested.append(Ended(run, _FAILED, failure))
    give_up(tx, run)

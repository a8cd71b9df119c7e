"""Runs that wait for the ends of others: they are let go, or fail, when the ends come."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from stepwell_queue.contract import Ended, Status
from stepwell_queue.sqlite.inserts import VALUE
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import INLINE, Tx

_DEPENDENTS, _DROP, _DROP_ALL = (
    SQL["dependents"], SQL["drop_some_dependencies"], SQL["drop_dependencies"],
)  # fmt: skip
_LET_START, _FAIL, _FAIL_SOME, _BLOB = (
    SQL["let_some_start"], SQL["fail_waiting"], SQL["fail_some_waiting"], SQL["put_blob"],
)  # fmt: skip
_DROP_ALL_OF, _AWAITED, _UNTOLD = (
    SQL["drop_dependencies_of"], SQL["which_are_awaited"], SQL["untold_ends"],
)  # fmt: skip
_PUT_UNTOLD, _DROP_UNTOLD = SQL["put_untold_end"], SQL["drop_untold_end"]
_IS_UNTOLD: Final = SQL["end_is_untold"]
_DROP_PAUSE, _DROP_PAUSES = SQL["drop_pause"], SQL["drop_pauses"]
_COMPLETED: Final = int(Status.COMPLETED)
_FAILED: Final = int(Status.FAILED)
AT_ONCE: Final = 5000
"""Runs in one transaction, which for so long keeps others from writing."""


def release(tx: Tx, run: int, status: int) -> None:
    """Tell those that wait for the end of a run how it ended; some of them may end by that.

    Where there are very many, the rest is told in the transactions that follow.
    """
    ended, room = [(run, status)], AT_ONCE
    while ended and room > 0:  # no recursion: a chain may be as long as it likes
        needed, how = ended.pop()
        rows = tx.execute(_DEPENDENTS, (needed, room)).fetchall()
        if len(rows) == room:
            ended.append((needed, how))
        room -= len(rows)
        good = how == _COMPLETED
        _let_start(tx, needed, [one for one, anyhow, _ in rows if good or anyhow])
        if not good:
            failures = {one: failure for one, anyhow, failure in rows if not anyhow}
            ended += [(one, _FAILED) for one in _fail_some(tx, needed, failures)]
    if ended:
        tx.executemany(_PUT_UNTOLD, ended)
        tx.made_expiring(tx.now)


def go_on(tx: Tx) -> bool:
    """Tell of an end what has not been told yet; answers whether anything is left."""
    untold = tx.one(_UNTOLD)
    if untold is None:
        return False
    tx.execute(_DROP_UNTOLD, (untold[0],))
    release(tx, *untold)
    return tx.one(_UNTOLD) is not None


def is_untold(tx: Tx, run: int) -> bool:
    """Whether not all have been told yet how a run ended."""
    return tx.one(_IS_UNTOLD, (run,)) is not None


def give_up(tx: Tx, run: int) -> None:
    """A run that waits has ended otherwise: it waits for nothing any more."""
    tx.execute(_DROP_ALL, (run,))


def _let_start(tx: Tx, needed: int, runs: Sequence[int]) -> None:
    """Let those of these runs start that wait for nothing else."""
    if runs:
        which = json.dumps(runs)
        tx.execute(_DROP, (needed, which))
        for target, due in tx.execute(_LET_START, (tx.now, tx.now, tx.now, which)).fetchall():
            if due is None:
                tx.made_ready(target)
            else:
                tx.made_due(due)


def _fail_some(tx: Tx, needed: int, failures: Mapping[int, bytes]) -> list[int]:
    """End runs by what they wait for; answers those whose own ends are waited for."""
    if not failures:
        return []
    which = json.dumps(list(failures))
    failed = tx.execute(_FAIL_SOME, (INLINE, needed, tx.now, tx.now, which)).fetchall()
    tx.effects.rested += [Ended(run, _FAILED, failures[run]) for (run,) in failed]
    large = [(run, VALUE, failures[run]) for (run,) in failed if len(failures[run]) > INLINE]
    if large:
        tx.executemany(_BLOB, large)
    tx.execute(_DROP_ALL_OF, (which,))
    tx.execute(_DROP_PAUSES, (which,))
    return [run for (run,) in tx.execute(_AWAITED, (which,)).fetchall()]


def fail(tx: Tx, run: int, failure: bytes) -> None:
    """End a run by what it waits for; those that wait for its own end are to be told."""
    large = len(failure) > INLINE
    tx.execute(_FAIL, (None if large else failure, tx.now, tx.now, run))
    if tx.cursor.rowcount == 1:
        if large:
            tx.execute(_BLOB, (run, VALUE, failure))
        tx.effects.rested.append(Ended(run, _FAILED, failure))
        tx.execute(_DROP_PAUSE, (run,))
    give_up(tx, run)

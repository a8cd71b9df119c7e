"""Taking ageing away from a queue: runs get back the priority that was asked for, in passes."""

from __future__ import annotations

from typing import Final

from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import Tx

_NEXT, _GIVE_BACK, _FORGET = SQL["next_terms"], SQL["drop_ageing"], SQL["forget_asked"]
_PUT, _LAST, _AGED = SQL["put_aged"], SQL["last_terms"], SQL["aged_queues"]
AT_ONCE: Final = 5000
"""Runs in one transaction, which for so long keeps others from writing."""


def drop(tx: Tx, queue: str) -> None:
    """Begin it; `go_on` does what is left."""
    last = tx.one(_LAST)[0]
    if last is not None:
        _pass(tx, queue, last)


def go_on(tx: Tx) -> bool:
    """Do the next pass, if there is one to be done; answers whether more is left."""
    if not any(gate.aged is not None for gate in tx.context.gates.values()):
        return False
    left = [_pass(tx, queue, last) for queue, last in tx.execute(_AGED).fetchall()]
    return any(left)


def _pass(tx: Tx, queue: str, last: int) -> bool:
    """Look at the runs with terms from this number downwards; answers whether there are more."""
    count, first = tx.one(_NEXT, (last, AT_ONCE))
    if count:
        tx.execute(_GIVE_BACK, (first, last, queue))
        tx.execute(_FORGET, (first, last, queue))
    more: bool = count == AT_ONCE
    tx.execute(_PUT, (first - 1 if more else None, queue))
    tx.context.gates_stale = True
    if more:
        tx.made_due(tx.now)
    return more

"""Runs that are paused: what they are again when somebody resumes them."""

from __future__ import annotations

from typing import Final

from stepwell_queue.contract import Status
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import Tx

_NOTE, _PAUSE, _OF, _DROP = SQL["note_pause"], SQL["pause_run"], SQL["pause_of"], SQL["drop_pause"]
_FORGET, _ASKED, _RESUME = SQL["forget_pause"], SQL["pause_waits"], SQL["resume_run"]
_DEPENDS, _MESSAGE, _SCHEDULED_FOR = SQL["any_dependency"], SQL["any_message"], SQL["scheduled_for"]
_SCHEDULED, _READY, _PARKED = int(Status.SCHEDULED), int(Status.READY), int(Status.PARKED)
_PAUSED: Final = int(Status.PAUSED)


def pause_now(tx: Tx, run: int) -> None:
    """Pause a run that is scheduled, ready or parked."""
    tx.execute(_NOTE, (run,))
    tx.execute(_PAUSE, (tx.now, run))
    tx.execute(_FORGET, (run,))


def pause_if_asked(tx: Tx, run: int) -> bool:
    """Pause a run that its worker does not hold any more, if that was asked for meanwhile."""
    if tx.one(_ASKED, (run,)) is None:
        return False
    pause_now(tx, run)
    return True


def resume(tx: Tx, run: int, stands: int) -> int:
    """Have a paused run go on, or take back that it was to pause; answers its status then.

    A time that has passed meanwhile has its effect now.
    """
    tx.execute(_FORGET, (run,))
    if stands != _PAUSED:
        return stands
    # it has no row if it came here as a copy, which nobody was to execute
    status, due = tx.one(_OF, (run,)) or (_SCHEDULED, None)
    if status == _PARKED and tx.one(_MESSAGE, (run,)) is not None:
        status = _READY
    elif status == _SCHEDULED and tx.one(_DEPENDS, (run,)) is None:
        if due is None:  # it waited for runs that have ended meanwhile
            due = tx.one(_SCHEDULED_FOR, (run,))[0]
        if due is None or due <= tx.now:
            status = _READY
    if status == _READY:
        due = None
    for (target,) in tx.execute(_RESUME, (status, due, status == _READY, tx.now, run)).fetchall():
        if status == _READY:
            tx.made_ready(target)
        elif due is not None:
            tx.made_due(due)
    tx.execute(_DROP, (run,))
    return int(status)


def end_pause(tx: Tx, run: int) -> None:
    """A cancel ends a pause, so that it can take effect."""
    tx.execute(_FORGET, (run,))
    for (target,) in tx.execute(_RESUME, (_READY, None, True, tx.now, run)).fetchall():
        tx.made_ready(target)
        tx.execute(_DROP, (run,))


def drop_pause(tx: Tx, run: int) -> None:
    """It has ended: it is not paused any more, and need not be."""
    tx.execute(_FORGET, (run,))
    tx.execute(_DROP, (run,))

"""What people do to runs: terminate and pause them, or all of a name."""

from __future__ import annotations

from typing import Final

from stepwell_queue.contract import (
    Ended,
    InboxKind,
    Kind,
    PauseName,
    ResumeName,
    Status,
    Terminate,
    Terminated,
)
from stepwell_queue.errors import RequestRefused, RunNotFound
from stepwell_queue.sqlite.dependents import give_up, release
from stepwell_queue.sqlite.heard import uids_in, with_uid
from stepwell_queue.sqlite.inserts import VALUE
from stepwell_queue.sqlite.pauses import drop_pause, pause_now
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tell import child_ended, tell
from stepwell_queue.sqlite.tx import INLINE, Tx

_ADDRESS, _AUDIT, _CANCEL_WAITS = SQL["address"], SQL["audit"], SQL["cancel_waiting"]
_ENDS_OF, _TERMINATE, _BELOW = SQL["ends_of"], SQL["terminate"], SQL["unended_below"]
_CLOSE_ALL, _BLOB, _COUNT_SWEEP = SQL["close_all_ops"], SQL["put_blob"], SQL["count_sweep"]
_FIND_NAME, _PUT_NAME = SQL["find_name"], SQL["put_name"]
_CLOSE_NAME, _OPEN_NAME = SQL["close_name"], SQL["open_name"]
_TERMINATED: Final = int(Status.TERMINATED)
MOST_TERMINATED: Final = 1000
"""Runs that are ended in one transaction beside those which were named."""


def terminate(tx: Tx, verb: Terminate) -> Terminated:
    found = tx.one(_ADDRESS, (verb.id,))
    if found is None:
        raise RunNotFound(verb.id)
    run, status, _, _, kind = found[:5]
    if status >= Status.COMPLETED and status != _TERMINATED:
        return Terminated(status, False)
    if kind == Kind.STEP:
        raise RequestRefused(
            f"run {verb.id!r} is a step of another run: terminate was refused, ask that run"
        )
    if status != _TERMINATED:
        _end(tx, verb, run, verb.reason)
    room = MOST_TERMINATED - tx.terminated
    below = tx.execute(_BELOW, (run, room + 1)).fetchall()
    because = f"run {verb.id!r}, which waited for it, was terminated"
    why = f"{because}: {verb.reason}" if verb.reason else because
    for (child,) in below[:room]:
        _end(tx, verb, child, why)
    tx.terminated += min(len(below), room)
    return Terminated(_TERMINATED, len(below) > room)


def _end(tx: Tx, verb: Terminate, run: int, why: str) -> None:
    worker, fence, parent, awaited = tx.one(_ENDS_OF, (run,))
    value, large = verb.value, len(verb.value) > INLINE
    tx.execute(_TERMINATE, (None if large else value, verb.at, tx.now, run))
    if large:
        tx.execute(_BLOB, (run, VALUE, value))
    tx.execute(_CLOSE_ALL, (run,))
    tx.execute(_AUDIT, (run, verb.uid, verb.at, "terminate", verb.actor, why))
    drop_pause(tx, run)
    if fence == 0:
        give_up(tx, run)
    if worker is not None:
        tx.gave_up(run)
        if worker not in tx.context.sessions:
            tx.execute(_COUNT_SWEEP, (worker,))  # should it not hear of it at once
    if fence > 0:  # who has parked it may keep its coroutine
        tx.effects.lost.append((worker, run))
    tx.effects.rested.append(Ended(run, _TERMINATED, value))
    if parent is not None:
        child_ended(tx, run, parent, _TERMINATED, value, verb.at)
    if awaited:
        release(tx, run, status=_TERMINATED)


def pause(tx: Tx, run: int, status: int, uid: str, at: float) -> int:
    """Pause what is not running; have what is running come to rest. Answers the status then."""
    if status == Status.RUNNING:
        tell(tx, run, InboxKind.PAUSE, uid, "pause", "", 0, b"", at)
        return status
    pause_now(tx, run)
    return int(Status.PAUSED)


def may_not_pause(tx: Tx, run: int, status: int) -> str:
    """Why it cannot be paused; "" = it can."""
    if status >= Status.COMPLETED:
        return "it has ended"
    if status in (Status.HELD, Status.STUCK):
        return "it does not go on in any case before somebody lets it"
    if tx.one(_CANCEL_WAITS, (run,)) is not None:
        return "it was asked to cancel, and has not begun to"
    return ""


def pause_name(tx: Tx, verb: PauseName) -> None:
    paused, at, actor, reason, heard = _name(tx, verb)
    if verb.uid in heard:
        return
    if not paused:
        at, actor, reason = verb.at, verb.actor, verb.reason
    _put_name(tx, verb, (1, at, actor, reason), heard)
    if not paused:
        tx.execute(_CLOSE_NAME, (verb.name,))
        tx.gates_changed()


def resume_name(tx: Tx, verb: ResumeName) -> None:
    paused, *_, heard = _name(tx, verb)
    if verb.uid in heard:
        return
    _put_name(tx, verb, (0, verb.at, verb.actor, verb.reason), heard)
    if paused:
        tx.execute(_OPEN_NAME, (verb.name,))
        tx.gates_changed()


def _name(tx: Tx, verb: PauseName | ResumeName) -> tuple[int, float, str, str, list[str]]:
    row = tx.one(_FIND_NAME, (verb.name,))
    if row is None:
        return 0, 0.0, "", "", []
    paused, at, actor, reason, heard = row
    return paused, at, actor, reason, uids_in(heard)


def _put_name(
    tx: Tx, verb: PauseName | ResumeName, stands: tuple[int, float, str, str], heard: list[str]
) -> None:
    said = with_uid(heard, verb.uid)
    tx.execute(_PUT_NAME, (verb.name, *stands, said))

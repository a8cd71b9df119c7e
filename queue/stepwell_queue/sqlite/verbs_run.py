"""What the holder of a run says: each statement carries the fence in its condition."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from stepwell_queue.contract import (
    Append,
    Ended,
    Finish,
    InboxRow,
    OpenOp,
    Park,
    Record,
    Reschedule,
    Settle,
    Status,
)
from stepwell_queue.errors import StaleFence
from stepwell_queue.sqlite.dependents import release
from stepwell_queue.sqlite.failures import note_failure
from stepwell_queue.sqlite.gate import returned
from stepwell_queue.sqlite.inserts import VALUE
from stepwell_queue.sqlite.pauses import pause_now
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tell import cancel_child, cancel_jobs_of, child_ended, release_held
from stepwell_queue.sqlite.tx import AT_ONCE, INLINE, NotAll, Tx
from stepwell_queue.sqlite.verbs_note import write_notes
from stepwell_queue.sqlite.verbs_start import start_child

_ROW: Final = SQL["append"].partition("VALUES ")[2]
_APPEND_SOME: Final = SQL["append_some"].format(rows=", ".join([_ROW] * AT_ONCE))
_FINISH_SOME: Final = SQL["finish_some"].format(rows=", ".join(["(?, ?, ?, ?, ?)"] * AT_ONCE))
_APPEND, _RECORD_AT, _HELD = SQL["append"], SQL["record_at"], SQL["held"]
_OPEN, _CLOSE, _CLOSE_ALL = SQL["open_op"], SQL["close_op"], SQL["close_all_ops"]
_ABSORB, _INBOX, _PHASE = SQL["absorb"], SQL["inbox"], SQL["set_phase"]
_FINISH, _FINISH_MORE, _STANDING = SQL["finish"], SQL["finish_more"], SQL["standing"]
_FINISH_AWAITED: Final = SQL["finish_awaited"]
_PARK_UNTIL, _COMPLETED, _RUNNING = SQL["park_until"], int(Status.COMPLETED), int(Status.RUNNING)
_FAILED: Final = int(Status.FAILED)
_STANDS, _SINCE, _ABSORBED = SQL["where_held"], SQL["record_since"], SQL["last_absorbed"]
_BLOB, _PARK, _SETTLE = SQL["put_blob"], SQL["park"], SQL["settle"]
_CLAIMED_AT: Final = SQL["claimed_at"]
_RESCHEDULE, _SET_VALUE, _CANCEL_WAITS = SQL["reschedule"], SQL["set_value"], SQL["cancel_waiting"]


def is_plain(verb: Append) -> bool:
    """Whether all there is to write is one record, and what it absorbs."""
    return len(verb.records) == 1 and not (
        verb.opened
        or verb.closed
        or verb.children
        or verb.cancels
        or verb.phase is not None
        or verb.notes
    )


def append_some(tx: Tx, verbs: Sequence[Append]) -> None:
    """Apply plain writes; raises whatever if one of them is refused or a repetition."""
    rows = [_row(verb.run, verb.fence, verb.records[0]) for verb in verbs]
    tx.insert(_APPEND_SOME, _APPEND, rows)
    absorbed = [(id, verb.run) for verb in verbs if verb.absorbed for id in verb.absorbed]
    if absorbed:
        tx.executemany(_ABSORB, absorbed)


def append(tx: Tx, verb: Append) -> None:
    if len(verb.records) > 1 or verb.children:
        tx.save("verb")
        try:
            _append(tx, verb)
        except BaseException:
            tx.undo("verb")
            tx.execute("RELEASE verb")
            raise
        tx.execute("RELEASE verb")
    else:
        _append(tx, verb)


def _append(tx: Tx, verb: Append) -> None:
    run, fence = verb.run, verb.fence
    if verb.records:
        for record in verb.records:
            if not _insert(tx, run, fence, record):
                return  # a repetition: the whole verb is in place
    elif tx.one(_HELD, (run, fence)) is None:
        if gave_up(tx, run, fence, ended=True):
            return
        raise StaleFence(run, fence)
    elif _went_on(tx, run, fence, verb.length):
        return  # to do it again might open what has been closed since
    if verb.closed or verb.opened:
        _operations(tx, run, verb.closed, verb.opened)
    for id in verb.absorbed:
        tx.execute(_ABSORB, (id, run))
    _append_more(tx, verb)


def _append_more(tx: Tx, verb: Append) -> None:
    run, fence = verb.run, verb.fence
    for path, child in verb.children:
        start_child(tx, run, fence, path, child)
    for child_id in verb.cancels:
        cancel_child(tx, run, child_id)
    if verb.phase is not None:
        tx.execute(_PHASE, (verb.phase, run))
    if verb.notes:
        write_notes(tx, run, verb.notes)


def _row(run: int, fence: int, record: Record) -> tuple[Any, ...]:
    return (
        run, record.seq, record.kind, record.path, record.name, bytearray(record.value),
        record.at, record.attempt, record.started, record.digest, run, fence,
    )  # fmt: skip


def _insert(tx: Tx, run: int, fence: int, record: Record) -> bool:
    """Insert a record; False if it is there already.

    Without the claim there is no fence for the record, and a record without one is refused.
    """
    try:
        tx.execute(_APPEND, _row(run, fence, record))
    except sqlite3.IntegrityError:
        held = tx.one(_HELD, (run, fence)) is not None
        row = tx.one(_RECORD_AT, (run, record.seq))
        if held and row is None:
            raise  # no repeated seq: the record itself is malformed
        if row is None or row[-1] != fence or Record(*row[:-1]) != record:
            raise StaleFence(run, fence) from None
        if not held and not gave_up(tx, run, fence, ended=True):
            raise StaleFence(run, fence) from None
        return False
    return True


def _operations(tx: Tx, run: int, closed: Sequence[str], opened: Sequence[OpenOp]) -> None:
    for path in closed:
        tx.execute(_CLOSE, (run, path))
    for op in opened:
        tx.execute(_OPEN, (run, op.path, op.kind, op.name, op.due, op.attempt, bytearray(op.value)))


def park(tx: Tx, verb: Park) -> Sequence[InboxRow]:
    run, fence, due = verb.run, verb.fence, verb.due
    if due is None:
        tx.execute(_PARK, (verb.waiting, tx.now, run, fence, verb.length))
    else:
        tx.execute(_PARK_UNTIL, (due, verb.waiting, tx.now, run, fence, verb.length))
    rows: list[Any] = []
    if tx.cursor.rowcount == 1:
        tx.gave_up(run)
        if due is not None:
            tx.made_due(due)
    else:
        held = tx.one(_HELD, (run, fence)) is not None
        if _went_on(tx, run, fence, verb.length) and (held or gave_up(tx, run, fence, ended=True)):
            return _told_instead(tx, run)
        if not held:
            if gave_up(tx, run, fence):
                return ()  # a repetition
            raise StaleFence(run, fence)
        rows = tx.execute(_INBOX, (run,)).fetchall()
    if verb.closed or verb.opened:
        _operations(tx, run, verb.closed, verb.opened)
    return [InboxRow(*row) for row in rows] if rows else ()


def _went_on(tx: Tx, run: int, fence: int, length: int | None) -> bool:
    """Whether the holder has written records since it said this: now it says it again."""
    return length is not None and tx.one(_SINCE, (run, length, fence)) is not None


def _told_instead(tx: Tx, run: int) -> Sequence[InboxRow]:
    """What kept a run from being parked, or of what it has taken since the last: it knows it."""
    rows = tx.execute(_INBOX, (run,)).fetchall() or tx.execute(_ABSORBED, (run,)).fetchall()
    return [InboxRow(*row) for row in rows]


def gave_up(tx: Tx, run: int, fence: int, *, ended: bool = False) -> bool:
    """Whether who had this claim gave it up, `ended`: or ended the run, and nobody claimed since.

    Then the verb is said again: nobody else has this fence, and what takes a run from its holder
    raises it.
    """
    row = tx.one(_STANDS, (run,))
    if row is None or row[2] != fence:
        return False
    status: int = row[0]
    return status != _RUNNING and (ended or status < _COMPLETED)


def is_plain_end(verb: Finish) -> bool:
    """Whether all there is to write is in the row of the run."""
    return (
        verb.clean
        and verb.parent is None
        and verb.attempts is None
        and not verb.rollback
        and len(verb.value) <= INLINE
    )


def finish_some(tx: Tx, verbs: Sequence[Finish]) -> None:
    """End runs whose ends are plain. Raises NotAll."""
    took, now = 0, tx.now
    whole = len(verbs) - len(verbs) % AT_ONCE
    for at in range(0, whole, AT_ONCE):
        values: list[Any] = [now]
        for end in verbs[at : at + AT_ONCE]:
            values += (end.status, bytearray(end.value), end.at, end.run, end.fence)
        tx.execute(_FINISH_SOME, values)
        took += tx.cursor.rowcount
    for end in verbs[whole:]:
        tx.execute(_FINISH, (end.status, bytearray(end.value), end.at, now, end.run, end.fence))
        took += tx.cursor.rowcount
    if took != len(verbs):
        raise NotAll
    tx.effects.moves += [(end.run, None, 0) for end in verbs]
    if tx.context.limited or tx.context.bounded:
        tx.freed(end.run for end in verbs)
    tx.effects.rested += [Ended(end.run, end.status, end.value) for end in verbs]


def finish(tx: Tx, verb: Finish) -> None:
    run, fence, status, value = verb.run, verb.fence, verb.status, verb.value
    large = len(value) > INLINE
    stored = None if large else bytearray(value)
    if verb.attempts is not None and status == _FAILED:
        note_failure(tx, run, fence, verb.attempts, verb.at, value)
    if verb.rollback or verb.attempts is not None:
        row = (status, stored, verb.at, tx.now, verb.rollback, verb.attempts, run, fence)
        tx.execute(_FINISH_MORE, row)
    else:
        tx.execute(_FINISH, (status, stored, verb.at, tx.now, run, fence))
    took = tx.cursor.rowcount
    awaited = took == 0
    if awaited:
        row = (status, stored, verb.at, tx.now, verb.rollback, verb.attempts, run, fence)
        took = tx.execute(_FINISH_AWAITED, row).rowcount
    if took == 0:
        standing = tx.one(_STANDING, (run,))
        if standing is None or tuple(standing) != (status, fence, value):
            raise StaleFence(run, fence)
        return
    tx.gave_up(run)
    tx.effects.rested.append(Ended(run, status, value))
    if large:
        tx.execute(_BLOB, (run, VALUE, value))
    if not verb.clean:
        tx.execute(_CLOSE_ALL, (run,))
        cancel_jobs_of(tx, run)
    if verb.parent is not None:
        child_ended(tx, run, verb.parent, status, value, verb.at)
    if awaited:
        release(tx, run, status)


def settle(tx: Tx, verb: Settle) -> None:
    run, fence, error = verb.run, verb.fence, verb.error
    large = len(error) > INLINE
    tx.execute(_SETTLE, (verb.status, None if large else error, tx.now, run, fence))
    if tx.cursor.rowcount == 0:
        if not gave_up(tx, run, fence):
            raise StaleFence(run, fence)
        return  # a repetition, even if an operator has moved the run on
    if large:
        tx.execute(_BLOB, (run, VALUE, error))
    tx.gave_up(run)
    if verb.status == Status.HELD and tx.one(_CANCEL_WAITS, (run,)):
        release_held(tx, run)
    else:
        tx.effects.rested.append(Ended(run, verb.status, error))


def reschedule(tx: Tx, verb: Reschedule) -> None:
    run, fence, due = verb.run, verb.fence, verb.due
    if due is not None and (due <= tx.now or tx.one(_CANCEL_WAITS, (run,))):
        due = None  # a cancelled run does not wait for its next attempt
    status = Status.READY if due is None else Status.SCHEDULED
    if verb.attempts is not None and verb.error is not None:
        note_failure(tx, run, fence, verb.attempts, tx.now, verb.error)
    claimed = tx.one(_CLAIMED_AT, (run,)) if verb.unstarted else None
    rows = tx.execute(
        _RESCHEDULE,
        (int(status), due, tx.now, verb.attempts, verb.attempts is not None, run, fence),
    ).fetchall()
    if not rows:
        if not gave_up(tx, run, fence):
            raise StaleFence(run, fence)
        return
    if verb.error is not None:
        large = len(verb.error) > INLINE
        tx.execute(_SET_VALUE, (None if large else verb.error, run))
        if large:
            tx.execute(_BLOB, (run, VALUE, verb.error))
    if claimed is not None:
        returned(tx, run, claimed[0])
    tx.gave_up(run)
    target, to_pause = rows[0]
    if to_pause:
        pause_now(tx, run)
    elif due is None:
        tx.made_ready(target)
    else:
        tx.made_due(due)

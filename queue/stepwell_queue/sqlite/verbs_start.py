"""Inserting runs."""

from __future__ import annotations

from typing import Any, Final

from stepwell_queue.contract import (
    InboxKind,
    NewRun,
    Start,
    Started,
    StartMany,
    Status,
    born,
)
from stepwell_queue.errors import IdConflict
from stepwell_queue.sqlite.gate import refresh
from stepwell_queue.sqlite.inserts import ARGS, existing, future, row_of
from stepwell_queue.sqlite.leases import renew
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tell import tell
from stepwell_queue.sqlite.terms import child_on_terms, is_bound, start_on_terms
from stepwell_queue.sqlite.terms_some import SOME, start_some
from stepwell_queue.sqlite.tx import INLINE, SessionState, Tx
from stepwell_queue.sqlite.verbs_claim import holds_alone

_AT_ONCE: Final = 50
"""Rows in one statement: fewer steps, each of which lets other threads in."""

_ROW: Final = "(?, ?, ?, ?, ?, ?, ?, ?, ?, 1)"
_INSERT, _CHILD, _FIND = SQL["insert_run"], SQL["insert_child"], SQL["find_run"]
_INSERT_READY: Final = SQL["insert_ready"].format(rows=_ROW)
_INSERT_MANY: Final = SQL["insert_ready"].format(rows=", ".join([_ROW] * _AT_ONCE))
_INSERT_RUNNING: Final = SQL["insert_running"]
_BLOB, _LAST, _READY = SQL["put_blob"], SQL["last_run"], SQL["ready_in_queue"]
_SCHEDULED, _READY_NOW, _RUNNING = int(Status.SCHEDULED), int(Status.READY), int(Status.RUNNING)
_ADDRESS, _STANDING, _END_WAITS = SQL["address"], SQL["standing"], SQL["end_waits"]


def start(tx: Tx, verb: Start) -> Started:
    new, now = verb.run, tx.now
    if new.terms is not None or is_bound(tx, new.queue):
        return start_on_terms(tx, new)
    due = future(new, now)
    session = None
    target = tx.target(new.queue, new.kind, new.name, new.version)
    if verb.worker is not None and due is None:
        session = _taker(tx, verb.worker, target, new.queue)
    row = row_of(new, target, now)
    if new.due is not None or new.deadline is not None:
        tx.execute(_INSERT, (*row, *_times(new, due, session, now)))
    elif session is None:
        tx.execute(_INSERT_READY, row)
    else:
        tx.execute(_INSERT_RUNNING, (*row, now, session.worker))
    if tx.cursor.rowcount == 0:
        found = existing(tx, new, verb.worker)
        assert found is not None
        return found
    run = tx.cursor.lastrowid or 0
    if len(new.args) > INLINE:
        tx.execute(_BLOB, (run, ARGS, new.args))
    if session is not None:
        tx.effects.moves.append((run, new.id, session.worker))
        return Started(run, new.id, True, _RUNNING, born(run, new))
    if due is None:
        tx.made_ready(target)
        return Started(run, new.id, True, _READY_NOW)
    tx.made_due(due)
    return Started(run, new.id, True, _SCHEDULED)


def _times(
    new: NewRun, due: float | None, session: SessionState | None, now: float
) -> tuple[Any, ...]:
    """The rest of a row that is due some time, or has a deadline."""
    if session is not None:
        return (_RUNNING, 1, now, session.worker, due, new.due, new.deadline)
    status = _READY_NOW if due is None else _SCHEDULED
    return (status, 0, None, None, due, new.due, new.deadline)


def _taker(tx: Tx, worker: int, target: int, queue: str) -> SessionState | None:
    session = tx.context.sessions.get(worker)
    if session is None or holds_alone(tx, session):
        return None
    if tx.context.gates_stale:
        refresh(tx)
    if target in tx.context.closed or queue in session.limits:
        return None
    if not (session.drained and tx.context.alone) and tx.one(_READY, (queue, queue)):
        return None
    if session.until < tx.monotonic + tx.context.lease / 2:
        renew(tx, session)
    return session


def start_many(tx: Tx, verb: StartMany) -> list[Started]:
    runs = verb.runs
    if not runs:
        return []
    tx.save("many")
    try:
        started: list[Started] | None = None
        if not _on_terms(tx, runs):
            started = _insert_all(tx, runs)
            if started is None:
                tx.undo("many")
        if started is None:
            started = []
            for at in range(0, len(runs), SOME):
                some = runs[at : at + SOME]
                started += start_some(tx, some) or [start(tx, Start(new)) for new in some]
    except BaseException:
        tx.undo("many")
        tx.execute("RELEASE many")
        raise
    tx.execute("RELEASE many")
    return started


def _on_terms(tx: Tx, runs: list[NewRun]) -> bool:
    """Whether some are to be inserted on terms."""
    if any(new.terms is not None for new in runs):
        return True
    return any(is_bound(tx, queue) for queue in {new.queue for new in runs})


def _insert_all(tx: Tx, runs: list[NewRun]) -> list[Started] | None:
    """Insert all in one call; None if some exist already.

    The row numbers are consecutive, since nobody else writes in between.
    """
    now = tx.now
    addresses = [(new.queue, new.kind, new.name, new.version) for new in runs]
    numbers = {address: tx.target(*address) for address in set(addresses)}
    targets = [numbers[address] for address in addresses]
    timed = any(new.due is not None or new.deadline is not None for new in runs)
    if timed:
        rows = [
            (*row_of(new, target, now), *_times(new, future(new, now), None, now))
            for new, target in zip(runs, targets, strict=True)
        ]
        tx.executemany(_INSERT, rows)
        inserted = tx.cursor.rowcount
    else:
        inserted = _insert_ready(tx, runs, targets)
    if inserted != len(runs):
        return None
    first = tx.one(_LAST)[0] - len(runs) + 1
    blobs = [(run, ARGS, new.args) for run, new in enumerate(runs, first) if len(new.args) > INLINE]
    if blobs:
        tx.executemany(_BLOB, blobs)
    if not timed:
        for target in numbers.values():
            tx.made_ready(target)
        return [Started(run, new.id, True, _READY_NOW) for run, new in enumerate(runs, first)]
    started: list[Started] = []
    for run, (new, target) in enumerate(zip(runs, targets, strict=True), first):
        due = future(new, now)
        if due is None:
            tx.made_ready(target)
        else:
            tx.made_due(due)
        status = _READY_NOW if due is None else _SCHEDULED
        started.append(Started(run, new.id, True, status))
    return started


def _insert_ready(tx: Tx, runs: list[NewRun], targets: list[int]) -> int:
    """Insert runs that are due at once; answers how many there were."""
    now, inserted = tx.now, 0
    whole = len(runs) - len(runs) % _AT_ONCE
    for at in range(0, whole, _AT_ONCE):
        end = at + _AT_ONCE
        values: list[Any] = []
        for new, target in zip(runs[at:end], targets[at:end], strict=True):
            values += row_of(new, target, now)
        tx.execute(_INSERT_MANY, values)
        inserted += tx.cursor.rowcount
    for new, target in zip(runs[whole:], targets[whole:], strict=True):
        tx.execute(_INSERT_READY, row_of(new, target, now))
        inserted += tx.cursor.rowcount
    return inserted


def start_child(tx: Tx, parent: int, fence: int, path: str, new: NewRun) -> None:
    if new.terms is not None or is_bound(tx, new.queue):
        if not child_on_terms(tx, parent, path, new):
            _meet_child(tx, parent, fence, path, new)
        return
    due = future(new, tx.now)
    target = tx.target(new.queue, new.kind, new.name, new.version)
    status = _READY_NOW if due is None else _SCHEDULED
    row = (*row_of(new, target, tx.now), status, due, new.due, new.deadline, path, parent)
    tx.execute(_CHILD, row)
    if tx.cursor.rowcount == 0:
        _meet_child(tx, parent, fence, path, new)
        return
    if len(new.args) > INLINE:
        tx.execute(_BLOB, (tx.cursor.lastrowid, ARGS, new.args))
    if due is None:
        tx.made_ready(target)
    else:
        tx.made_due(due)


def _meet_child(tx: Tx, parent: int, fence: int, path: str, new: NewRun) -> None:
    """Accept the child that was started at this path before; its end, if past, is told again."""
    run, _, name, version, _, _, status, owner, _ = tx.one(_FIND, (new.id,))
    if owner != parent:
        whose = "no run" if owner is None else f"run #{owner}"
        raise IdConflict(
            new.id, f"{name} (version {version}), a child of {whose}", f"a child of run #{parent}"
        )
    known_path = tx.one(_ADDRESS, (new.id,))[6] or ""
    if known_path != path:
        raise IdConflict(
            new.id,
            f"{name} (version {version}), started at {known_path or 'another place'} of this run",
            f"a child started at {path or 'another place'}",
        )
    if path and status >= Status.COMPLETED and tx.one(_END_WAITS, (parent, new.id, path)) is None:
        # asked for anew by a retry, which voided the outcome that was told first
        value = tx.one(_STANDING, (run,))[2]
        again = f"{new.id}@{fence}"
        tell(tx, parent, InboxKind.CHILD_ENDED, again, new.id, path, status, value, tx.now)

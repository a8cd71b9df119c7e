"""Inserting runs."""

from __future__ import annotations

from typing import Any

from stepwell_queue.contract import Claimed, InboxKind, NewRun, Start, Started, StartMany, Status
from stepwell_queue.errors import IdConflict
from stepwell_queue.sqlite.leases import renew
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tell import tell
from stepwell_queue.sqlite.tx import INLINE, SessionState, Tx
from stepwell_queue.sqlite.verbs_claim import holds_alone

_INSERT, _CHILD, _FIND = SQL["insert_run"], SQL["insert_child"], SQL["find_run"]
_BLOB, _LAST, _READY = SQL["put_blob"], SQL["last_run"], SQL["ready_in_queue"]
_SCHEDULED, _READY_NOW, _RUNNING = int(Status.SCHEDULED), int(Status.READY), int(Status.RUNNING)
_ADDRESS, _STANDING = SQL["address"], SQL["standing"]
ARGS, VALUE = 0, 1


def start(tx: Tx, verb: Start) -> Started:
    new, now = verb.run, tx.now
    due = new.due
    if due is not None and due <= now:
        due = None
    session = None
    if verb.worker is not None and due is None:
        session = _taker(tx, verb.worker, new.queue)
    if session is not None:
        status, fence, worker, started = _RUNNING, 1, session.worker, now
    else:
        status = _READY_NOW if due is None else _SCHEDULED
        fence, worker, started = 0, None, None
    args = new.args
    large = len(args) > INLINE
    tx.execute(
        _INSERT,
        (
            new.id, new.kind, new.name, new.version, new.queue, status, new.priority, fence,
            new.nonce, new.at, now, started, due, new.due, new.deadline, worker, new.digest,
            new.options, None if large else args,
        ),
    )  # fmt: skip
    if tx.cursor.rowcount == 0:
        return _existing(tx, new)
    run = tx.cursor.lastrowid or 0
    if large:
        tx.execute(_BLOB, (run, ARGS, args))
    if session is not None:
        tx.effects.moves.append((run, new.id, session.worker))
        return Started(run, new.id, True, _RUNNING, _born(run, new))
    if due is None:
        tx.made_ready(new.queue, new.kind, new.name, new.version)
    else:
        tx.made_due(due)
    return Started(run, new.id, True, status)


def _taker(tx: Tx, worker: int, queue: str) -> SessionState | None:
    session = tx.context.sessions.get(worker)
    if session is None or holds_alone(tx, session):
        return None
    if not (session.drained and tx.context.alone) and tx.one(_READY, (queue,)):
        return None
    if session.until < tx.monotonic + tx.context.lease / 2:
        renew(tx, session)
    return session


def _born(run: int, new: NewRun) -> Claimed:
    return Claimed(
        run, new.id, new.kind, new.name, new.version, new.queue, 1, 0, 0, 0, new.priority,
        new.nonce, 0, new.at, new.due, new.deadline, None, None, None, new.args, b"",
        new.options, False, (), (), (),
    )  # fmt: skip


def _existing(tx: Tx, new: NewRun) -> Started:
    run, kind, name, version, digest, nonce, status, _, _ = tx.one(_FIND, (new.id,))
    same_signature = digest[:4] == new.digest[:4]
    if (kind, name, version) != (new.kind, new.name, new.version):
        raise IdConflict(
            new.id, f"{name} (version {version})", f"{new.name} (version {new.version})"
        )
    if same_signature and digest != new.digest:
        raise IdConflict(new.id, f"{name} with other arguments", f"{new.name} with these arguments")
    return Started(run, new.id, nonce == new.nonce, status)


def start_many(tx: Tx, verb: StartMany) -> list[Started]:
    runs = verb.runs
    if not runs:
        return []
    tx.execute("SAVEPOINT many")
    try:
        started = _insert_all(tx, runs)
        if started is None:
            tx.execute("ROLLBACK TO many")
            started = [start(tx, Start(new)) for new in runs]
    except BaseException:
        tx.execute("ROLLBACK TO many")
        tx.execute("RELEASE many")
        raise
    tx.execute("RELEASE many")
    return started


def _insert_all(tx: Tx, runs: list[NewRun]) -> list[Started] | None:
    """Insert all in one call; None if some exist already.

    The row numbers are consecutive, since nobody else writes in between.
    """
    now = tx.now
    tx.executemany(_INSERT, [_row(new, now) for new in runs])
    if tx.cursor.rowcount != len(runs):
        return None
    first = tx.one(_LAST)[0] - len(runs) + 1
    blobs = [(run, ARGS, new.args) for run, new in enumerate(runs, first) if len(new.args) > INLINE]
    if blobs:
        tx.executemany(_BLOB, blobs)
    started: list[Started] = []
    targets: set[tuple[str, int, str, int]] = set()
    for run, new in enumerate(runs, first):
        if new.due is not None and new.due > now:
            tx.made_due(new.due)
            started.append(Started(run, new.id, True, _SCHEDULED))
        else:
            targets.add((new.queue, new.kind, new.name, new.version))
            started.append(Started(run, new.id, True, _READY_NOW))
    for target in targets:
        tx.made_ready(*target)
    return started


def _row(new: NewRun, now: float) -> tuple[Any, ...]:
    due = new.due
    if due is not None and due <= now:
        due = None
    args = new.args
    return (
        new.id, new.kind, new.name, new.version, new.queue,
        _READY_NOW if due is None else _SCHEDULED, new.priority, 0, new.nonce, new.at, now, None,
        due, new.due, new.deadline, None, new.digest, new.options,
        args if len(args) <= INLINE else None,
    )  # fmt: skip


def start_child(tx: Tx, parent: int, fence: int, path: str, new: NewRun) -> None:
    due = new.due
    if due is not None and due <= tx.now:
        due = None
    args = new.args
    large = len(args) > INLINE
    tx.execute(
        _CHILD,
        (
            new.id, new.kind, new.name, new.version, new.queue,
            _READY_NOW if due is None else _SCHEDULED, new.priority, new.nonce, new.at, tx.now,
            due, new.due, new.deadline, new.digest, new.options, None if large else args, path,
            parent,
        ),
    )  # fmt: skip
    if tx.cursor.rowcount == 0:
        _meet_child(tx, parent, fence, path, new)
        return
    if large:
        tx.execute(_BLOB, (tx.cursor.lastrowid, ARGS, args))
    if due is None:
        tx.made_ready(new.queue, new.kind, new.name, new.version)
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
    if path and status >= Status.COMPLETED:
        # asked for anew by a retry, which voided the outcome that was told first
        value = tx.one(_STANDING, (run,))[2]
        again = f"{new.id}@{fence}"
        tell(tx, parent, InboxKind.CHILD_ENDED, again, new.id, path, status, value, tx.now)

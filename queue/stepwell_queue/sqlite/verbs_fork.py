"""Runs that begin with a part of the journal of another one."""

from __future__ import annotations

from typing import Final

from stepwell_queue.contract import Fork, InboxKind, Kind, NewRun, RecordKind, Started, Status
from stepwell_queue.errors import RequestRefused, RunNotFound
from stepwell_queue.sqlite.inserts import ARGS, existing, row_of
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tell import tell
from stepwell_queue.sqlite.tx import INLINE, Tx

_ADDRESS, _INSERT, _BLOB, _AUDIT = (
    SQL["address"], SQL["insert_run"], SQL["put_blob"], SQL["audit"],
)  # fmt: skip
_LENGTH, _UNDONE, _RECORD_AT = SQL["journal_length"], SQL["undone_since"], SQL["record_at"]
_COPY, _COPY_LANE, _COPY_KEY = SQL["fork_journal"], SQL["fork_lane"], SQL["fork_key"]
_OF_CHILDREN, _CHILD = SQL["fork_children"], SQL["watch"]
_READY: Final = int(Status.READY)
_STARTED: Final = int(RecordKind.STARTED)


def fork(tx: Tx, verb: Fork) -> Started:
    found = existing(tx, verb.run)
    if found is not None:
        return found
    address = tx.one(_ADDRESS, (verb.source,))
    if address is None:
        raise RunNotFound(verb.source)
    source, kind = address[0], address[4]
    if kind != Kind.WORKFLOW:
        raise RequestRefused(f"run {verb.source!r} is no workflow run: fork was refused")
    _check(tx, verb, source)
    ends = _ends_of_children(tx, verb, source)
    run = _insert(tx, verb, verb.run, source)
    for id, status, value in ends:
        tell(tx, run, InboxKind.CHILD_ENDED, id, id, "", status, value, verb.at)
    why = f": {verb.reason}" if verb.reason else ""
    came = f"from {verb.source!r}, with {verb.length} of its records{why}"
    tx.execute(_AUDIT, (run, verb.uid, verb.at, "fork", verb.actor, came))
    went = f"as {verb.run.id!r}, with {verb.length} records{why}"
    tx.execute(_AUDIT, (source, verb.uid, verb.at, "fork", verb.actor, went))
    return Started(run, verb.run.id, True, _READY)


def _check(tx: Tx, verb: Fork, source: int) -> None:
    (length,) = tx.one(_LENGTH, (source,))
    if verb.length > length:
        raise RequestRefused(
            f"run {verb.source!r} has {length} records: fork with {verb.length} was refused"
        )
    undone = tx.one(_UNDONE, (source,))
    if undone is None or verb.length <= max(undone[0] - 1, 0):
        return
    oldest = tx.one(_RECORD_AT, (source, max(undone[0] - 1, 0)))
    raise RequestRefused(
        f"run {verb.source!r} has undone what it did from step {oldest[3]!r} at path {oldest[2]} "
        "on: fork was refused, fork from there or before"
    )


def _ends_of_children(tx: Tx, verb: Fork, source: int) -> list[tuple[str, int, bytes]]:
    """How those ended that were started before, and whose end comes after: nobody tells it again.

    A child tells its own parent alone, so of one that has not ended the fork would never hear.
    """
    started: dict[str, str] = {}
    for kind, path, name, value in tx.execute(_OF_CHILDREN, (source, verb.length)).fetchall():
        if kind == _STARTED:
            started[bytes(value).decode()] = path
        else:
            started.pop(name, None)
    ends: list[tuple[str, int, bytes]] = []
    for id, path in started.items():
        child = tx.one(_CHILD, (id,))
        if child is None or child[1] < Status.COMPLETED:
            what = "is deleted" if child is None else "has not ended"
            raise RequestRefused(
                f"run {verb.source!r} has started {id!r} at path {path}, which {what}: fork was "
                "refused, fork from there or before"
            )
        ends.append((id, child[1], child[2]))
    return ends


def _insert(tx: Tx, verb: Fork, new: NewRun, source: int) -> int:
    target = tx.target(new.queue, new.kind, new.name, new.version)
    # What was executed is replayed, which a claim after the first one tells.
    fence = 1 if verb.length else 0
    row = (*row_of(new, target, tx.now), _READY, fence, None, None, None, new.due, new.deadline)
    tx.execute(_INSERT, row)
    run = tx.cursor.lastrowid or 0
    if len(new.args) > INLINE:
        tx.execute(_BLOB, (run, ARGS, new.args))
    tx.execute(_COPY_LANE, (source, run))
    tx.execute(_COPY_KEY, (run, source))
    tx.execute(_COPY, (run, fence, source, verb.length))
    tx.made_ready(target)
    return run

"""Copies of runs that another store has."""

from __future__ import annotations

from typing import Any, Final

from stepwell_queue.contract import ImportRuns, InboxKind, Kind, RunCopy, Status, Terms
from stepwell_queue.errors import IdConflict
from stepwell_queue.sqlite.gate import close
from stepwell_queue.sqlite.inserts import ARGS, VALUE
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.terms import Columns, columns_of
from stepwell_queue.sqlite.tx import INLINE, Tx

_FIND, _AUDITED, _AUDIT = SQL["find_run"], SQL["audited"], SQL["audit"]
_INSERT, _RECORD, _BLOB = SQL["insert_copy"], SQL["copy_record"], SQL["put_blob"]
_OPEN, _TELL, _TELL_END = SQL["open_op"], SQL["tell"], SQL["copy_end"]
_ABSORBED, _FAILURE, _SAID, _PAUSE = (
    SQL[name] for name in ("copy_absorbed", "copy_failure", "copy_said", "copy_pause")
)
_PUT_VALUE, _PUT_ANSWER, _ADD_ITEM = (SQL[name] for name in ("put_value", "put_answer", "add_item"))
_PUT_TERMS: Final = SQL["put_terms"]
_PAUSED: Final = int(Status.PAUSED)
_WAITED: Final = frozenset((Status.SCHEDULED, Status.PARKED))


def import_runs(tx: Tx, verb: ImportRuns) -> int:
    if _said_before(tx, verb):
        return len(verb.runs)
    tx.save("copies")
    try:
        numbers: dict[str, int] = {}
        for copy in verb.runs:
            found = tx.one(_FIND, (copy.run.id,))
            if found is not None:
                known = f"{found[2]} (version {found[3]})"
                raise IdConflict(copy.run.id, known, f"the copy of {copy.run.name}")
            numbers[copy.run.id] = _insert(tx, verb, copy, numbers)
    except BaseException:
        tx.undo("copies")
        tx.execute("RELEASE copies")
        raise
    tx.execute("RELEASE copies")
    return len(verb.runs)


def _said_before(tx: Tx, verb: ImportRuns) -> bool:
    if not verb.runs:
        return True
    found = tx.one(_FIND, (verb.runs[0].run.id,))
    return found is not None and tx.one(_AUDITED, (found[0], verb.uid)) is not None


def _insert(tx: Tx, verb: ImportRuns, copy: RunCopy, numbers: dict[str, int]) -> int:
    new = copy.run
    ended = copy.status >= Status.COMPLETED
    parent = None if copy.parent_id is None else numbers.get(copy.parent_id)
    # What was executed once is replayed, which only a fence over 1 tells.
    fence = max(copy.fence, 1) if copy.journal or copy.open_ops else copy.fence
    columns = columns_of(tx, new, Terms(key=new.terms.key if new.terms is not None else ""))
    tx.execute(
        _INSERT,
        (
            new.id, columns.target,
            copy.status if ended else _PAUSED, fence, columns.priority, copy.phase, copy.rollback,
            copy.attempts, copy.crashes, new.nonce, copy.generation, new.at, tx.now, copy.started,
            (copy.ended or tx.now) if ended else None, new.due, new.deadline, parent,
            copy.parent_id, copy.parent_path, "" if ended else copy.waiting,
            bytearray(new.digest), bytearray(new.options), _inline(new.args), _inline(copy.value),
            columns.lane,
        ),
    )  # fmt: skip
    run: int = tx.cursor.lastrowid or 0
    _put_terms(tx, run, columns)
    for role, data in ((ARGS, new.args), (VALUE, copy.value)):
        if len(data) > INLINE:
            tx.execute(_BLOB, (run, role, data))
    tx.executemany(
        _RECORD,
        [
            (
                run, one.seq, one.kind, one.path, one.name, bytearray(one.value), one.at,
                one.attempt, one.started, one.digest, fence,
            )
            for one in copy.journal
        ],
    )  # fmt: skip
    if not ended:
        for op in copy.open_ops:
            row = (run, op.path, op.kind, op.name, op.due, op.attempt, bytearray(op.value))
            tx.execute(_OPEN, row)
        for had in copy.absorbed:
            known = (run, had.kind, had.uid, had.name)
            tx.execute(_ABSORBED, (*known, bytearray(had.value), had.at))
        if copy.again in _WAITED:
            tx.execute(_PAUSE, (run, copy.again, copy.due))
    for said in copy.inbox:
        told = (run, said.kind, said.uid, said.name, said.path, said.status)
        tx.execute(_TELL, (*told, bytearray(said.value), said.at))
    _insert_said(tx, run, copy)
    for number, audit in enumerate(copy.audit):
        asked = (run, f"{verb.uid}/{number}", audit.at, audit.action, audit.actor, audit.reason)
        tx.execute(_AUDIT, asked)
    tx.execute(_AUDIT, (run, verb.uid, verb.at, "import", verb.actor, verb.reason))
    if ended and parent is not None:
        _tell_parent(tx, copy, parent)
    return run


def _put_terms(tx: Tx, run: int, columns: Columns) -> None:
    if columns.special:
        close(tx, columns.target)
    if any(one is not None for one in columns.terms):
        tx.execute(_PUT_TERMS, (run, *columns.terms))


def _insert_said(tx: Tx, run: int, copy: RunCopy) -> None:
    """Insert what the run and its attempts have said: to people, and of how they failed."""
    for failed in copy.failures:
        error = None if failed.crashed else bytearray(failed.error)
        row = (run, failed.number, failed.started, failed.ended, failed.worker, error)
        tx.execute(_FAILURE, row)
    for one in copy.values:
        tx.execute(_PUT_VALUE, (run, one.name, bytearray(one.value), one.at))
    for answer in copy.answers:
        value = bytearray(answer.value)
        tx.execute(_PUT_ANSWER, (run, answer.uid, int(answer.refused), value, answer.at))
    offsets: dict[str, int] = {}
    items = size = 0  # of its steps, which have a limit of their own
    for item in copy.items:
        offsets[item.stream] = offset = offsets.get(item.stream, 0) + 1
        value = bytearray(item.value)
        tx.execute(_ADD_ITEM, (run, item.stream, offset, value, item.at, item.path, item.attempt))
        if item.path or copy.run.kind == Kind.TASK:
            items, size = items + 1, size + len(value)
    if copy.said is not None or items:
        tx.execute(_SAID, (run, *(copy.said or (0, -1)), items, size))


def _tell_parent(tx: Tx, copy: RunCopy, parent: int) -> None:
    """Let the parent know of the end, unless it knew or had taken that where it was copied."""
    id, path = copy.run.id, copy.parent_path or ""
    end = (parent, int(InboxKind.CHILD_ENDED), id, id, path, copy.status, bytearray(copy.value))
    tx.execute(_TELL_END, (*end, copy.ended or tx.now, path, parent, path, id, parent, id))


def _inline(data: bytes) -> Any:
    return bytearray(data) if len(data) <= INLINE else None

"""What the code of a run says, and its steps; and what it is asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from stepwell_queue.contract import Emit, InboxKind, Kind, Note, NoteKind, PutQuestion, Status
from stepwell_queue.contract.notes import MOST_ITEMS, MOST_STREAM_BYTES
from stepwell_queue.errors import RequestRefused, RunEnded, RunNotFound, StaleFence
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tell import tell
from stepwell_queue.sqlite.tx import Tx

_SAID, _NOTE, _VALUE, _ANSWER = (
    SQL[name] for name in ("said_before", "note_code", "put_value", "put_answer")
)
_NOTE_EMIT, _EMITTED, _WHOSE = (SQL[name] for name in ("note_emit", "emitted", "whose_streams"))
_LAST, _ADD, _COUNT, _COUNTED = (
    SQL[name] for name in ("last_offset", "add_item", "count_items", "items_of")
)
_ASKED, _ANSWERED, _ADDRESS = (
    SQL[name] for name in ("asked_already", "answered_already", "address")
)
_SET, _EMITS, _REFUSES = int(NoteKind.VALUE), int(NoteKind.ITEM), int(NoteKind.REFUSAL)
_QUESTION: Final = int(InboxKind.QUESTION)

_NewItem = tuple[str, bytes, float, str, int]


def write_notes(tx: Tx, run: int, notes: Sequence[Note]) -> None:
    """Store what the code of a run has said, except for what it repeats."""
    generation, known, code = tx.one(_SAID, (run,))
    fresh = notes if known < generation else [note for note in notes if note.number > code]
    if not fresh:
        return
    values: list[tuple[object, ...]] = []
    items: list[_NewItem] = []
    answers: list[tuple[object, ...]] = []
    for note in fresh:
        data = bytearray(note.value)
        if note.kind == _SET:
            values.append((run, note.name, data, note.at))
        elif note.kind == _EMITS:
            items.append((note.name, note.value, note.at, "", 1))
        else:
            answers.append((run, note.name, int(note.kind == _REFUSES), data, note.at))
    if values:
        tx.executemany(_VALUE, values)
    if answers:
        tx.executemany(_ANSWER, answers)
    _add_items(tx, run, items)
    tx.execute(_NOTE, (run, generation, max(note.number for note in fresh)))
    tx.effects.said.add(run)


def _add_items(tx: Tx, run: int, items: Iterable[_NewItem]) -> None:
    last: dict[str, int] = {}
    rows: list[tuple[object, ...]] = []
    for stream, value, at, path, attempt in items:
        if stream not in last:
            last[stream] = tx.one(_LAST, (run, stream))[0]
        last[stream] += 1
        rows.append((run, stream, last[stream], bytearray(value), at, path, attempt))
    if rows:
        tx.executemany(_ADD, rows)


def emit(tx: Tx, verb: Emit) -> bool:
    found = tx.execute(_NOTE_EMIT, (verb.number, verb.run, verb.fence)).fetchall()
    if not found and tx.one(_EMITTED, (verb.run, verb.fence, verb.number)) is None:
        raise StaleFence(verb.run, verb.fence)
    owner = tx.one(_WHOSE, (verb.run,))[0]
    if not found:  # a repetition
        return _is_full(*(tx.one(_COUNTED, (owner,)) or (0, 0)))
    items = [(one.stream, one.value, one.at, one.path, one.attempt) for one in verb.items]
    _add_items(tx, owner, items)
    size = sum([len(one.value) for one in verb.items])
    [counted] = tx.execute(_COUNT, (owner, len(items), size)).fetchall()
    tx.effects.said.add(owner)
    return _is_full(*counted)


def _is_full(items: int, size: int) -> bool:
    return items >= MOST_ITEMS or size >= MOST_STREAM_BYTES


def put_question(tx: Tx, verb: PutQuestion) -> None:
    found = tx.one(_ADDRESS, (verb.id,))
    if found is None:
        raise RunNotFound(verb.id)
    run, status, _, _, kind, *_ = found
    asked = tx.one(_ASKED, (run, verb.uid))
    if asked is not None:
        if tuple(asked) != (_QUESTION, verb.name, verb.value):
            raise RequestRefused(
                f"run {verb.id!r} was asked something else under the id of this question "
                f"{verb.name!r}: ask under another id, or pass what was asked first"
            )
        return
    if tx.one(_ANSWERED, (run, verb.uid)) is not None:
        return  # the question is forgotten, since the run has continued as new
    if kind != Kind.WORKFLOW:
        raise RequestRefused(
            f"run {verb.id!r} is of a {Kind(kind).name.lower()}, which answers no questions: "
            "ask the run of a workflow"
        )
    if status >= Status.COMPLETED:
        raise RunEnded(verb.id, Status(status).name.lower(), f"the question {verb.name!r}")
    tell(tx, run, _QUESTION, verb.uid, verb.name, "", 0, verb.value, verb.at)

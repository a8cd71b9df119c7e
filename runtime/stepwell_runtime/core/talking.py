"""What the code of a run says, until it is written, and the questions that it is asked."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stepwell_queue.contract import Note, NoteKind, Record
from stepwell_queue.contract.notes import (
    MOST_ITEMS_OF_CODE,
    MOST_STREAM_BYTES,
    MOST_VALUES,
)
from stepwell_runtime.codec import DecodingError, SerializationError
from stepwell_runtime.core.branch import ENDED, OPEN, Branch, Op
from stepwell_runtime.core.commands import QuestionCommand
from stepwell_runtime.emissions import encode_said
from stepwell_runtime.errors import StreamFull
from stepwell_runtime.fitting import fits

if TYPE_CHECKING:
    from stepwell_runtime.core.execution import Execution

_TURN_BITS: Final = 20  # of a note's number: how many notes one delivery may bring
_LAST: Final = (1 << _TURN_BITS) - 1
_VALUE, _ITEM, _REFUSAL = map(int, (NoteKind.VALUE, NoteKind.ITEM, NoteKind.REFUSAL))
_asked: Final = msgspec.msgpack.Decoder(tuple[str, bytes]).decode
pack_question: Final = msgspec.msgpack.Encoder().encode
"""Makes the value of a record of what the uid of a question and its payload are."""


class Talk:
    """What one run's code says, numbered by where in the journal it says it.

    A replay comes to the same numbers, so what it says again is known. A record that a retry sets
    aside takes its number with it: what the code says after that is new.
    """

    __slots__ = (
        "_arrived", "_bytes", "_execution", "_index", "_items", "_names", "_notes", "_seq",
        "_values", "_waits",
    )  # fmt: skip

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._values: dict[str, Note] = {}  # of each name the newest
        self._notes: list[Note] = []
        self._names: set[str] = set()
        self._items = self._bytes = 0
        self._seq, self._index = -1, 0
        self._arrived: dict[str, deque[tuple[str, bytes]]] = {}
        self._waits: dict[str, deque[Op]] = {}

    # --- what the code says ---

    def say(self, kind: int, name: str, value: object) -> None:
        """Note what is to be written next. Raises SerializationError, StreamFull, ValueError."""
        where = {_VALUE: f"value {name!r}", _ITEM: f"an item of stream {name!r}"}.get(
            kind, "an answer"
        )
        data = encode_said(self._execution.codec, value, where)
        if kind == _VALUE and name not in self._names:
            if len(self._names) >= MOST_VALUES:
                raise ValueError(
                    f"set_value({name!r}): this run has set {MOST_VALUES} values, which is the "
                    "most: set fewer names, or a value that has several parts"
                )
            self._names.add(name)
        elif kind == _ITEM:
            size = self._bytes + len(data)
            if self._items >= MOST_ITEMS_OF_CODE or size > MOST_STREAM_BYTES:
                raise StreamFull(name, MOST_ITEMS_OF_CODE, "the code of a workflow")
            self._items, self._bytes = self._items + 1, size
        self._note(kind, name, data)

    def _note(self, kind: int, name: str, data: bytes) -> None:
        execution = self._execution
        if execution.seq != self._seq:
            self._seq, self._index = execution.seq, 0
        self._index = min(self._index + 1, _LAST)
        number = (self._seq << _TURN_BITS) + self._index
        note = Note(kind, name, number, data, execution.now)
        if kind == _VALUE:
            self._values[name] = note
        else:
            self._notes.append(note)
        execution.said = self

    def take(self) -> list[Note]:
        """Return what is to be written, in order, and forget it."""
        notes = sorted([*self._values.values(), *self._notes], key=_number)
        self._values, self._notes = {}, []
        self._execution.said = None
        return notes

    # --- what it is asked ---

    def left(self) -> list[tuple[str, int]]:
        """How many questions of each name nobody has taken."""
        return [(name, len(asked)) for name, asked in self._arrived.items() if asked]

    def arrive(self, record: Record) -> None:
        """Hand a question to the oldest wait for it, or keep it."""
        question = _asked(record.value)
        waits = self._waits.get(record.name)
        while waits and waits[0].state is not OPEN:
            waits.popleft()
        if not waits:
            self._arrived.setdefault(record.name, deque()).append(question)
            return
        taken = self._fitting(waits[0].command, question)
        if taken is not None:
            op = waits.popleft()
            self._execution.end(op)
            self._execution.withdrawn.append(op)
            self._execution.resume(op.branch, taken, None)

    def ask(self, branch: Branch, command: QuestionCommand, path: str) -> Op | None:
        """Return the wait for a question, or None when one is there."""
        execution, name = self._execution, command.name
        arrived = self._arrived.get(name)
        while arrived:
            taken = self._fitting(command, arrived.popleft())
            if taken is not None:
                execution.answered(branch, path, (taken, None))
                return None
        op = Op(path, "ask", name, command, branch, execution.seq)
        if command.timeout is not None:
            op.due = execution.now + command.timeout
        waits = self._waits.setdefault(name, deque())
        while waits and waits[0].state is ENDED:
            waits.popleft()
        waits.append(op)
        return op

    def _fitting(self, command: Any, question: tuple[str, bytes]) -> tuple[str, Any] | None:
        """Return the uid and the payload of a question; one that does not fit is refused."""
        uid, data = question
        where, wanted, codec = f"question {command.name!r}", command.type, self._execution.codec
        try:
            value = codec.decode(data, wanted, trusted=False, where=where)
            if not fits(value, wanted):
                value = codec.convert(value, wanted, where)
        except (DecodingError, SerializationError) as error:
            self._note(_REFUSAL, uid, codec.encode(str(error)[:1000], where))
            return None
        return uid, value

    @property
    def unread(self) -> int:
        return sum(map(len, self._arrived.values()))


def _number(note: Note) -> int:
    return note.number

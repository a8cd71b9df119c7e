"""How one activation writes: records in order.

The changes of open operations that gather between them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from stepwell_queue.contract import Append, NewRun, Note, OpenOp, Park, Record, RecordKind, Verb
from stepwell_runtime.activation._work import LARGE_WRITE
from stepwell_runtime.core.branch import CallOp

if TYPE_CHECKING:
    from stepwell_runtime.activation._activation import Activation

Answered = Callable[[Any], None]


class JournalWriter:
    """Numbers records, gathers changes, and counts what is on its way.

    `has_changes`: something is gathered that has to ride with a write.
    """

    __slots__ = (
        "_activation",
        "_cancels",
        "_clock",
        "_closed",
        "_committed",
        "_notes",
        "_opened",
        "_store",
        "fence",
        "had_rows",
        "has_changes",
        "in_flight",
        "next_seq",
        "run",
    )

    def __init__(self, activation: Activation, run: int, fence: int) -> None:
        worker = activation.worker
        self._activation, self._committed = activation, worker.committed
        self._store, self._clock = worker.store, worker.clock
        self.run, self.fence = run, fence
        self.next_seq = 0
        self.in_flight = 0
        self.had_rows = False
        self.has_changes = False
        self._opened: list[OpenOp] | None = None
        self._closed: list[str] | None = None
        self._cancels: list[str] | None = None
        self._notes: list[Note] | None = None

    def record(self, kind: RecordKind, path: str, name: str, value: bytes = b"") -> Record:
        """Return the next record, which must be appended at once."""
        record = Record(self.next_seq, int(kind), path, name, value, self._clock.now())
        self.next_seq += 1
        return record

    # --- changes that ride with the next write ---

    def open(self, row: OpenOp) -> None:
        self.has_changes = True
        if self._opened is None:
            self._opened = []
        self._opened.append(row)

    def close(self, path: str) -> None:
        self.has_changes = True
        if self._opened:
            self.drop_opened((path,))
        if self._closed is None:
            self._closed = []
        self._closed.append(path)

    def cancel_child(self, id: str) -> None:
        self.has_changes = True
        if self._cancels is None:
            self._cancels = []
        self._cancels.append(id)

    def say(self, notes: Sequence[Note]) -> None:
        """Have what the code has said written."""
        self.has_changes = True
        self._notes = [*(self._notes or ()), *notes]

    @property
    def has_notes(self) -> bool:
        """Whether something was said that is not on its way, which only Append says."""
        return bool(self._notes)

    def _take_notes(self) -> Sequence[Note]:
        """Return what goes with one write; the rest of it stays, for the next."""
        notes, self._notes = self._notes, None
        if not notes:
            return ()
        size = 0
        for count, note in enumerate(notes):
            size += len(note.value)
            if size > LARGE_WRITE and count:
                self._notes, self.has_changes = notes[count:], True
                return notes[:count]
        return notes

    @property
    def has_cancels(self) -> bool:
        """Whether children wait to be told of their cancellation, which parking does not do."""
        return bool(self._cancels)

    @property
    def clean(self) -> bool:
        """Whether nothing but records was ever written for this run."""
        return not (self.had_rows or self._opened or self._closed)

    def _take_changes(self) -> tuple[Sequence[OpenOp], Sequence[str], Sequence[str]]:
        changes = self._opened or (), self._closed or (), self._cancels or ()
        if self.has_changes:
            self.had_rows = True
            self.has_changes = False
            self._opened = self._closed = self._cancels = None
        return changes

    # --- writes ---

    def append(
        self,
        records: Sequence[Record],
        *,
        closed: Sequence[str] = (),
        absorbed: Sequence[int] = (),
        phase: int | None = None,
    ) -> None:
        """Write records together with all gathered changes; they are delivered once committed."""
        if self.has_changes:
            if closed and self._opened:
                self.drop_opened(closed)  # what opens and ends with one write is never stored
            opened, more_closed, cancels = self._take_changes()
            closed = [*more_closed, *closed]
            length = None if records else self.next_seq
            verb = Append(
                self.run, self.fence, records, closed, opened, absorbed, (), cancels, phase, length,
                self._take_notes(),
            )  # fmt: skip
        else:
            verb = Append(self.run, self.fence, records, closed, (), absorbed, (), (), phase)
        self.in_flight += 1
        self._store.submit(verb, partial(self._appended, records))

    def mark(self, ids: Sequence[str]) -> None:
        """Write the markers of patches."""
        self.append([self.record(RecordKind.MARK, "", id) for id in ids])

    def append_step(
        self, kind: int, op: CallOp, value: bytes, attempt: int, started: float, row: bool
    ) -> None:
        """Write the record of a step; `row`: an open operation is stored for it."""
        record = Record(
            self.next_seq, kind, op.path, op.name, value, self._clock.now(), attempt, started,
            op.digest,
        )  # fmt: skip
        self.next_seq += 1
        if row or self.has_changes:
            self.append((record,), closed=(op.path,) if row else ())
            return
        self.in_flight += 1
        records = (record,)
        self._store.submit(Append(self.run, self.fence, records), partial(self._appended, records))

    def _appended(self, records: Sequence[Record], answer: Exception | None) -> None:
        if answer is None:
            self._committed.append((self._activation, records))  # in flight until delivered
        else:
            self.in_flight -= 1
            self._activation.refused(answer)

    def append_children(
        self,
        rows: Sequence[tuple[str, NewRun]],
        opened: Sequence[OpenOp],
        answered: Answered,
    ) -> None:
        """Insert children together with their open operations.

        No record nor other change rides along, so that a refusal leaves nothing to put right.
        """
        if opened:
            self.had_rows = True
        length = self.next_seq
        verb = Append(self.run, self.fence, (), (), opened, (), rows, length=length)
        self._counted(verb, answered)

    def drop_opened(self, paths: Collection[str]) -> None:
        """Forget rows that were gathered but must not be written."""
        self._opened = [row for row in self._opened or () if row.path not in paths]
        self.has_changes = bool(self._opened or self._closed or self._cancels or self._notes)

    def park(self, due: float | None, waiting: str, answered: Answered) -> None:
        opened, closed, _ = self._take_changes()
        length = self.next_seq
        verb = Park(self.run, self.fence, due, waiting, opened, closed, length)
        self._counted(verb, answered)

    def reopen(self, record: Record, inbox_id: int, answered: Answered) -> None:
        """Write the record of a retry, which is not delivered: the run is replayed afresh."""
        self._counted(Append(self.run, self.fence, (record,), (), (), (inbox_id,)), answered)

    def last(self, verb: Verb[None], answered: Answered) -> None:
        """Submit what gives up the claim."""
        self._counted(verb, answered)

    def _counted(self, verb: Verb[Any], answered: Answered) -> None:
        self.in_flight += 1
        self._store.submit(verb, partial(self._count, answered))

    def _count(self, answered: Answered, answer: Any) -> None:
        self.in_flight -= 1
        answered(answer)

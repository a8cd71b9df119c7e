"""Which way a run goes where its code was patched: the same way at every replay.

A run that comes to a patch while it repeats what its journal has, and has no marker of it, may have
been there with the code of before: it goes the old way. Any other goes the new way, which is known
by a marker. Nothing that the code asks for on the new way is begun before the marker is durable,
so a crash before that leaves nothing that the old way does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable

from stepwell_queue.contract import Record, RecordKind

_MARK = int(RecordKind.MARK)


class Marks:
    """The answers of `patched()` in one run, by id.

    `unwritten`: the ids of markers that are not on their way into the journal yet.
    """

    __slots__ = ("_answers", "_pending", "unwritten")

    def __init__(self, marked: Iterable[str] = ()) -> None:
        self._answers = dict.fromkeys(marked, True)
        self._pending: set[str] = set()
        self.unwritten: list[str] = []

    @property
    def pending(self) -> bool:
        """Whether a marker is not known to be durable."""
        return bool(self._pending)

    def answer(self, id: str, *, replaying: bool, retired: bool) -> bool:
        known = self._answers.get(id)
        if known is None or (retired and not known):
            known = self._answers[id] = retired or not replaying
            if known:
                self._pending.add(id)
                self.unwritten.append(id)
        return known

    def take_unwritten(self) -> list[str]:
        taken, self.unwritten = self.unwritten, []
        return taken

    def written(self, id: str) -> None:
        self._answers[id] = True
        self._pending.discard(id)


def marks_in(journal: Iterable[Record]) -> Marks | None:
    """Return the markers that a journal has, wherever in it; None = none."""
    marked = [record.name for record in journal if record.kind == _MARK]
    return Marks(marked) if marked else None

"""What arrives for a run, not for one operation: signals, and ends of detached children."""

from __future__ import annotations

from collections import deque

from stepwell_queue.contract import Record
from stepwell_runtime.core.branch import ENDED, OPEN, Op


class Signals:
    """One queue per name, first in first out, for the oldest wait that is still open."""

    __slots__ = ("_arrived", "_waits")

    def __init__(self) -> None:
        self._arrived: dict[str, deque[bytes]] = {}
        self._waits: dict[str, deque[Op]] = {}

    def arrive(self, name: str, value: bytes) -> Op | None:
        """Return the wait that this signal ends, or keep the signal."""
        waits = self._waits.get(name)
        while waits:
            op = waits.popleft()
            if op.state is OPEN:
                return op
        self._arrived.setdefault(name, deque()).append(value)
        return None

    def take(self, name: str) -> bytes | None:
        """Return the oldest signal of this name that nobody has taken."""
        arrived = self._arrived.get(name)
        return arrived.popleft() if arrived else None

    def wait(self, name: str, op: Op) -> None:
        waits = self._waits.get(name)
        if waits is None:
            self._waits[name] = deque((op,))
            return
        while waits and waits[0].state is ENDED:
            waits.popleft()
        waits.append(op)

    def left(self) -> list[tuple[str, int]]:
        """How many of each name nobody has taken."""
        return [(name, len(values)) for name, values in self._arrived.items() if values]

    @property
    def unread(self) -> int:
        return sum(map(len, self._arrived.values()))


class DetachedChildren:
    """The detached children of a run, how they ended, and who waits for that."""

    __slots__ = ("_ends", "_waits")

    def __init__(self) -> None:
        self._ends: dict[str, Record | None] = {}
        self._waits: dict[str, list[Op]] = {}

    def started(self, id: str) -> None:
        self._ends.setdefault(id, None)

    def knows(self, id: str) -> bool:
        return id in self._ends

    def end_of(self, id: str) -> Record | None:
        return self._ends[id]

    def wait(self, id: str, op: Op) -> None:
        self._waits.setdefault(id, []).append(op)

    def ended(self, record: Record) -> list[Op]:
        """Return the waits that this end of a child ends."""
        self._ends[record.name] = record
        return [op for op in self._waits.pop(record.name, ()) if op.state is OPEN]

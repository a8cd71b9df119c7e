"""What a verb handler works with: one open transaction, and what is to be told after its COMMIT."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from stepwell_queue.clock import Clock
from stepwell_queue.contract import Ended, InboxRow, QueueSettings, SessionEvents
from stepwell_queue.sqlite.statements import SQL

INLINE = 1024  # values above go to blobs; a claim would otherwise rewrite them
AT_ONCE = 16
"""Rows in one statement. Each statement gives up the interpreter's lock, and takes it again."""
_NEVER = float("inf")
_SEEKS_AT_ONCE = 400  # SQLite takes 500 terms in a compound SELECT
_MOST_TARGETS = 10_000  # whose numbers are remembered
_FIND_TARGET, _INSERT_TARGET = SQL["find_target"], SQL["insert_target"]


class NotAll(Exception):
    """Of verbs that were applied together, some were refused or are repetitions."""


class Target(NamedTuple):
    """What ready work is addressed to."""

    queue: str
    kind: int
    name: str
    version: int


class Gate(NamedTuple):
    """What is set for a queue."""

    settings: QueueSettings
    paused: bool
    until: float | None  # when the pause ends
    ageing_since: float | None
    aged: int | None  # up to which run priorities are as they were when others aged


class SessionState:
    """What the store remembers of a registered worker."""

    def __init__(
        self,
        worker: int,
        row: tuple[Any, ...],
        targets: Mapping[int, Target],
        events: SessionEvents,
        limits: Mapping[str, int],
    ) -> None:
        self.worker, self.row, self.events, self.limits = worker, row, events, limits
        self.serve(targets)
        self.alone: int | None = None  # a run with >= 2 crashes that it holds
        self.until = 0.0  # the lease, in monotonic seconds
        self.swept = 0
        self.heard: float | None = None  # the last beat of a remote worker, in monotonic seconds
        self.gated: dict[str, list[int]] = {}  # its targets that a gate is before, by queue
        self.shut: set[int] = set()  # its targets that are paused by name
        self.gates_read = -1  # of which reading that is

    def serve(self, targets: Mapping[int, Target]) -> None:
        self.targets = targets
        seeks = _union(SQL["claim_seek"], len(targets))
        self.claim_sql = SQL["claim"].format(seeks=seeks)
        self.gated_sql = SQL["claim"].format(seeks=SQL["claim_chosen"].format(seeks=seeks))
        self.alone_sql = _union(SQL["claim_seek_alone"], len(targets))
        self.drained = False  # the last claim found all, and nothing became ready since
        self.gates_read = -1

    def lease_end(self, now: float, lease: float) -> float:
        """Until when a lease may be: a worker of this process lives now, a remote one did."""
        return (now if self.heard is None else self.heard) + lease


def _union(seek: str, count: int) -> str:
    parts = [
        " UNION ALL ".join([seek] * min(_SEEKS_AT_ONCE, count - at))
        for at in range(0, count, _SEEKS_AT_ONCE)
    ]
    if len(parts) == 1:
        return parts[0]
    return " UNION ALL ".join(f"SELECT * FROM ({part})" for part in parts)


class Context:
    """What outlives a transaction; the loop and the writer thread never use it at once."""

    def __init__(self, clock: Clock, boot: str, token: str, lease: float) -> None:
        self.clock, self.boot, self.token, self.lease = clock, boot, token, lease
        self.sessions: dict[int, SessionState] = {}
        self.bounded: tuple[SessionState, ...] = ()  # those that take only so many of a queue
        self.targets: dict[tuple[str, int, str, int], int] = {}  # numbers that are known
        self.next_due = 0.0  # no later than what is due or expires first; 0 = not known
        self.next_expiry = _NEVER  # of what is known here
        self.alone = True  # no other process has this file open
        self.gates: dict[str, Gate] = {}  # of queues for which something is set
        self.lengths: dict[str, int] = {}  # how many runs are ready in queues that have an end
        self.version = 0  # of the data, by which that is known
        self.closed: dict[int, str] = {}  # targets that are not open, each with its queue
        self.special: set[int] = set()  # those of them that stay so
        self.shut: set[int] = set()  # those of them of which nothing is claimed: paused by name
        self.limited: dict[int, str] = {}  # running runs of those, each with its queue
        # the targets that a worker serves of a queue, and a priority -> the lane that was last
        self.turns: dict[tuple[tuple[int, ...], int], int] = {}
        self.gates_stale, self.gates_read = True, 0
        self.opens_at = _NEVER  # when a gate opens by itself

    def enter(self, session: SessionState) -> None:
        # replaced, never changed: the writer thread may be going through it
        self.sessions = {**self.sessions, session.worker: session}
        self._note_bounded()

    def leave(self, worker: int) -> None:
        self.sessions = {other: one for other, one in self.sessions.items() if other != worker}
        self._note_bounded()

    def _note_bounded(self) -> None:
        self.bounded = tuple(one for one in self.sessions.values() if one.limits)


class Effects:
    """What is to be told on the loop after COMMIT."""

    __slots__ = ("due", "expires", "gates", "lost", "moves", "ready", "rested", "said", "told")

    def __init__(self) -> None:
        self.ready: set[int] = set()  # targets
        self.told: list[tuple[int, InboxRow]] = []
        self.rested: list[Ended] = []  # ended, held or stuck
        self.said: set[int] = set()  # runs that have said something
        # in order: (run, id, worker) = taken, (run, None, 0) = given up
        self.moves: list[tuple[int, str | None, int]] = []
        self.lost: list[tuple[int | None, int]] = []  # worker and run; None = it was parked
        self.due: float | None = None
        self.expires = False  # some run will, whether or not there is a worker
        self.gates = False  # what is set for a queue is another

    @property
    def length(self) -> tuple[int, int, int]:
        return len(self.told), len(self.rested), len(self.moves)

    def cut(self, length: tuple[int, int, int]) -> None:
        """Forget what was noted since; a wake-up for nothing does no harm."""
        told, rested, moves = length
        del self.told[told:], self.rested[rested:], self.moves[moves:]


class Tx:
    """One transaction: handlers use `execute` and read `cursor`, which is one for all of them."""

    __slots__ = (
        "_saved", "context", "cursor", "effects", "execute", "executemany", "lengths",
        "lengths_read", "monotonic", "now", "terminated",
    )  # fmt: skip

    def __init__(self, cursor: sqlite3.Cursor, context: Context) -> None:
        self.cursor, self.context = cursor, context
        self.execute, self.executemany = cursor.execute, cursor.executemany
        self.now = context.clock.now()
        self.monotonic = time.monotonic()
        self.effects = Effects()
        self._saved = (0, 0, 0)
        self.terminated = 0  # runs that were ended because others were
        self.lengths = context.lengths
        self.lengths_read = False  # whether they are known to be those of this transaction

    def one(self, sql: str, parameters: tuple[Any, ...] = ()) -> Any:
        """The first row, or None."""
        return self.execute(sql, parameters).fetchone()

    def insert(self, some: str, one: str, rows: Sequence[Sequence[Any]]) -> int:
        """Insert rows, AT_ONCE with the statement `some`, and each that is left with `one`.

        Answers how many have been inserted.
        """
        inserted = 0
        whole = len(rows) - len(rows) % AT_ONCE
        for at in range(0, whole, AT_ONCE):
            self.execute(some, list(chain.from_iterable(rows[at : at + AT_ONCE])))
            inserted += self.cursor.rowcount
        for row in rows[whole:]:
            self.execute(one, row)
            inserted += self.cursor.rowcount
        return inserted

    def target(self, queue: str, kind: int, name: str, version: int) -> int:
        """The number of a target; a new one gets a row."""
        key = (queue, kind, name, version)
        number = self.context.targets.get(key)
        if number is None:
            found = self.one(_FIND_TARGET, key)
            if found is None:
                self.execute(_INSERT_TARGET, (*key, queue, kind, name))
                found = (self.cursor.lastrowid or 0,)
                self.context.gates_stale = True  # its queue may have one
            if len(self.context.targets) >= _MOST_TARGETS:
                self.context.targets.clear()
            number = self.context.targets[key] = found[0]
        return number

    def save(self, savepoint: str) -> None:
        """Note where `undo` returns to; it is one at a time."""
        self.execute(f"SAVEPOINT {savepoint}")
        self._saved = self.effects.length

    def undo(self, savepoint: str) -> None:
        """Undo what was done since, and forget what was learned of it."""
        self.execute(f"ROLLBACK TO {savepoint}")
        self.effects.cut(self._saved)
        self.context.targets.clear()
        self.context.gates_stale = True
        self.lengths.clear()

    def made_ready(self, target: int) -> None:
        """Note that runs can be claimed which were there before."""
        if self.lengths:
            self.lengths.clear()
        self.wake(target)

    def wake(self, target: int) -> None:
        """Have workers look for work; what is ready is what was, or is counted by who says this."""
        self.effects.ready.add(target)
        for session in self.context.sessions.values():
            session.drained = False

    def gave_up(self, run: int) -> None:
        """Note that a run is no longer held."""
        self.effects.moves.append((run, None, 0))
        if self.context.limited or self.context.bounded:
            self.freed((run,))

    def freed(self, runs: Iterable[int]) -> None:
        """What waits for the places of these runs in their queues may be claimed."""
        context = self.context
        for session in context.bounded:
            for targets in session.gated.values():
                self.effects.ready.update(targets)
            session.drained = False
        queues = {context.limited[run] for run in runs if run in context.limited}
        places = {queue for queue in queues if self._has_places(queue)}
        if places:
            for target, queue in context.closed.items():
                if queue in places:
                    self.wake(target)

    def _has_places(self, queue: str) -> bool:
        """Whether so many runs of the queue, or of each key of it, are executed at once."""
        gate = self.context.gates.get(queue)
        return gate is not None and (
            gate.settings.limit is not None or gate.settings.key_limit is not None
        )

    def gates_changed(self) -> None:
        """What is set for a queue is another, so what can be claimed may be, too."""
        self.context.gates_stale = True
        self.effects.gates = True
        for session in self.context.sessions.values():
            session.drained = False

    def opens(self, at: float) -> None:
        """Work behind a gate can be claimed from this time on."""
        self.context.opens_at = min(at, self.context.opens_at)
        self.made_due(at)

    def made_due(self, due: float) -> None:
        earliest = self.effects.due
        if earliest is None or due < earliest:
            self.effects.due = due
        if due < self.context.next_due:
            self.context.next_due = due

    def made_expiring(self, at: float) -> None:
        """A run ends at this time unless it is started, and somebody may wait for that."""
        self.effects.expires = True
        if at < self.context.next_expiry:
            self.context.next_expiry = at
        self.made_due(at)

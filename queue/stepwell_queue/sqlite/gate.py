"""The gate: how work is claimed from queues that are paused or limited, and of runs with keys.

Highest priority first; at equal priority the keys of a queue take turns, whatever the names of
their runs; within a key, and without one, the oldest first. How much may run is counted from what
is running, so no counter can be left behind by a crash. Keys with no room are known from that (or
from their buckets), and left out before their backlog is looked at.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Final, NamedTuple

import msgspec

from stepwell_queue.contract import QueueSettings
from stepwell_queue.sqlite.buckets import (
    drop_full,
    give_back,
    take,
    tokens,
    tokens_of_empty,
    tokens_of_keys,
    until_some,
)
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import Gate, SessionState, Tx
from stepwell_queue.sqlite.verbs_queue import resume

_LIMITED, _HELD_OF_QUEUE = SQL["running_gated"], SQL["held_of_queue"]
_GATES, _CLOSED, _RUNNING = SQL["gates"], SQL["closed_targets"], SQL["running_in_queue"]
_NEXT_PRIORITY, _PLAIN, _LANES = SQL["next_priority"], SQL["ready_without_key"], SQL["ready_lanes"]
_IN_LANES, _LANE_OF = SQL["ready_in_lanes"], SQL["lane_of"]
_CLOSE, _ANY_KEYED = SQL["close_target"], SQL["any_keyed"]
_HIGHEST: Final = 2**63 - 1
_LOWEST: Final = -(2**63) - 1
_MOST_TURNS: Final = 10_000
_decode: Final = msgspec.json.Decoder(QueueSettings).decode


@lru_cache(10_000)
def lane_of(queue: str, key: str) -> int:
    """The number by which a key of a queue is found; 0 is that of no key."""
    digest = hashlib.blake2b(f"{queue}\0{key}".encode("utf-8", "surrogatepass"), digest_size=8)
    return (int.from_bytes(digest.digest(), "big") >> 1) or 1


def close(tx: Tx, target: int) -> None:
    """Have work for a target claimed by way of the gate: a run for it has a key, or expires."""
    if target not in tx.context.special:  # it may be closed for now only
        tx.execute(_CLOSE, (target,))
        tx.gates_changed()


def refresh(tx: Tx) -> None:
    """Read what is set for queues, unless it is known."""
    context = tx.context
    if not context.gates_stale:
        return
    context.gates = {
        queue: Gate(_decode(settings), bool(paused), until, since, aged)
        for queue, paused, until, settings, since, aged in tx.execute(_GATES).fetchall()
    }
    closed = tx.execute(_CLOSED).fetchall()
    context.closed = {target: queue for target, queue, _, _ in closed}
    context.special = {target for target, _, special, _ in closed if special}
    context.shut = {target for target, _, _, paused in closed if paused}
    context.limited = dict(tx.execute(_LIMITED).fetchall()) if context.closed else {}
    context.gates_stale = False
    context.lengths.clear()
    context.gates_read += 1
    for gate in context.gates.values():
        if gate.paused and gate.until is not None and gate.until > tx.now:
            tx.opens(gate.until)


class Candidate(NamedTuple):
    """A run that may be claimed."""

    priority: int
    age: int  # of the newest of its queue and priority that goes no later: it keeps their order
    run: int
    lane: int
    targets: tuple[int, ...]  # those of its queue that the worker serves


class Rooms:
    """How many runs of each key of a queue may be claimed yet."""

    def __init__(self, most: int) -> None:
        self.most = most  # of a key that is not among `left`
        self.left: dict[int, int] = {}

    def of(self, lane: int) -> int:
        return self.left.get(lane, self.most) if lane else _HIGHEST

    def lower(self, lane: int, room: int) -> None:
        self.left[lane] = min(self.of(lane), room)

    def take(self, lane: int) -> None:
        room = self.of(lane)
        if room < _HIGHEST:
            self.left[lane] = room - 1

    def taken(self) -> list[int]:
        """The keys of which nothing may be claimed."""
        return [lane for lane, room in self.left.items() if room <= 0]


class Passage:
    """One claim's way through the gates."""

    def __init__(self, tx: Tx, session: SessionState) -> None:
        self._tx, self._session = tx, session
        self._running: dict[str, dict[int, int]] = {}
        self._lanes: dict[int, int] = {}  # of each candidate
        self._chosen: list[Candidate] = []
        self._soonest: dict[str, float] = {}  # seconds until a key of the queue has a token

    @property
    def targets(self) -> set[int]:
        return {target for targets in self._session.gated.values() for target in targets}

    def shut(self) -> set[int]:
        """The targets of which nothing may be claimed now."""
        return self._session.shut | {
            target
            for queue, targets in self._session.gated.items()
            if self._room(queue) <= 0
            for target in targets
        }

    def admits(self, run: int, target: int) -> bool:
        """Whether the key of this run has room; that its queue has is known."""
        queue = self._session.targets[target].queue
        if queue not in self._session.gated:
            return True
        lane = self._lanes[run] = self._tx.one(_LANE_OF, (run,))[0]
        return self._rooms_of_keys(queue).of(lane) > 0

    def candidates(self, limit: int) -> list[tuple[int, int, int]]:
        """Up to `limit` runs, each with its priority and age, by which they are claimed."""
        found: list[Candidate] = []
        for queue, targets in self._session.gated.items():
            room = min(limit, self._room(queue))
            if room > 0:
                found += self._of_queue(queue, tuple(targets), room)
        found.sort(key=_rank)
        self._chosen = found[:limit]
        self._lanes = {one.run: one.lane for one in self._chosen}
        return [(one.priority, one.age, one.run) for one in self._chosen]

    def claimed(self, rows: Iterable[tuple[int, int]]) -> None:
        """Note the runs that have been claimed, each with its target."""
        context = self._tx.context
        starts: dict[str, list[int]] = {}
        claimed = dict(rows)
        self._note_turns(claimed)
        for run, target in claimed.items():
            queue = context.closed.get(target)
            if queue is not None:
                context.limited[run] = queue
                starts.setdefault(queue, []).append(self._lanes.get(run, 0))
        for queue, lanes in starts.items():
            self._take_tokens(queue, lanes)
        for queue, wait in self._soonest.items():
            self._wake_for_keys(queue, wait)

    def _note_turns(self, claimed: Collection[int]) -> None:
        turns = self._tx.context.turns
        if len(turns) > _MOST_TURNS:
            turns.clear()
        for one in self._chosen:
            if one.run in claimed:
                turns[one.targets, one.priority] = one.lane

    def _take_tokens(self, queue: str, lanes: Sequence[int]) -> None:
        gate = self._tx.context.gates.get(queue)
        if gate is None:
            return
        if gate.settings.rate is not None:
            wait = take(self._tx, queue, 0, gate.settings.rate, len(lanes))
            if wait:  # what else is ready has to wait for it
                self._tx.opens(self._tx.now + wait)
        rate = gate.settings.key_rate
        if rate is not None:
            for lane in set(lanes) - {0}:
                self._key_waits(queue, take(self._tx, queue, lane, rate, lanes.count(lane)))
        if gate.settings.rate is not None or rate is not None:
            drop_full(self._tx)

    def _key_waits(self, queue: str, wait: float) -> None:
        if wait:
            self._soonest[queue] = min(wait, self._soonest.get(queue, wait))

    def _wake_for_keys(self, queue: str, wait: float) -> None:
        for target in self._session.gated[queue]:
            if self._tx.one(_ANY_KEYED, (target, target)) is not None:
                self._tx.opens(self._tx.now + wait)
                return

    def _room(self, queue: str) -> int:
        tx, session = self._tx, self._session
        gate = tx.context.gates.get(queue)
        room = _HIGHEST
        if queue in session.limits:
            held = tx.one(_HELD_OF_QUEUE, (session.worker, queue))[0]
            room = session.limits[queue] - held
        if gate is None:
            return room
        if gate.paused:
            if gate.until is None:
                return 0
            if gate.until > tx.now:
                tx.opens(gate.until)
                return 0
            resume(tx, queue)
        if gate.settings.limit is not None:
            running = sum(self._running_in(queue).values())
            room = min(room, gate.settings.limit - running)
        if gate.settings.rate is not None and room > 0:
            left = tokens(tx, queue, 0, gate.settings.rate)
            if left < 1:
                tx.opens(tx.now + until_some(left, gate.settings.rate))
            room = min(room, int(left))
        return room

    def _running_in(self, queue: str) -> dict[int, int]:
        if queue not in self._running:
            self._running[queue] = dict(self._tx.execute(_RUNNING, (queue,)).fetchall())
        return self._running[queue]

    def _rooms_of_keys(self, queue: str) -> Rooms:
        gate = self._tx.context.gates.get(queue)
        rooms = Rooms(_HIGHEST)
        if gate is None:
            return rooms
        limit, rate = gate.settings.key_limit, gate.settings.key_rate
        if limit is not None:
            rooms.most = limit
            for lane, running in self._running_in(queue).items():
                if lane:
                    rooms.left[lane] = limit - running
        if rate is not None:
            rooms.most = min(rooms.most, rate.burst)
            for lane, left in tokens_of_empty(self._tx, queue, rate).items():
                rooms.lower(lane, int(left))
                self._key_waits(queue, until_some(left, rate))
        return rooms

    def _count_tokens(self, queue: str, lanes: Sequence[int], rooms: Rooms) -> None:
        """Let these keys have no more room than tokens."""
        gate = self._tx.context.gates.get(queue)
        if gate is not None and gate.settings.key_rate is not None:
            keys = [lane for lane in lanes if lane]
            found = tokens_of_keys(self._tx, queue, keys, gate.settings.key_rate)
            for lane, left in found.items():
                rooms.lower(lane, int(left))

    def _of_queue(self, queue: str, targets: tuple[int, ...], room: int) -> list[Candidate]:
        """Runs of a queue, best first."""
        rooms = self._rooms_of_keys(queue)
        found: list[Candidate] = []
        tops = {target: self._priority_below(target, _HIGHEST) for target in targets}
        while len(found) < room:
            priority = max(tops.values())
            if priority == _LOWEST:
                break
            level = [target for target, top in tops.items() if top == priority]
            found += self._of_level(targets, level, priority, room - len(found), rooms)
            for target in level:
                tops[target] = self._priority_below(target, priority)
        return found

    def _priority_below(self, target: int, priority: int) -> int:
        found = self._tx.one(_NEXT_PRIORITY, (target, priority) * 2)[0]
        return _LOWEST if found is None else int(found)

    def _of_level(
        self, targets: tuple[int, ...], level: list[int], priority: int, need: int, rooms: Rooms
    ) -> list[Candidate]:
        """Runs of one priority, in which keys take turns; `level`: the targets that have any."""
        plain = self._without_key(level, priority, need)
        last = self._tx.context.turns.get((targets, priority), -1)
        lanes = self._lanes_from(last, level, priority, need, rooms, [0] if plain else [])
        self._count_tokens(self._session.targets[level[0]].queue, lanes, rooms)
        runs = self._in_lanes(level, priority, lanes, need, rooms)
        runs[0] = plain
        found: list[Candidate] = []
        age = 0
        for one_each in zip_longest(*[runs[lane] for lane in lanes]):
            for lane, run in zip(lanes, one_each, strict=True):
                if run is not None and len(found) < need:
                    rooms.take(lane)
                    age = max(age, run)
                    found.append(Candidate(priority, age, run, lane, targets))
        return found

    def _without_key(self, level: list[int], priority: int, need: int) -> list[int]:
        rows = [self._tx.execute(_PLAIN, (one, priority, need)).fetchall() for one in level]
        return sorted(run for some in rows for (run,) in some)[:need]

    def _lanes_from(
        self,
        last: int,
        level: list[int],
        priority: int,
        need: int,
        rooms: Rooms,
        without_key: list[int],
    ) -> list[int]:
        """The keys whose turn it is, from the one after that which had the last; 0 = no key."""
        taken = rooms.taken()
        where = (level, priority, need + len(taken) + 1, json.dumps(taken))
        if last < 0:
            return [*without_key, *self._lanes_between(*where, 0, _HIGHEST)][:need]
        lanes = [*self._lanes_between(*where, last, _HIGHEST), *without_key]
        if last and len(lanes) < need:
            lanes += self._lanes_between(*where, 0, last)
        return lanes[:need]

    def _lanes_between(
        self, level: list[int], priority: int, most: int, taken: str, after: int, last: int
    ) -> list[int]:
        found: set[int] = set()
        for target in level:
            row = (target, priority, after, target, priority, last, most, last, taken)
            found.update(lane for (lane,) in self._tx.execute(_LANES, row).fetchall())
        return sorted(found)

    def _in_lanes(
        self, level: list[int], priority: int, lanes: list[int], need: int, rooms: Rooms
    ) -> dict[int, list[int]]:
        """The oldest runs of each key, enough of each that together they fill the need."""
        runs: dict[int, list[int]] = {lane: [] for lane in lanes}
        keys = [lane for lane in lanes if lane]
        each = -(-need // max(len(lanes), 1))
        while keys:
            for lane, found in self._oldest(level, priority, keys, each).items():
                runs[lane] = found[: min(each, rooms.of(lane))]
            longer = any(len(runs[lane]) == each < rooms.of(lane) for lane in keys)
            if not longer or sum(map(len, runs.values())) >= need:
                break
            each *= 2
        return runs

    def _oldest(
        self, level: list[int], priority: int, keys: list[int], each: int
    ) -> dict[int, list[int]]:
        """The oldest runs of each key, at least `each` of them if there are so many."""
        runs: dict[int, list[int]] = {}
        for target in level:
            row = (json.dumps(keys), target, priority, each)
            for lane, run in self._tx.execute(_IN_LANES, row).fetchall():
                runs.setdefault(lane, []).append(run)
        if len(level) > 1:
            for found in runs.values():
                found.sort()
        return runs


def passage(tx: Tx, session: SessionState) -> Passage | None:
    """The way through the gates of what this session serves; None if it meets none."""
    context = tx.context
    if not context.alone:
        context.gates_stale = context.gates_stale or bool(context.closed)
    refresh(tx)
    if not context.closed and not session.limits:
        return None
    if session.gates_read != context.gates_read:
        session.gates_read = context.gates_read
        session.gated, session.shut = {}, context.shut & session.targets.keys()
        for target, address in session.targets.items():
            if target in session.shut:
                continue
            if target in context.closed or address.queue in session.limits:
                session.gated.setdefault(address.queue, []).append(target)
    return Passage(tx, session) if session.gated or session.shut else None


def returned(tx: Tx, run: int, claimed_at: float) -> None:
    """A run that was claimed was not begun: what its start took of rate limits comes back."""
    queue = tx.context.limited.get(run)
    gate = None if queue is None else tx.context.gates.get(queue)
    if queue is None or gate is None:
        return
    if gate.settings.rate is not None:
        give_back(tx, queue, 0, gate.settings.rate, claimed_at)
    if gate.settings.key_rate is not None:
        lane = tx.one(_LANE_OF, (run,))[0]
        if lane:
            give_back(tx, queue, lane, gate.settings.key_rate, claimed_at)


def _rank(one: Candidate) -> tuple[int, int]:
    return (-one.priority, one.age)

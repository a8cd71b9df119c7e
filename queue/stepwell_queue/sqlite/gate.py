"""The gate: how work is claimed from queues that are paused or limited, and of runs with keys.

Highest priority first; at equal priority the keys of a queue take turns; within a key the oldest
first. How much may run is counted from what is running, so no counter can be left behind by a
crash. Keys with no room are known from that (or from their buckets), and left out before their
backlog is looked at.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

import msgspec

from stepwell_queue.contract import QueueSettings
from stepwell_queue.sqlite.buckets import take, tokens, tokens_of_keys, until_one
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import Gate, SessionState, Tx
from stepwell_queue.sqlite.verbs_queue import resume

_LIMITED, _HELD_OF_QUEUE = SQL["running_gated"], SQL["held_of_queue"]
_GATES, _CLOSED, _RUNNING = SQL["gates"], SQL["closed_targets"], SQL["running_in_queue"]
_NEXT_PRIORITY, _PLAIN, _LANES = SQL["next_priority"], SQL["ready_without_key"], SQL["ready_lanes"]
_IN_LANES, _LANE_OF = SQL["ready_in_lanes"], SQL["lane_of"]
_CLOSE, _ANY_KEYED = SQL["close_target"], SQL["any_keyed"]
_HIGHEST: Final = 2**63 - 1
_MOST_TURNS: Final = 10_000
_decode: Final = msgspec.json.Decoder(QueueSettings).decode


def lane_of(queue: str, key: str) -> int:
    """The number by which a key of a queue is found; 0 is that of no key."""
    digest = hashlib.blake2b(f"{queue}\0{key}".encode("utf-8", "surrogatepass"), digest_size=8)
    return (int.from_bytes(digest.digest(), "big") >> 1) or 1


def close(tx: Tx, target: int) -> None:
    """Have work for a target claimed by way of the gate: a run for it has a key, or expires."""
    if target not in tx.context.closed:
        tx.execute(_CLOSE, (target,))
        tx.gates_changed()


def refresh(tx: Tx) -> None:
    """Read what is set for queues, unless it is known."""
    context = tx.context
    if not context.gates_stale:
        return
    context.gates = {
        queue: Gate(_decode(settings), bool(paused), until, since)
        for queue, paused, until, settings, since in tx.execute(_GATES).fetchall()
    }
    context.closed = dict(tx.execute(_CLOSED).fetchall())
    context.limited = dict(tx.execute(_LIMITED).fetchall()) if context.closed else {}
    context.gates_stale = False
    context.gates_read += 1
    for gate in context.gates.values():
        if gate.paused and gate.until is not None and gate.until > tx.now:
            tx.opens(gate.until)


class Candidate(NamedTuple):
    """A run that may be claimed, with its turn among those of its priority."""

    priority: int
    turn: int
    place: int  # of its key among those that have this turn
    run: int
    lane: int
    target: int


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

    def copy(self) -> Rooms:
        other = Rooms(self.most)
        other.left = dict(self.left)
        return other


class Passage:
    """One claim's way through the gates."""

    def __init__(self, tx: Tx, session: SessionState) -> None:
        self._tx, self._session = tx, session
        self._running: dict[str, dict[int, int]] = {}
        self._lanes: dict[int, int] = {}  # of each candidate
        self._soonest: dict[str, float] = {}  # seconds until a key of the queue has a token

    @property
    def targets(self) -> set[int]:
        return {target for targets in self._session.gated.values() for target in targets}

    def shut(self) -> set[int]:
        """The targets of which nothing may be claimed now."""
        return {
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

    def candidates(self, limit: int) -> list[tuple[int, int]]:
        """Up to `limit` runs, each with its priority; those that should go first come first."""
        found: list[Candidate] = []
        for queue, targets in self._session.gated.items():
            room = min(limit, self._room(queue))
            if room > 0:
                found += self._of_queue(queue, targets, room)
        found.sort(key=_rank)
        chosen = found[:limit]
        self._lanes = {one.run: one.lane for one in chosen}
        turns = self._tx.context.turns
        if len(turns) > _MOST_TURNS:
            turns.clear()
        for one in chosen:
            turns[one.target, one.priority] = one.lane
        return [(one.priority, one.run) for one in chosen]

    def claimed(self, rows: Iterable[tuple[int, int]]) -> None:
        """Note the runs that have been claimed, each with its target."""
        context = self._tx.context
        starts: dict[str, list[int]] = {}
        for run, target in rows:
            queue = context.closed.get(target)
            if queue is not None:
                context.limited[run] = queue
                starts.setdefault(queue, []).append(self._lanes.get(run, 0))
        for queue, lanes in starts.items():
            self._take_tokens(queue, lanes)
        for queue, wait in self._soonest.items():
            self._wake_for_keys(queue, wait)

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

    def _key_waits(self, queue: str, wait: float) -> None:
        if wait:
            self._soonest[queue] = min(wait, self._soonest.get(queue, wait))

    def _wake_for_keys(self, queue: str, wait: float) -> None:
        for target in self._session.gated[queue]:
            if self._tx.one(_ANY_KEYED, (target,)) is not None:
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
                tx.opens(tx.now + until_one(left, gate.settings.rate))
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
            for lane, left in tokens_of_keys(self._tx, queue, rate).items():
                rooms.lower(lane, int(left))
                self._key_waits(queue, until_one(left, rate))
        return rooms

    def _of_queue(self, queue: str, targets: Sequence[int], room: int) -> list[Candidate]:
        """Runs of a queue, best first: each of its names offers as many as there is room for."""
        rooms = self._rooms_of_keys(queue)
        offered: list[Candidate] = []
        for target in targets:
            offered += self._of_target(target, room, rooms.copy())
        offered.sort(key=_rank)
        chosen: list[Candidate] = []
        for one in offered:
            if len(chosen) < room and rooms.of(one.lane) > 0:
                rooms.take(one.lane)
                chosen.append(one)
        return chosen

    def _of_target(self, target: int, room: int, rooms: Rooms) -> list[Candidate]:
        found: list[Candidate] = []
        priority = _HIGHEST
        while len(found) < room:
            priority = self._tx.one(_NEXT_PRIORITY, (target, priority) * 2)[0]
            if priority is None:
                break
            need = room - len(found)
            rows = self._tx.execute(_PLAIN, (target, priority, need)).fetchall()
            without_key = [run for (run,) in rows]
            lanes = self._lanes_at(target, priority, need, rooms.taken(), [0] if rows else [])
            runs = self._in_lanes(target, priority, lanes, need, rooms)
            runs[0] = without_key
            for turn, one_each in enumerate(zip_longest(*[runs[lane] for lane in lanes])):
                for place, run in enumerate(one_each):
                    if run is not None and len(found) < room:
                        lane = lanes[place]
                        rooms.take(lane)
                        found.append(Candidate(priority, turn, place, run, lane, target))
        return found

    def _lanes_at(
        self, target: int, priority: int, need: int, taken: list[int], without_key: list[int]
    ) -> list[int]:
        """The keys whose turn it is, from the one after that which had the last; 0 = no key."""
        last = self._tx.context.turns.get((target, priority), -1)
        where = (target, priority, need + len(taken) + 1, json.dumps(taken))
        if last < 0:
            return [*without_key, *self._lanes_between(where, 0, _HIGHEST)][:need]
        lanes = [*self._lanes_between(where, last, _HIGHEST), *without_key]
        if last and len(lanes) < need:
            lanes += self._lanes_between(where, 0, last)
        return lanes[:need]

    def _lanes_between(self, where: tuple[int, int, int, str], after: int, last: int) -> list[int]:
        target, priority, most, taken = where
        row = (target, priority, after, target, priority, last, most, last, taken)
        rows = self._tx.execute(_LANES, row).fetchall()
        return [lane for (lane,) in rows]

    def _in_lanes(
        self, target: int, priority: int, lanes: list[int], need: int, rooms: Rooms
    ) -> dict[int, list[int]]:
        """The oldest runs of each key, enough of each that together they fill the need."""
        runs: dict[int, list[int]] = {lane: [] for lane in lanes}
        keys = [lane for lane in lanes if lane]
        each = -(-need // max(len(lanes), 1))
        while keys:
            for lane in keys:
                runs[lane].clear()
            row = (json.dumps(keys), target, priority, each)
            for lane, run in self._tx.execute(_IN_LANES, row).fetchall():
                if len(runs[lane]) < rooms.of(lane):
                    runs[lane].append(run)
            longer = any(len(runs[lane]) == each < rooms.of(lane) for lane in keys)
            if not longer or sum(map(len, runs.values())) >= need:
                break
            each *= 2
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
        session.gated = {}
        for target, address in session.targets.items():
            if target in context.closed or address.queue in session.limits:
                session.gated.setdefault(address.queue, []).append(target)
    return Passage(tx, session) if session.gated else None


def returned(tx: Tx, run: int) -> None:
    """A run that was claimed was not begun: what its start took of rate limits comes back."""
    queue = tx.context.limited.get(run)
    gate = None if queue is None else tx.context.gates.get(queue)
    if queue is None or gate is None:
        return
    if gate.settings.rate is not None:
        take(tx, queue, 0, gate.settings.rate, -1)
    if gate.settings.key_rate is not None:
        lane = tx.one(_LANE_OF, (run,))[0]
        if lane:
            take(tx, queue, lane, gate.settings.key_rate, -1)


def _rank(one: Candidate) -> tuple[int, int, int, int]:
    return (-one.priority, one.turn, one.place, one.run)

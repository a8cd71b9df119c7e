"""The gate: how work is claimed from queues that are paused or limited, and of runs with keys.

Highest priority first; at equal priority the keys of a queue take turns; within a key the oldest
first. How much may run is counted from what is running, so no counter can be left behind by a
crash. Keys with no room are known from that (or from their buckets), and left out before their
backlog is looked at.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

import msgspec

from stepwell_queue.contract import QueueSettings, RateLimit
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import Gate, SessionState, Tx
from stepwell_queue.sqlite.verbs_queue import resume

_LIMITED, _HELD_OF_QUEUE = SQL["running_gated"], SQL["held_of_queue"]
_GATES, _CLOSED, _RUNNING = SQL["gates"], SQL["closed_targets"], SQL["running_in_queue"]
_NEXT_PRIORITY, _PLAIN, _LANES = SQL["next_priority"], SQL["ready_without_key"], SQL["ready_lanes"]
_IN_LANES, _LANE_OF = SQL["ready_in_lanes"], SQL["lane_of"]
_BUCKET, _BUCKETS, _PUT_BUCKET = SQL["bucket"], SQL["buckets_of_keys"], SQL["put_bucket"]
_DROP_FULL: Final = SQL["drop_full_buckets"]
_KEY_TARGET: Final = SQL["key_target"]
_HIGHEST: Final = 2**63 - 1
_MOST_TURNS: Final = 10_000
_decode: Final = msgspec.json.Decoder(QueueSettings).decode


def lane_of(queue: str, key: str) -> int:
    """The number by which a key of a queue is found; 0 is that of no key."""
    digest = hashlib.blake2b(f"{queue}\0{key}".encode("utf-8", "surrogatepass"), digest_size=8)
    return (int.from_bytes(digest.digest(), "big") >> 1) or 1


def close_for_keys(tx: Tx, target: int) -> None:
    """Have work for a target claimed by way of the gate, since a run for it has a key."""
    if target not in tx.context.closed:
        tx.execute(_KEY_TARGET, (target,))
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
        if gate.paused and gate.until is not None:
            tx.opens(gate.until)


class Candidate(NamedTuple):
    """A run that may be claimed, with its turn among those of its priority."""

    priority: int
    turn: int
    place: int  # of its key among those that have this turn
    run: int
    lane: int
    target: int


class Passage:
    """One claim's way through the gates."""

    def __init__(self, tx: Tx, session: SessionState) -> None:
        self._tx, self._session = tx, session
        self._running: dict[str, dict[int, int]] = {}
        self._keys: dict[int, int] = {}  # lane of each candidate

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

    def candidates(self, limit: int) -> list[tuple[int, int]]:
        """Up to `limit` runs, each with its priority; those that should go first come first."""
        found: list[Candidate] = []
        for queue, targets in self._session.gated.items():
            room = min(limit, self._room(queue))
            if room > 0:
                found += self._of_queue(queue, targets, room)
        found.sort(key=_rank)
        chosen = found[:limit]
        self._keys = {one.run: one.lane for one in chosen}
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
                starts.setdefault(queue, []).append(self._keys.get(run, 0))
        for queue, lanes in starts.items():
            gate = context.gates.get(queue)
            if gate is None:
                continue
            if gate.settings.rate is not None:
                take(self._tx, queue, 0, gate.settings.rate, len(lanes))
            if gate.settings.key_rate is not None:
                for lane in set(lanes):
                    if lane:
                        take(self._tx, queue, lane, gate.settings.key_rate, lanes.count(lane))

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
            if gate.until is None or gate.until > tx.now:
                return 0
            resume(tx, queue)
        if gate.settings.limit is not None:
            running = sum(self._running_in(queue).values())
            room = min(room, gate.settings.limit - running)
        if gate.settings.rate is not None and room > 0:
            tokens = _tokens(tx, queue, 0, gate.settings.rate)
            if tokens < 1:
                tx.opens(tx.now + _until_one(tokens, gate.settings.rate))
            room = min(room, int(tokens))
        return room

    def _running_in(self, queue: str) -> dict[int, int]:
        if queue not in self._running:
            self._running[queue] = dict(self._tx.execute(_RUNNING, (queue,)).fetchall())
        return self._running[queue]

    def _of_queue(self, queue: str, targets: Sequence[int], room: int) -> list[Candidate]:
        rooms = self._rooms_of_keys(queue)
        found: list[Candidate] = []
        for target in targets:
            found += self._of_target(target, room, rooms)
        found.sort(key=_rank)
        chosen: list[Candidate] = []
        for one in found:
            left = rooms.get(one.lane, rooms.get(-1, _HIGHEST)) if one.lane else _HIGHEST
            if left > 0 and len(chosen) < room:
                chosen.append(one)
                if left < _HIGHEST:
                    rooms[one.lane] = left - 1
        return chosen

    def _rooms_of_keys(self, queue: str) -> dict[int, int]:
        """How many of a key may be claimed, where it is not as many as of any; -1 = of any."""
        tx, gate = self._tx, self._tx.context.gates.get(queue)
        rooms: dict[int, int] = {}
        if gate is None:
            return rooms
        limit, rate = gate.settings.key_limit, gate.settings.key_rate
        if limit is not None:
            rooms[-1] = limit
            for lane, running in self._running_in(queue).items():
                if lane:
                    rooms[lane] = limit - running
        if rate is not None:
            any_key = min(rooms.get(-1, _HIGHEST), rate.burst)
            rooms[-1] = any_key
            soonest = None
            for lane, tokens, at in tx.execute(_BUCKETS, (queue,)).fetchall():
                now = _filled(tx, queue, lane, tokens, at, rate)
                rooms[lane] = min(rooms.get(lane, any_key), int(now))
                if now < 1:
                    wait = _until_one(now, rate)
                    soonest = wait if soonest is None else min(soonest, wait)
            if soonest is not None:
                tx.opens(tx.now + soonest)
        return rooms

    def _of_target(self, target: int, room: int, rooms: Mapping[int, int]) -> list[Candidate]:
        blocked = json.dumps([lane for lane, left in rooms.items() if left <= 0 and lane > 0])
        skipped = sum(1 for left in rooms.values() if left <= 0)
        most = min(rooms.get(-1, room), room)
        found: list[Candidate] = []
        priority = _HIGHEST
        while len(found) < room:
            priority = self._tx.one(_NEXT_PRIORITY, (target, priority))[0]
            if priority is None:
                break
            need = room - len(found)
            lanes = self._lanes_at(target, priority, need, blocked, skipped)
            left = {lane: min(rooms.get(lane, most), need) for lane in lanes}
            by_lane = self._in_lanes(target, priority, left, need)
            for turn, runs in enumerate(zip_longest(*[by_lane[lane] for lane in lanes])):
                found += [
                    Candidate(priority, turn, place, run, lanes[place], target)
                    for place, run in enumerate(runs)
                    if run is not None
                ]
        return found[:room]

    def _lanes_at(
        self, target: int, priority: int, need: int, blocked: str, skipped: int
    ) -> list[int]:
        """The keys whose turn it is, from the one after that which had the last; 0 = no key."""
        last = self._tx.context.turns.get((target, priority), -1)
        most = need + skipped + 1
        if last < 0:
            return [0, *self._lanes(target, priority, 0, _HIGHEST, most, blocked)][:need]
        lanes = self._lanes(target, priority, last, _HIGHEST, most, blocked)
        lanes.append(0)
        if last and len(lanes) < need:
            lanes += self._lanes(target, priority, 0, last, most, blocked)
        return lanes[:need]

    def _lanes(
        self, target: int, priority: int, after: int, last: int, most: int, blocked: str
    ) -> list[int]:
        key = (target, priority, after, last, most, blocked)
        return [lane for (lane,) in self._tx.execute(_LANES, key).fetchall()]

    def _in_lanes(
        self, target: int, priority: int, left: Mapping[int, int], need: int
    ) -> dict[int, list[int]]:
        """The oldest runs of each key, enough of each that together they fill the need."""
        runs: dict[int, list[int]] = {lane: [] for lane in left}
        if 0 in left:
            rows = self._tx.execute(_PLAIN, (target, priority, need)).fetchall()
            runs[0] = [run for (run,) in rows]
        keys = [lane for lane in left if lane]
        each = -(-need // len(left))
        while keys:
            for lane in keys:
                runs[lane].clear()
            row = (json.dumps(keys), target, priority, each)
            for lane, run in self._tx.execute(_IN_LANES, row).fetchall():
                if len(runs[lane]) < left[lane]:
                    runs[lane].append(run)
            longer = any(len(runs[lane]) == each < left[lane] for lane in keys)
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


# --- token buckets ---


def take(tx: Tx, queue: str, lane: int, rate: RateLimit, count: int) -> None:
    tokens = min(_tokens(tx, queue, lane, rate) - count, float(rate.burst))
    _put(tx, queue, lane, tokens, rate)
    tx.execute(_DROP_FULL, (tx.now,))


def _put(tx: Tx, queue: str, lane: int, tokens: float, rate: RateLimit) -> None:
    full = tx.now + (rate.burst - tokens) * rate.per / rate.count
    tx.execute(_PUT_BUCKET, (queue, lane, tokens, tx.now, full))


def _tokens(tx: Tx, queue: str, lane: int, rate: RateLimit) -> float:
    row = tx.one(_BUCKET, (queue, lane))
    return float(rate.burst) if row is None else _filled(tx, queue, lane, row[0], row[1], rate)


def _filled(tx: Tx, queue: str, lane: int, tokens: float, at: float, rate: RateLimit) -> float:
    """What is in a bucket by now."""
    if at > tx.now:  # the clock was set back: it fills from now on
        _put(tx, queue, lane, tokens, rate)
        return tokens
    return min(tokens + (tx.now - at) * rate.count / rate.per, float(rate.burst))


_NEARLY: Final = 1e-9
"""Of a token: what adding up parts of one may lose."""


def _until_one(tokens: float, rate: RateLimit) -> float:
    return (1 - tokens + _NEARLY) * rate.per / rate.count


def _rank(one: Candidate) -> tuple[int, int, int, int]:
    return (-one.priority, one.turn, one.place, one.run)

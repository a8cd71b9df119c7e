"""Verbs of a server: workers that reach this file through it, and live on when it does not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from stepwell_queue.contract import Identity, InboxRow, Status, Verb
from stepwell_queue.sqlite.pauses import pause_if_asked
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import Target, Tx
from stepwell_queue.sqlite.verbs_claim import promote
from stepwell_queue.sqlite.verbs_worker import (
    COUNT_SWEEP,
    UNREGISTER,
    hand_over,
    number,
    targets_of,
    try_stuck,
)

_ADOPT, _HELD = SQL["adopt"], SQL["held_by_remote"]
_FIND, _ATTACH, _STAND = SQL["find_remote"], SQL["attach"], SQL["fences_at"]
_REGISTER, _FENCES, _HAND_BACK = SQL["register"], SQL["fences_of"], SQL["hand_back_one"]
_TOLD, _LAPSED, _HELD_BY = SQL["told_to"], SQL["remote_lapsed"], SQL["still_held"]


class Remote(msgspec.Struct, frozen=True):
    """A remote worker as it is registered."""

    worker: int
    row: tuple[Any, ...]  # the columns of `workers` after its number
    targets: Mapping[int, Target]
    swept: int

    @property
    def key(self) -> str:
        key: str = self.row[-1]
        return key

    @property
    def until(self) -> float:
        until: float = self.row[6]
        return until


class Attached(msgspec.Struct, frozen=True):
    """How a remote worker was found or registered."""

    remote: Remote
    lost: list[int]  # of what it says that it holds
    inbox: list[InboxRow]  # for what it does hold


class Adopt(Verb[list[Remote]], frozen=True, array_like=True):
    """Take over the workers of the server before, whatever has become of it, for one more lease."""


class Attach(Verb[Attached], frozen=True, array_like=True):
    """Register a remote worker, or find it by its key; it keeps what both sides say it holds.

    What is leased to it and it does not list was claimed by an answer that got lost: it becomes
    ready, and no crash is counted.
    """

    row: tuple[Any, ...]  # the columns of `workers` after its number
    targets: frozenset[Target]
    holds: Mapping[int, int]  # run -> fence


class Lapse(Verb[None], frozen=True, array_like=True):
    """Unregister a remote worker that was not heard of for a lease; its runs are handed over."""

    worker: int


class SweepRemote(Verb[int], frozen=True, array_like=True):
    """Hand over the runs of other servers' workers whose lease has run out; answers how many."""

    living: frozenset[str]  # tokens of processes that live


def adopt(tx: Tx, verb: Adopt) -> list[Remote]:
    context = tx.context
    rows = tx.execute(_ADOPT, (context.token, context.boot, tx.monotonic + context.lease))
    found: list[Remote] = []
    for worker, *row, swept in rows.fetchall():
        queues = msgspec.json.decode(row[7], type=list[str])
        serves = msgspec.json.decode(row[8], type=list[Identity])
        found.append(Remote(worker, tuple(row), number(tx, targets_of(queues, serves)), swept))
    tx.effects.moves += tx.execute(_HELD).fetchall()
    promote(tx)
    return found


def attach(tx: Tx, verb: Attach) -> Attached:
    row, holds = verb.row, verb.holds
    targets = number(tx, verb.targets)
    found = tx.one(_FIND, (row[-1],))
    if found is None:
        tx.execute(_REGISTER, (None, *row))
        worker, swept, served = tx.cursor.lastrowid or 0, 0, []
        promote(tx)
    else:
        worker, *served = found
        changed = (*row[:5], *row[6:9], worker)  # all but when it was registered, and the key
        ((swept,),) = tx.execute(_ATTACH, changed).fetchall()
    if served != [row[7], row[8]]:
        try_stuck(tx, targets)
    _release_others(tx, worker, holds)
    inbox = [InboxRow(*one) for one in tx.execute(_TOLD, (worker,)).fetchall()]
    return Attached(Remote(worker, row, targets, swept), _lost(tx, worker, holds), inbox)


def _release_others(tx: Tx, worker: int, holds: Mapping[int, int]) -> None:
    """Make ready what is leased to it without its knowledge."""
    for run, fence in tx.execute(_FENCES, (worker,)).fetchall():
        if holds.get(run) != fence:
            ((target,),) = tx.execute(_HAND_BACK, (tx.now, run)).fetchall()
            tx.gave_up(run)
            if not pause_if_asked(tx, run):
                tx.made_ready(target)


def _lost(tx: Tx, worker: int, holds: Mapping[int, int]) -> list[int]:
    """What it was relieved of; what it has given up itself, it will say again, and hear of then."""
    rows = tx.execute(_STAND, (json.dumps(list(holds)),)).fetchall()
    mine = {
        run
        for run, status, fence, holder in rows
        if fence == holds[run] and (status != Status.RUNNING or holder == worker)
    }
    return sorted(holds.keys() - mine)


def lapse(tx: Tx, verb: Lapse) -> None:
    for (run,) in tx.execute(_HELD_BY, (verb.worker,)).fetchall():
        tx.gave_up(run)
    hand_over(tx, verb.worker)
    tx.execute(UNREGISTER, (verb.worker,))


def sweep_remote(tx: Tx, verb: SweepRemote) -> int:
    context, count = tx.context, 0
    row = (context.boot, context.token, context.boot, tx.monotonic)
    for worker, token, rebooted, holds in tx.execute(_LAPSED, row).fetchall():
        if rebooted or token not in verb.living:
            count += hand_over(tx, worker)
            tx.execute(UNREGISTER, (worker,))
        elif holds:
            # its server is stopped or starved, and learns from `swept` what its worker has lost
            count += hand_over(tx, worker)
            tx.execute(COUNT_SWEEP, (worker,))
    return count

"""Verbs of the store itself: sessions, leases, due rows."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from stepwell_queue.contract import Ended, Hello, Identity, SayState, Status, Verb
from stepwell_queue.errors import RequestRefused, RunNotFound
from stepwell_queue.sqlite.failures import note_crash
from stepwell_queue.sqlite.pauses import pause_if_asked
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import Context, Target, Tx
from stepwell_queue.sqlite.verbs_claim import promote as promote_due

_REGISTER, UNREGISTER, _HAND_BACK = SQL["register"], SQL["unregister"], SQL["hand_back"]
_SAY_STATE: Final = SQL["say_state"]
_LEASES, _HELD_BY, _HAND_OVER = SQL["leases"], SQL["held_by"], SQL["hand_over"]
_WATCH: Final = SQL["watch"]
_COMPLETED: Final = int(Status.COMPLETED)
_RESTING: Final = (int(Status.HELD), int(Status.STUCK))
_STUCK, _TRY_STUCK = SQL["stuck"], SQL["try_stuck"]
_ORPHANS, COUNT_SWEEP = SQL["orphan_workers"], SQL["count_sweep"]
_ALONE_FROM: Final = 2  # crashes
_LONGEST_BACKOFF: Final = 8  # as a power of two, in seconds


class Watch(Verb[Ended | int], frozen=True, array_like=True):
    """Look at a run within the batch; answers its row number while it has not come to rest.

    Read there, and not on a connection of its own, no end can slip in between look and wait.
    Raises RunNotFound.
    """

    id: str


class Register(Verb[tuple[int, Mapping[int, Target]]], frozen=True, array_like=True):
    """Insert the worker's row; answers its number, and the numbers of what it serves.

    Stuck runs that it has code for become ready. A new worker may come with fitting code; where
    it does not, they are stuck again at once.
    """

    row: tuple[Any, ...]  # the columns of `workers` after its number
    targets: frozenset[Target] = frozenset()  # what it serves


class Release(Verb[None], frozen=True, array_like=True):
    """Unregister a worker; what it still holds becomes ready."""

    worker: int


class Promote(Verb[None], frozen=True, array_like=True):
    """Make ready what is due."""


class Sweep(Verb[int], frozen=True, array_like=True):
    """Hand over the runs of workers that are dead or whose lease has run out; answers how many.

    Remote workers live without the process that serves them: `SweepRemote` is for them.
    """

    dead: frozenset[str]  # tokens of processes whose lock could be taken


def worker_row(
    hello: Hello, context: Context, host: str = "", pid: int = 0, key: str = ""
) -> tuple[Any, ...]:
    """The row of a worker of this process, or of the remote one with this key."""
    return (
        context.token,
        hello.name,
        host if key else socket.gethostname(),
        context.boot,
        pid if key else os.getpid(),
        context.clock.now(),
        time.monotonic() + context.lease,
        msgspec.json.encode(hello.queues).decode(),
        msgspec.json.encode(hello.serves).decode(),
        key,
    )


def targets_of(queues: Iterable[str], serves: Iterable[Identity]) -> frozenset[Target]:
    """What a worker takes work for."""
    serves = list(serves)
    return frozenset(
        Target(queue, name.kind, name.name, name.version) for queue in queues for name in serves
    )


def watch(tx: Tx, verb: Watch) -> Ended | int:
    found = tx.one(_WATCH, (verb.id,))
    if found is None:
        raise RunNotFound(verb.id)
    *ended, expires = found
    if rests(ended[1]):
        return Ended(*ended)
    if expires is not None:
        tx.made_expiring(expires)
    run: int = ended[0]
    return run


def rests(status: int) -> bool:
    return status >= _COMPLETED or status in _RESTING


def register(tx: Tx, verb: Register) -> tuple[int, Mapping[int, Target]]:
    tx.execute(_REGISTER, (None, *verb.row))
    worker = tx.cursor.lastrowid or 0
    targets = number(tx, verb.targets)
    promote_due(tx)
    try_stuck(tx, targets)
    return worker, targets


def number(tx: Tx, targets: frozenset[Target]) -> dict[int, Target]:
    return {tx.target(*target): target for target in sorted(targets)}


def try_stuck(tx: Tx, targets: Mapping[int, Target]) -> None:
    """Make ready the stuck runs for which there is code now."""
    for run, target in tx.execute(_STUCK).fetchall():
        if target in targets:
            tx.execute(_TRY_STUCK, (tx.now, run))
            if not pause_if_asked(tx, run):
                tx.made_ready(target)


def release(tx: Tx, verb: Release) -> None:
    for target, run in tx.execute(_HAND_BACK, (tx.now, verb.worker)).fetchall():
        tx.gave_up(run)
        if not pause_if_asked(tx, run):
            tx.made_ready(target)
    tx.execute(UNREGISTER, (verb.worker,))


def say_state(tx: Tx, verb: SayState) -> None:
    tx.execute(_SAY_STATE, (verb.state, verb.worker))
    if tx.cursor.rowcount == 0:
        raise RequestRefused(f"worker {verb.worker} is not registered: open a session first")


def promote(tx: Tx, verb: Promote) -> None:
    promote_due(tx)


def sweep(tx: Tx, verb: Sweep) -> int:
    count = 0
    for worker, token, boot, until, holds in tx.execute(_LEASES).fetchall():
        if token == tx.context.token:
            continue
        if token in verb.dead or boot != tx.context.boot:
            count += hand_over(tx, worker)
            tx.execute(UNREGISTER, (worker,))
        elif holds and until < tx.monotonic:
            # stopped or starved, not dead: it learns from `swept` what it has lost
            count += hand_over(tx, worker)
            tx.execute(COUNT_SWEEP, (worker,))
    for (worker,) in tx.execute(_ORPHANS).fetchall():
        count += hand_over(tx, worker)
    promote_due(tx)
    return count


def hand_over(tx: Tx, worker: int) -> int:
    """Take away what a worker holds, which has crashed; answers how many runs those are."""
    rows = tx.execute(_HELD_BY, (worker,)).fetchall()
    for run, fence, crashes, last_fence in rows:
        crashes = 0 if last_fence == fence else crashes + 1
        due = None
        if crashes >= _ALONE_FROM:
            due = tx.now + float(2 ** min(crashes, _LONGEST_BACKOFF))
        status = Status.READY if due is None else Status.SCHEDULED
        note_crash(tx, run, fence)
        row = (int(status), due, crashes, tx.now, run, fence, worker)
        for (target,) in tx.execute(_HAND_OVER, row).fetchall():
            if tx.context.limited or tx.context.bounded:
                tx.freed((run,))
            if pause_if_asked(tx, run):
                continue
            if due is None:
                tx.made_ready(target)
            else:
                tx.made_due(due)
    return len(rows)

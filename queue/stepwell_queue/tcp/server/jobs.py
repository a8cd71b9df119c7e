"""A worker's session on the server: what it is told, and what is claimed for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from msgspec.structs import replace

from stepwell_queue.contract import Claim, Claimed, ClaimResult, InboxRow, Record, Reschedule
from stepwell_queue.errors import StoreUnavailable
from stepwell_queue.sqlite.store import SqliteStore
from stepwell_queue.tcp.protocol import (
    PAGE,
    Event,
    Jobs,
    Lost,
    OpenSession,
    Pushed,
    Ready,
    Told,
)

Row = TypeVar("Row", Record, InboxRow)
_AT_ONCE = 256
"""Runs that are claimed in one verb."""
_BESIDE_OTHERS = 32
"""The same, where there are other workers, which shall get their part."""
AT_MOST = 8 * 1024 * 1024
"""Bytes of arguments in one answer to a claim; the runs over that go back, to be claimed next."""
_BESIDE = 64
"""What a row weighs beside its value."""


class Line(Protocol):
    """The connection that a session is on."""

    def tell(self, event: Event) -> None: ...


class Others(Protocol):
    """What a session has to know of the other ones."""

    def alone(self) -> bool:
        """Whether there is no other."""
        ...

    def is_ready(self, worker: RemoteWorker) -> None:
        """Have it filled, after those that have less to do."""
        ...


class RemoteWorker:
    """Implements `SessionEvents` for a worker at the other end of a connection."""

    def __init__(self, store: SqliteStore, others: Others, said: OpenSession) -> None:
        self.number, self.key = said.number, said.key
        self._store, self._others = store, others
        self.worker = 0  # its row in the store, once it is registered
        self._line: Line | None = None
        self._places = said.places
        self.held = set(said.holds)
        self._live = dict(said.keeps)
        self._coming = 0  # at most so many runs are being claimed for its free places
        self._behind = False  # there may be ready work that it had no place for
        self._claiming = 0  # claims that are not answered yet
        self._missed = self._announced = False

    def attach(self, line: Line) -> None:
        self._line = line

    def detach(self) -> None:
        """The connection is gone: what is claimed from now on goes back."""
        self._line = None

    def registered(self, worker: int, lost: Sequence[int]) -> None:
        """Note its row, and what it holds no longer."""
        self.worker = worker
        self.held.difference_update(lost)
        if self._places:  # what became ready until now could not be claimed for it
            self.fill()

    def offer(self, places: int) -> None:
        """It takes so many runs at once; it asks once itself, and is given what comes after."""
        self._places = places

    # --- claims ---

    def claim(self, verb: Claim, done: Callable[[Jobs | Exception], None]) -> None:
        """Claim for the worker, which asks for it."""
        self._announced = False
        self._live = dict(verb.live)
        limit = min(verb.limit, _AT_ONCE)
        if self._places:  # some may be on their way
            limit = min(limit, max(self._places - len(self.held) - self._coming, 0))
        claim = Claim(self.worker, limit, self._live, verb.idle)
        self._submit(claim, partial(self._found, limit, done))

    def _found(
        self, limit: int, done: Callable[[Jobs | Exception], None], answer: ClaimResult | Exception
    ) -> None:
        if isinstance(answer, Exception):
            done(answer)
            return
        behind = self._behind
        jobs = self._taken(answer)
        if not limit:  # it has not looked at all
            self._behind = behind
        if self._places:  # what has no place yet is pushed, and need not be asked for
            jobs = replace(jobs, more=False)
        done(jobs)
        self._go_on()

    def fill(self, leaving: int = 0) -> None:
        """Claim for the places that are free, or will be once what was just said is applied."""
        if self._claiming:
            self._missed = True
            return
        free = self._places - len(self.held) + leaving
        if free <= 0 or self._line is None:
            self._behind = True
            return
        self._coming = min(free, _AT_ONCE if self._others.alone() else _BESIDE_OTHERS)
        try:
            self._submit(Claim(self.worker, self._coming, self._live), self._pushed)
        except StoreUnavailable:  # it is being closed
            self._claiming -= 1
            self._coming = 0

    def _pushed(self, answer: ClaimResult | Exception) -> None:
        self._coming = 0
        if isinstance(answer, Exception):
            self._announce()
            return
        jobs = self._taken(answer)
        if self._line is not None and (jobs.runs or jobs.alone_waiting):
            self._line.tell(Pushed(self.number, replace(jobs, more=False)))
        self._go_on()

    def _submit(self, claim: Claim, done: Callable[[ClaimResult | Exception], None]) -> None:
        self._claiming += 1
        self._missed = False

        def over(answer: ClaimResult | Exception) -> None:
            self._claiming -= 1
            done(answer)

        self._store.submit(claim, over)

    def _taken(self, result: ClaimResult) -> Jobs:
        """Note what the worker gets; if nobody is there any more, it goes back."""
        if self._line is None:
            for claimed in result.runs:
                give_back(self._store, claimed)
            return Jobs((), False, False)
        jobs, too_much = in_pages(result)
        for claimed in jobs.runs:
            self.held.add(claimed.run)
            self._live.pop(claimed.run, None)
        for claimed in too_much:
            give_back(self._store, claimed)
        self._behind = jobs.more
        return jobs

    def _go_on(self) -> None:
        if self._places and (self._missed or self._behind):
            self.fill()

    # --- what the store tells ---

    def on_ready(self) -> None:
        if not self.worker:
            return  # whoever is being registered is going to look for itself
        if self._places:
            self._others.is_ready(self)
        else:
            self._announce()

    @property
    def load(self) -> float:
        """Which part of its places is taken."""
        return len(self.held) / self._places if self._places else 1.0

    def _announce(self) -> None:
        if self._line is not None and not self._announced:
            self._announced = True
            self._line.tell(Ready(self.number))

    def on_claimed(self, result: ClaimResult) -> None:
        """Not called: the store is in this process."""

    def on_inbox(self, rows: Sequence[InboxRow]) -> None:
        if self._line is not None:
            self._line.tell(Told(self.number, rows))

    def on_lost(self, runs: Sequence[int]) -> None:
        self.held.difference_update(runs)
        if self._line is not None:
            self._line.tell(Lost(self.number, runs))

    def on_answered(self) -> None:
        if self._behind and not self._claiming and len(self.held) < self._places:
            self.fill()

    def holds(self) -> dict[int, int]:
        """Not called: only the worker itself knows."""
        return {}

    def keeps(self) -> dict[int, int]:
        """Not called, as above."""
        return {}

    # --- what the worker says ---

    def started(self, run: int) -> None:
        """A run was started for one of its places."""
        self.held.add(run)

    def leaves(self, count: int) -> None:
        """So many runs are given up by what was just said."""
        if self._behind:
            self.fill(count)

    def gave_up(self, run: int) -> None:
        self.held.discard(run)

    def parked(self, run: int, fence: int) -> None:
        """The worker keeps the coroutine, until it says otherwise."""
        self.held.discard(run)
        self._live[run] = fence

    def dropped(self, run: int) -> None:
        self._live.pop(run, None)


def give_back(store: SqliteStore, claimed: Claimed) -> None:
    """Release what was claimed for somebody who has gone."""
    store.submit(Reschedule(claimed.run, claimed.fence, None, unstarted=True), _ignore)


def _ignore(answer: object) -> None:
    """Somebody else has it already, or takes it when the lease is over."""


def in_pages(result: ClaimResult) -> tuple[Jobs, Sequence[Claimed]]:
    """Return what was found, of each run no more than a page, and the runs that are too much."""
    runs = result.runs
    cut: list[int] = []
    room = AT_MOST
    for at, claimed in enumerate(runs):
        room -= len(claimed.args) + len(claimed.error)
        if room < 0 and at:
            return Jobs(runs[:at], True, result.alone_waiting, cut), runs[at:]
        if (claimed.journal or claimed.inbox) and _weight(claimed) > PAGE:
            journal, left = first(claimed.journal, PAGE)
            whole = len(journal) == len(claimed.journal)
            inbox = first(claimed.inbox, left)[0] if whole else ()
            if not whole or len(inbox) < len(claimed.inbox):
                if not cut:
                    runs = list(runs)
                runs[at] = replace(claimed, journal=journal, inbox=inbox)
                cut.append(claimed.run)
    return Jobs(runs, result.more, result.alone_waiting, cut), ()


def _weight(claimed: Claimed) -> int:
    rows = len(claimed.journal) + len(claimed.inbox)
    return (
        sum([len(record.value) for record in claimed.journal])
        + sum([len(row.value) for row in claimed.inbox])
        + _BESIDE * rows
    )


def first(rows: Sequence[Row], room: int) -> tuple[Sequence[Row], int]:
    """Return the rows at the beginning that fit into so many bytes, and how many are left."""
    count = 0
    for row in rows:
        room -= len(row.value) + _BESIDE
        if room < 0:
            break
        count += 1
    return rows[:count], max(room, 0)

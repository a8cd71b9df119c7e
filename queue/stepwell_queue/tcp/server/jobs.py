"""A worker's session on the server: what it is told, and what is claimed for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from msgspec.structs import replace

from stepwell_queue.contract import Claim, Claimed, ClaimResult, InboxRow, Record, Reschedule
from stepwell_queue.errors import StoreUnavailable
from stepwell_queue.sqlite.store import SqliteStore
from stepwell_queue.tcp.protocol import PAGE, Event, Jobs, Lost, Pushed, Ready, Told

Row = TypeVar("Row", Record, InboxRow)
_AT_ONCE = 256
"""Runs that are claimed in one verb."""
AT_MOST = 8 * 1024 * 1024
"""Bytes of arguments in one answer to a claim; the runs over that go back, to be claimed next."""
_BESIDE = 64
"""What a row weighs beside its value."""


class Line(Protocol):
    """The connection that a session is on."""

    def tell(self, event: Event) -> None: ...


class RemoteWorker:
    """Implements `SessionEvents` for a worker at the other end of a connection."""

    def __init__(self, store: SqliteStore, number: int, key: str, keeps: Mapping[int, int]) -> None:
        self.number, self.key, self._store = number, key, store
        self.worker = 0  # its row in the store, once it is registered
        self._line: Line | None = None
        self._live = dict(keeps)
        self._credit = 0
        self._claiming = self._missed = self._announced = False

    def attach(self, line: Line) -> None:
        self._line = line

    def detach(self) -> None:
        """The connection is gone: what is claimed from now on goes back."""
        self._line = None
        self._credit = 0

    # --- claims ---

    def claim(self, verb: Claim, done: Callable[[Jobs | Exception], None]) -> None:
        """Claim for the worker, which asks for it; what is left of the limit becomes credit."""
        self._credit = 0
        self._announced = False
        self._live = dict(verb.live)
        credit = verb.limit if verb.push else 0
        limit = min(verb.limit, _AT_ONCE)
        claim = Claim(self.worker, limit, self._live, verb.idle)
        self._submit(claim, partial(self._found, credit, done))

    def _found(
        self, credit: int, done: Callable[[Jobs | Exception], None], answer: ClaimResult | Exception
    ) -> None:
        if isinstance(answer, Exception):
            done(answer)
            return
        jobs = self._taken(answer)
        if jobs is None:
            done(Jobs((), False, False))
            return
        done(jobs)
        if not (jobs.more or jobs.alone_waiting):
            self._credit = credit - len(jobs.runs)
            if self._missed:
                self.on_ready()

    def _taken(self, result: ClaimResult) -> Jobs | None:
        """Note what the worker gets; None if nobody is there any more, and it goes back."""
        if self._line is None:
            for claimed in result.runs:
                give_back(self._store, claimed)
            return None
        jobs, too_much = in_pages(result)
        for claimed in jobs.runs:
            self._live.pop(claimed.run, None)
        for claimed in too_much:
            give_back(self._store, claimed)
        return jobs

    def _submit(self, claim: Claim, done: Callable[[ClaimResult | Exception], None]) -> None:
        self._claiming, self._missed = True, False

        def over(answer: ClaimResult | Exception) -> None:
            self._claiming = False
            done(answer)

        self._store.submit(claim, over)

    def _pushed(self, answer: ClaimResult | Exception) -> None:
        if isinstance(answer, Exception):
            self._announce()
            return
        jobs = self._taken(answer)
        if jobs is None or self._line is None:
            return
        self._credit = max(self._credit - len(jobs.runs), 0)
        if jobs.runs or jobs.alone_waiting:
            self._line.tell(Pushed(self.number, jobs))
        if self._missed or jobs.more:
            self.on_ready()

    def started(self) -> None:
        """A run was started for one of its free places."""
        self._credit = max(self._credit - 1, 0)

    # --- what the store tells ---

    def on_ready(self) -> None:
        if not self.worker:
            return  # whoever is being registered is going to look for itself
        if self._claiming:
            self._missed = True
        elif self._line is not None and self._credit > 0:
            claim = Claim(self.worker, min(self._credit, _AT_ONCE), self._live)
            try:
                self._submit(claim, self._pushed)
            except StoreUnavailable:  # it is being closed
                self._claiming = False
        else:
            self._announce()

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
        if self._line is not None:
            self._line.tell(Lost(self.number, runs))

    def on_answered(self) -> None:
        """Nothing to do: the server sends what there is after each batch."""

    def holds(self) -> dict[int, int]:
        """Not called: only the worker itself knows."""
        return {}

    def keeps(self) -> dict[int, int]:
        """Not called, as above."""
        return {}

    # --- what the worker says ---

    def parked(self, run: int, fence: int) -> None:
        """The worker keeps the coroutine, until it says otherwise."""
        self._live[run] = fence

    def dropped(self, run: int) -> None:
        self._live.pop(run, None)


def give_back(store: SqliteStore, claimed: Claimed) -> None:
    """Release what was claimed for somebody who has gone."""
    store.submit(Reschedule(claimed.run, claimed.fence, None), _ignore)


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
            inbox, _ = first(claimed.inbox, left) if whole else ([], 0)
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

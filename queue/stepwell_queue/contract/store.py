"""The store itself: what is said to it, and what it tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from stepwell_queue.clock import Clock
from stepwell_queue.contract.notes import Follower
from stepwell_queue.contract.queries import Query
from stepwell_queue.contract.rows import InboxRow
from stepwell_queue.contract.verbs import ClaimResult, Verb
from stepwell_queue.contract.views import (
    Ended,
    Finding,
    Hello,
    History,
    RunFilter,
    RunInfo,
    WorkerInfo,
)

R = TypeVar("R")


class SessionEvents(Protocol):
    """What the store tells a session, on the loop, after the commit that caused it."""

    def on_ready(self) -> None:
        """Ready work that this session could claim has appeared (a hint; it may be gone)."""
        ...

    def on_inbox(self, rows: Sequence[InboxRow]) -> None:
        """Rows for runs that this session holds. A row may be told twice."""
        ...

    def on_lost(self, runs: Sequence[int]) -> None:
        """These runs were claimed by somebody else, or ended from outside."""
        ...

    def on_claimed(self, result: ClaimResult) -> None:
        """Runs that a broker claimed for this session, which has offered places."""
        ...

    def on_answered(self) -> None:
        """The callbacks of all verbs that were answered together have been called."""
        ...

    def holds(self) -> Mapping[int, int]:
        """Return the runs that this session holds, each with its fence."""
        ...

    def keeps(self) -> Mapping[int, int]:
        """Return the parked runs whose coroutines it keeps, each with the fence it parked at."""
        ...


class Session(Protocol):
    """A registered worker: its lease is beaten by a thread of its own while it holds anything."""

    @property
    def worker(self) -> int: ...

    def offer(self, places: int) -> None:
        """Say how many runs the worker takes at once; 0 = none, until it asks.

        A broker claims for the places that are free, as work becomes ready, and tells it by
        `on_claimed`; a store in the same process tells `on_ready`.
        """
        ...

    def dropped(self, run: int) -> None:
        """Say that the worker no longer keeps the coroutine of a run that it parked."""
        ...

    async def close(self) -> None:
        """Unregister; whatever it still holds becomes ready at once, with no crash counted."""
        ...


class Store(Protocol):
    """Durable runs, journals and inboxes. All methods are called on the loop that opened it."""

    @property
    def clock(self) -> Clock:
        """The clock by which it decides what is due, and by which all times are to be made."""
        ...

    def submit(self, verb: Verb[R], done: Callable[[R | Exception], None]) -> None:
        """Put a verb into the open batch. Raises at once if the verb is malformed or too large."""
        ...

    def flush(self) -> None:
        """Commit what is waiting now, not in the next turn of the loop.

        Does nothing while a commit is on its way. The commit and its callbacks may happen inside
        the call.
        """
        ...

    async def do(self, verb: Verb[R]) -> R:
        """Submit and wait; raises what refused it."""
        ...

    async def open_session(self, hello: Hello, events: SessionEvents) -> Session: ...

    async def info(self, id: str) -> RunInfo | None: ...

    async def wait_ended(self, id: str) -> Ended:
        """Return once the run is terminal, HELD or STUCK (at once if it is).

        Pushed, not polled. Raises RunNotFound.
        """
        ...

    def follow(self, id: str, run: int) -> Follower:
        """Hear of news of a run: what it says, and what happens to it. `run`: its number.

        Pushed, not polled; what another process writes into a file may take a second.
        """
        ...

    async def list_runs(self, filter: RunFilter) -> list[RunInfo]: ...

    async def history(self, id: str) -> History | None: ...

    async def workers(self) -> list[WorkerInfo]: ...

    async def doctor(self) -> list[Finding]: ...

    async def read(self, query: Query[R]) -> R:
        """Answer a question, from what is committed. Raises ValueError, RunNotFound."""
        ...

    async def close(self) -> None:
        """Commit what was submitted, then close.

        Verbs submitted later are refused with StoreUnavailable.
        """
        ...

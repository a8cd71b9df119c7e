"""The embedded store: one SQLite file, shared by the processes of one machine."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from stepwell_queue.answer import settle
from stepwell_queue.clock import Clock, Ids
from stepwell_queue.contract import (
    AnyVerb,
    Ended,
    Finding,
    Hello,
    History,
    InboxRow,
    Query,
    Record,
    RunFilter,
    RunInfo,
    SessionEvents,
    Verb,
    WorkerInfo,
)
from stepwell_queue.errors import StoreUnavailable
from stepwell_queue.sqlite import forks
from stepwell_queue.sqlite.apply import Batch
from stepwell_queue.sqlite.beat import Beat
from stepwell_queue.sqlite.checkpoint import Checkpointer
from stepwell_queue.sqlite.connection import Connect, Durability, connect
from stepwell_queue.sqlite.doctor import examine
from stepwell_queue.sqlite.files import Files, open_files
from stepwell_queue.sqlite.followers import Listener, SqliteFollower
from stepwell_queue.sqlite.group import GroupCommit
from stepwell_queue.sqlite.hub import Hub, Watcher
from stepwell_queue.sqlite.neighbours import Neighbours
from stepwell_queue.sqlite.presence import is_held
from stepwell_queue.sqlite.queries import answer
from stepwell_queue.sqlite.reads import Reads, WorkerRow
from stepwell_queue.sqlite.remote import RemoteSessions
from stepwell_queue.sqlite.session import SqliteSession
from stepwell_queue.sqlite.tx import Effects, SessionState
from stepwell_queue.sqlite.verbs_worker import Register, Release, Sweep, targets_of, worker_row

R = TypeVar("R")
_BEAT_WAIT = 5.0  # seconds that a beat waits for the write lock


class SqliteStore:
    """Implements `Store` on one file."""

    def __init__(self, path: Path, durability: Durability, files: Files) -> None:
        self._presence, self._turn, self._context, self._writer = files
        self.clock = self._context.clock
        self.memory = self._context.boot if durability == "process" else ""
        """Changes when a power cut may have taken what was acknowledged."""
        self._loop = asyncio.get_running_loop()
        # not the loop's own pool: user code may fill that, and a dead worker would wait
        self._executor = ThreadPoolExecutor(1, "stepwell-store")
        self._reads = Reads(path, self._is_alive)
        self._hub = Hub(self._context, self._reads, self._push)
        self._neighbours = Neighbours(
            self._context,
            self._presence,
            self._reads,
            self._hub,
            self._executor,
            self._push,
        )
        self._beat = Beat(
            lambda: connect(path, "process", wait=_BEAT_WAIT),
            self._context,
            self._hub.held,
            self._on_swept,
        )
        self._checkpointer = Checkpointer(
            lambda wait: connect(path, durability, wait=wait),
            self._executor,
            short=durability == "full",
        )
        self._group = GroupCommit(
            self._writer,
            self._context,
            inline=durability == "process",
            before=self._before,
            after=self._after,
            pause=self._checkpointer.pause,
        )
        self.submit: Callable[..., None] = self._group.submit
        self.flush: Callable[[], None] = self._group.flush
        self.answered: Callable[[], None] | None = None
        """Called when all has been told that a batch brings: answers, and what follows of it."""
        self.remote = RemoteSessions(
            self._context, self._presence, self._hub, self._group.push, self._executor
        )
        self._closed = False
        self._forked = self._left_something = False
        forks.watch(self)

    async def join(self) -> None:
        await self._neighbours.join()

    def _before(self, effects: Effects) -> None:
        self._hub.before(effects)
        if self._hub.held and not self._beat.active:
            self._beat.wake()

    def _after(self, effects: Effects, batch: Batch, size: int) -> None:
        for session in self._context.sessions.values():
            session.events.on_answered()
        self._hub.after(effects)
        if self._hub.followers.any:
            self._hub.followers.after(effects, batch)
        if self.answered is not None:
            self.answered()
        if not self._context.alone:
            self._neighbours.tell(effects)
        self._checkpointer.note(len(batch), size)

    def _push(self, verb: AnyVerb, done: Callable[[Any], None]) -> None:
        if not self._closed:
            self._group.push(verb, done)

    def _on_swept(self, session: SessionState) -> None:
        self._loop.call_soon_threadsafe(
            lambda: self._hub.spawn(self._hub.find_lost(session)),
        )

    def _is_alive(self, row: WorkerRow) -> bool:
        if row.token == self._context.token:
            return not row.key or self.remote.is_alive(row.worker)
        held = is_held(row.token)
        if row.key:  # an idle lease is not written, but its server knows
            held = held or row.until > time.monotonic()
        return row.boot == self._context.boot and held is not False

    async def do(self, verb: Verb[R]) -> R:
        return await self._answer(verb, self.submit)

    async def _answer(self, verb: Verb[R], submit: Callable[..., None]) -> R:
        answer: asyncio.Future[R] = self._loop.create_future()
        submit(verb, partial(settle, answer))
        return await answer

    async def open_session(self, hello: Hello, events: SessionEvents) -> SqliteSession:
        self._check_open()
        targets = targets_of(hello.queues, hello.serves)
        await self._neighbours.refresh()
        await self._answer(Sweep(frozenset()), self._group.push)
        await self._answer(self._neighbours.sweep_remote(), self._group.push)
        row = worker_row(hello, self._context)
        worker, numbered = await self._answer(Register(row, targets), self._group.push)
        self._hub.enter(SessionState(worker, row, numbered, events, hello.limits))
        return SqliteSession(worker, self._end_session)

    async def _end_session(self, worker: int) -> None:
        if worker not in self._context.sessions or self._closed:
            return
        self._hub.leave(worker)
        await self._answer(Release(worker), self._group.push)

    async def info(self, id: str) -> RunInfo | None:
        self._check_open()
        return await self._reads.info(id)

    async def wait_ended(self, id: str) -> Ended:
        self._check_open()
        return await self._hub.wait_ended(id)

    def watch(self, id: str, done: Callable[[Ended | Exception], None]) -> Watcher:
        """Call `done` as `wait_ended` would return or raise; `forget` says that nobody waits."""
        self._check_open()
        return self._hub.watch(id, done)

    def forget(self, watcher: Watcher) -> None:
        self._hub.forget(watcher)

    def follow(self, id: str, run: int) -> SqliteFollower:
        self._check_open()
        return SqliteFollower(self._hub.followers, id, run)

    def listen(self, id: str, run: int, tell: Callable[[], None]) -> Listener:
        """Call `tell` whenever there may be news of a run, until the listener leaves."""
        self._check_open()
        return self._hub.followers.enter(id, run, tell)

    async def list_runs(self, filter: RunFilter) -> list[RunInfo]:
        self._check_open()
        return await self._reads.list_runs(filter)

    async def history(self, id: str) -> History | None:
        self._check_open()
        return await self._reads.history(id)

    async def journal_page(self, run: int, seq: int, size: int) -> tuple[list[Record], bool]:
        """Read records from `seq` on, and whether there are more.

        At least one, if there is one, and at most about `size` bytes of values.
        """
        self._check_open()
        return await self._reads.journal_page(run, seq, size)

    async def inbox_page(self, run: int, after: int, size: int) -> tuple[list[InboxRow], bool]:
        """Read what a run has not absorbed, after that number, as `journal_page` does."""
        self._check_open()
        return await self._reads.inbox_page(run, after, size)

    async def workers(self) -> list[WorkerInfo]:
        self._check_open()
        return await self._reads.workers()

    async def doctor(self) -> list[Finding]:
        self._check_open()
        return await examine(self._reads)

    async def read(self, query: Query[R]) -> R:
        self._check_open()
        return await answer(self._reads, query)

    def _check_open(self) -> None:
        if self._forked:
            raise StoreUnavailable(_FORKED)
        if self._closed:
            raise StoreUnavailable("the store is closed")

    async def close(self) -> None:
        """Commit what was submitted, then close. Verbs submitted later are refused."""
        if self._closed or self._forked:
            return
        self._closed = True
        self.remote.stop()
        released: list[object] = []
        for worker, session in list(self._context.sessions.items()):
            self._context.leave(worker)
            if session.heard is None:
                self._group.push(Release(worker), released.append)
        await self._group.close()
        self._left_something = any(isinstance(one, Exception) for one in released)
        self._neighbours.close()
        await self._hub.close()
        await self._checkpointer.close()
        await self._reads.close()
        await self._loop.run_in_executor(self._executor, self._close_files)
        self._executor.shutdown(wait=False)
        forks.forget(self)

    def _close_files(self) -> None:
        self._beat.stop()
        self._writer.stop()
        self._turn.close()
        if self._left_something:
            self._presence.let_go()  # the unlocked file tells the others that this one is dead
        else:
            self._presence.unregister()

    def after_fork(self) -> None:
        self._forked = True
        self.submit = self.flush = _refuse_in_child
        self._group.closed_because = _FORKED
        self._presence.let_go()
        self._neighbours.let_go()
        self._turn.close()


_FORKED = (
    "this store was opened before the process forked, and a database cannot be used across a fork: "
    "open a store of its own in the child"
)


def _refuse_in_child(*arguments: object) -> None:
    raise StoreUnavailable(_FORKED)


async def open_sqlite(
    path: Path,
    *,
    durability: Durability,
    clock: Clock,
    ids: Ids,
    lease: float,
    factory: Connect = sqlite3.connect,
) -> SqliteStore:
    """`factory` makes the writing connection; a test may put a faulty one here."""
    path = await asyncio.to_thread(path.absolute)
    files = await asyncio.to_thread(open_files, path, durability, clock, ids, lease, factory)
    store = SqliteStore(path, durability, files)
    await store.join()
    return store

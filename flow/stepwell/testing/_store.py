"""The store of the test kit: the embedded one, whose process may die after a certain commit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any, TypeVar

from stepwell.testing._clock import NothingDue, VirtualClock
from stepwell_queue.clock import Ids
from stepwell_queue.contract import Ended, History, Query, RunFilter, RunInfo, Status
from stepwell_queue.errors import RunNotFound
from stepwell_queue.sqlite.apply import Batch, Outage
from stepwell_queue.sqlite.files import Files, open_files
from stepwell_queue.sqlite.followers import SqliteFollower
from stepwell_queue.sqlite.store import SqliteStore
from stepwell_queue.sqlite.writer import Applied, Writer

R = TypeVar("R")
LEASE = 1000.0  # seconds of real time: no test waits for the end of one


class MortalWriter(Writer):
    """Counts commits; the process dies when it wants to write more than so many."""

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer._connect, writer._context, writer._turn)
        self.commits = 0
        self.dead = False
        self.dies_after: int | None = None
        self._died: Callable[[], None] = lambda: None

    def count_from_here(self, dies_after: int | None, died: Callable[[], None]) -> None:
        self.commits, self.dies_after, self._died = 0, dies_after, died

    def apply(self, batch: Batch) -> Applied:
        # Death comes as late as it can: what was done since the last write that is kept is lost.
        if self.commits == self.dies_after and not self.dead:
            self.dead = True
            self._died()
        if self.dead:
            raise Outage("the process is dead")
        applied = super().apply(batch)
        self.commits += 1
        return applied


class KitStore(SqliteStore):
    """Lets time pass while somebody waits for the end of a run, or for news of one."""

    virtual: VirtualClock
    writer: MortalWriter
    check: Callable[[], None]
    """Raises what is known to be wrong with the code of a run that has ended."""
    _reading = 0

    @property
    def busy(self) -> bool:
        """Whether something is being written or read."""
        group = self._group
        writing = bool(group._busy or group._scheduled or group._open)
        return writing or self._reading > 0 or bool(self._hub._tasks)

    def dies_after(self, commits: int | None, died: Callable[[], None]) -> None:
        """Count commits from here on, and die of the one after so many; None = live on."""

        def silenced() -> None:
            self._group._delay = 1.0  # as after a failure that was logged, so that none is
            died()

        self.writer.count_from_here(commits, silenced)

    async def wait_ended(self, id: str) -> Ended:
        ended = await self.while_time_passes(id, super().wait_ended(id))
        self.check()
        return ended

    def follow(self, id: str, run: int) -> SqliteFollower:
        follower = KitFollower(self._hub.followers, id, run)
        follower.store = self
        return follower

    async def while_time_passes(self, id: str, come: Coroutine[Any, Any, R]) -> R:
        """Wait for what becomes of a run, and let time pass. Raises NothingDue."""
        coming = asyncio.ensure_future(come)
        with self.virtual.passing() as wait:
            try:
                some: set[asyncio.Future[Any]] = {coming, wait.over}
                await asyncio.wait(some, return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    raise await self.for_nothing(id, wait.over.result())
            finally:
                coming.cancel()
        return coming.result()

    async def for_nothing(self, id: str, why: str) -> Exception:
        """Return what says why nothing more becomes of a run."""
        info = await super().info(id)
        if info is None:
            return RunNotFound(id)
        status = Status(info.status).name.lower()
        waits = f" and waits for {info.waiting}" if info.waiting else ""
        return NothingDue(f"run {id!r} cannot go on: {why}. It is {status}{waits}")

    @contextlib.contextmanager
    def _read(self) -> Generator[None, None, None]:
        self._reading += 1
        try:
            yield
        finally:
            self._reading -= 1

    async def info(self, id: str) -> RunInfo | None:
        with self._read():
            return await super().info(id)

    async def list_runs(self, filter: RunFilter) -> list[RunInfo]:
        with self._read():
            return await super().list_runs(filter)

    async def history(self, id: str) -> History | None:
        with self._read():
            return await super().history(id)

    async def read(self, query: Query[R]) -> R:
        with self._read():
            return await super().read(query)


class KitFollower(SqliteFollower):
    """Lets time pass while somebody waits for news."""

    store: KitStore

    async def news(self) -> None:
        await self.store.while_time_passes(self._listener.id, super().news())


def scratch() -> Path:
    """Make a folder, in memory where there is a file system for that: closing a file syncs it."""
    memory = Path("/dev/shm")
    there = memory if os.access(memory, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="stepwell-test-", dir=there))


async def open_kit_store(path: Path, clock: VirtualClock, ids: Ids) -> KitStore:
    """Open a file as the embedded store does that survives the death of its process."""

    def open_all() -> tuple[Files, MortalWriter]:
        files = open_files(path, "process", clock, ids, LEASE, sqlite3.connect)
        writer = MortalWriter(files.writer)
        files.writer.stop()
        return files._replace(writer=writer), writer

    files, writer = await asyncio.to_thread(open_all)
    store = KitStore(path, "process", files)
    store.virtual, store.writer = clock, writer
    await store.join()
    return store

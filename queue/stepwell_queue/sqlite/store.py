"""The embedded store: one SQLite file, shared by the processes of one machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from stepwell_queue.clock import Clock, Ids
from stepwell_queue.contract import (
    AnyVerb,
    Finding,
    Hello,
    History,
    RunFilter,
    RunInfo,
    SessionEvents,
    Verb,
    WorkerInfo,
)
from stepwell_queue.errors import StoreUnavailable
from stepwell_queue.sqlite.connection import Durability, connect
from stepwell_queue.sqlite.group import GroupCommit
from stepwell_queue.sqlite.hub import Hub
from stepwell_queue.sqlite.machine import boot_id
from stepwell_queue.sqlite.reads import Reads
from stepwell_queue.sqlite.schema import prepare
from stepwell_queue.sqlite.turn import Turn
from stepwell_queue.sqlite.tx import Context, Effects, SessionState, Target
from stepwell_queue.sqlite.verbs_worker import Promote, Register, Release
from stepwell_queue.sqlite.writer import Writer

R = TypeVar("R")


class SqliteSession:
    """A registered worker of this process."""

    def __init__(self, store: SqliteStore, worker: int) -> None:
        self._store, self._worker = store, worker
        self._closed = False

    @property
    def worker(self) -> int:
        return self._worker

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._store.end_session(self._worker)


class SqliteStore:
    """Implements `Store` on one file."""

    def __init__(
        self, path: Path, durability: Durability, clock: Clock, ids: Ids, lease: float
    ) -> None:
        self._path, self._ids = path, ids
        self._context = Context(clock, boot_id(), f"{ids.nonce():016x}", lease)
        self._turn = Turn(Path(f"{path}-turn"))
        self._writer = Writer(lambda: connect(path, durability), self._context, self._turn)
        self._reads = Reads(path, self._is_alive)
        self._hub = Hub(self._context, self._reads, self._promote)
        self._group = GroupCommit(
            self._writer,
            self._context,
            inline=durability == "process",
            before=self._hub.before,
            after=self._after,
            pause=lambda resume: False,
        )
        self.submit = self._group.submit
        self._closed = False

    def _after(self, effects: Effects) -> None:
        self._hub.after(effects)

    def _promote(self) -> None:
        self._push(Promote(), lambda result: None)

    def _push(self, verb: AnyVerb, done: Callable[[Any], None]) -> None:
        try:
            self._group.push(verb, done)
        except StoreUnavailable as closed:
            done(closed)

    def _is_alive(self, token: str, boot: str, until: float) -> bool:
        return token == self._context.token

    async def do(self, verb: Verb[R]) -> R:
        return await self._answer(verb, self.submit)

    async def _answer(
        self, verb: Verb[R], submit: Callable[[AnyVerb, Callable[[Any], None]], None]
    ) -> R:
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()

        def done(result: Any) -> None:
            if answer.done():
                return
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(cast("R", result))

        submit(verb, done)
        return await answer

    async def open_session(self, hello: Hello, events: SessionEvents) -> SqliteSession:
        targets = frozenset(
            Target(queue, name.kind, name.name, name.version)
            for queue in hello.queues
            for name in hello.serves
        )
        worker = await self._answer(Register(hello), self._group.push)
        self._context.sessions[worker] = SessionState(worker, targets, events)
        if self._context.next_due != float("inf"):
            self._hub.arm(self._context.next_due)
        return SqliteSession(self, worker)

    async def end_session(self, worker: int) -> None:
        self._context.sessions.pop(worker, None)
        if not self._context.sessions:
            self._hub.disarm()
        if not self._closed:
            await self._answer(Release(worker), self._group.push)

    async def info(self, id: str) -> RunInfo | None:
        return await self._reads.info(id)

    async def wait_ended(self, id: str) -> RunInfo:
        return await self._hub.wait_ended(id)

    async def list_runs(self, filter: RunFilter) -> list[RunInfo]:
        return await self._reads.list_runs(filter)

    async def history(self, id: str) -> History | None:
        return await self._reads.history(id)

    async def workers(self) -> list[WorkerInfo]:
        return await self._reads.workers()

    async def doctor(self) -> list[Finding]:
        raise NotImplementedError

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._group.close()
        await self._hub.close()
        await self._reads.close()
        await asyncio.to_thread(self._writer.stop)
        self._turn.close()


def _create(path: Path, durability: Durability) -> None:
    turn = Turn(Path(f"{path}-turn"))
    try:
        with turn.taken(True):
            db = connect(path, durability, wait=30.0)
            try:
                prepare(db, path)
            finally:
                db.close()
    finally:
        turn.close()


async def open_sqlite(
    path: Path, *, durability: Durability, clock: Clock, ids: Ids, lease: float
) -> SqliteStore:
    await asyncio.to_thread(_create, path, durability)
    return SqliteStore(path, durability, clock, ids, lease)

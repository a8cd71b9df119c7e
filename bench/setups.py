"""Where a sample happens: in one process with its file, or in several around a server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Protocol

import msgspec

from bench.meter import commits
from bench.peer import Peer, peer
from bench.spec import Spec, Usage
from stepwell import Access, Stepwell


class Drains(Protocol):
    """One worker, or several."""

    async def drain(self) -> None:
        """Return once nothing that they could do now is left."""
        ...


class Look(msgspec.Struct, frozen=True):
    """What has been used so far: transactions, and the time and memory of other processes."""

    commits: int
    server: Usage | None = None
    workers: Sequence[Usage] = ()


class Setup(Protocol):
    """The processes of one sample, the warm-up included."""

    def app(self, spec: Spec, file: Path) -> AbstractAsyncContextManager[Stepwell]:
        """Open a file, which may be new, for the client."""
        ...

    def working(self, app: Stepwell, spec: Spec) -> AbstractAsyncContextManager[Drains]:
        """Have work done."""
        ...

    async def look(self, app: Stepwell) -> Look: ...


class Embedded:
    """Client, worker and file in this process."""

    def app(self, spec: Spec, file: Path) -> AbstractAsyncContextManager[Stepwell]:
        return Stepwell(file, durability=spec.durability)

    def working(self, app: Stepwell, spec: Spec) -> AbstractAsyncContextManager[Drains]:
        return app.worker(concurrency=spec.concurrency)

    async def look(self, app: Stepwell) -> Look:
        return Look(commits(app.engine.store))


class Tcp:
    """The file in a server's process; workers in this one, or in some of their own."""

    def __init__(self, server: Peer, workers: Sequence[Peer]) -> None:
        self._server, self._workers = server, workers
        self._address = ""

    @contextlib.asynccontextmanager
    async def app(self, spec: Spec, file: Path) -> AsyncGenerator[Stepwell]:
        self._address = await self._server.tell("open", str(file), spec.durability)
        async with Stepwell(self._address, access=Access()) as app:
            yield app
        await self._server.tell("close")

    @contextlib.asynccontextmanager
    async def working(self, app: Stepwell, spec: Spec) -> AsyncGenerator[Drains]:
        if not self._workers:
            async with app.worker(concurrency=spec.concurrency) as worker:
                yield worker
            return
        # Their places are as many as the clients, so that none of them can take all.
        places = -(-spec.concurrency // len(self._workers))
        await self._tell_workers("open", self._address, places)
        yield self
        await self._tell_workers("close")

    async def drain(self) -> None:
        await self._tell_workers("drain")

    async def _tell_workers(self, command: str, *arguments: object) -> None:
        await asyncio.gather(*(worker.tell(command, *arguments) for worker in self._workers))

    async def look(self, app: Stepwell) -> Look:
        server, *workers = await asyncio.gather(
            *(one.look() for one in (self._server, *self._workers))
        )
        return Look(server.commits, server, workers)


@contextlib.asynccontextmanager
async def setup_of(spec: Spec) -> AsyncGenerator[Setup]:
    """Start the processes that a sample needs besides this one."""
    if spec.mode == "embedded":
        yield Embedded()
        return
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(peer("bench.server"))
        workers = [
            await stack.enter_async_context(peer("bench.worker")) for _ in range(spec.workers)
        ]
        yield Tcp(server, workers)

"""A server with a proxy before it, and what is said to it: by stores, or byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from stepwell_queue import (
    Claimed,
    ClaimResult,
    Hello,
    Identity,
    RandomIds,
    Session,
    SystemClock,
    open_store,
)
from stepwell_queue.tcp.client.store import TcpStore
from stepwell_queue.tcp.frames import Frames
from stepwell_queue.tcp.protocol import (
    FRAME_LIMIT,
    MAGIC,
    REQUESTS,
    VERSION,
    Greeting,
    Turned,
    Welcome,
    decode_answers,
    decode_welcome,
    encode,
    framed,
)
from stepwell_queue.tcp.server import Server
from tests.serving import serving, url_of
from tests.store.kit import TASK, WORKFLOW, Bench, Listener
from tests.tcp.proxy import Proxy, proxy_to

LONG = 10.0  # seconds after which a test that waits for an event has failed


class Holder(Listener):
    """A session's ears, which knows what it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[int, int] = {}
        self.pushed: asyncio.Queue[Claimed] = asyncio.Queue()

    def on_claimed(self, result: ClaimResult) -> None:
        for claimed in result.runs:
            self.held[claimed.run] = claimed.fence
            self.pushed.put_nowait(claimed)

    def on_lost(self, runs: Sequence[int]) -> None:
        for run in runs:
            self.held.pop(run, None)
        super().on_lost(runs)

    def holds(self) -> dict[int, int]:
        return dict(self.held)

    async def take(self) -> Claimed:
        async with asyncio.timeout(LONG):
            return await self.pushed.get()


@dataclass
class Client(Bench):
    """A bench whose sessions know what they hold."""

    ears: dict[int, Holder] = field(default_factory=dict[int, Holder])

    @property
    def tcp(self) -> TcpStore:
        assert isinstance(self.store, TcpStore)
        return self.store

    async def session(
        self,
        *serves: Identity,
        queues: Sequence[str] = ("default",),
        listener: Listener | None = None,
    ) -> Session:
        ears = listener or Holder()
        hello = Hello("worker", queues, serves or (WORKFLOW, TASK))
        session = await self.store.open_session(hello, ears)
        if isinstance(ears, Holder):
            self.ears[session.worker] = ears
        return session

    async def claim(
        self,
        session: Session,
        limit: int = 10,
        *,
        live: dict[int, int] | None = None,
        idle: bool = False,
    ) -> ClaimResult:
        result = await super().claim(session, limit, live=live, idle=idle)
        held = self.ears[session.worker].held
        held.update((claimed.run, claimed.fence) for claimed in result.runs)
        return result


@dataclass
class Net:
    """A server, a proxy before it, a client that goes through the proxy and one that does not."""

    server: Server
    proxy: Proxy
    client: Client
    direct: Client


async def client_of(url: str, path: Path, **options: Any) -> Client:
    clock = SystemClock()
    store = await open_store(url, clock=clock, ids=RandomIds(clock), **options)
    return Client(store, clock, path)


@contextlib.asynccontextmanager
async def network(path: Path, *, timeout: float = 30.0, **settings: Any) -> AsyncGenerator[Net]:
    """At the end the invariants of the store must hold."""
    async with serving(path, **settings) as server, proxy_to(server.address) as proxy:
        direct = await client_of(url_of(server), path)
        client = await client_of(proxy.url, path, timeout=timeout)
        yield Net(server, proxy, client, direct)
        await client.store.close()
        assert await direct.store.doctor() == []
        await direct.store.close()


class Wire:
    """The bytes of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, server: Server, **options: Any) -> Wire:
        return cls(*await asyncio.open_connection(*server.address, **options))

    @classmethod
    async def over(cls, connected: socket.socket) -> Wire:
        return cls(*await asyncio.open_connection(sock=connected))

    @classmethod
    async def greeted(cls, server: Server, channel: str = REQUESTS) -> Wire:
        """A connection that the server has let in."""
        wire = await cls.to(server)
        assert isinstance(await wire.greet(channel=channel), Welcome)
        return wire

    def say(self, value: object) -> None:
        self.writer.write(framed(encode(value)))

    async def greet(
        self,
        *,
        magic: str = MAGIC,
        version: int = VERSION,
        channel: str = REQUESTS,
        token: str = "",
    ) -> Welcome | Turned:
        self.say(Greeting(magic, version, (), "client", channel, token))
        return await self.first()

    async def first(self) -> Welcome | Turned:
        return decode_welcome(await self.frame())

    async def frame(self) -> bytes:
        async with asyncio.timeout(LONG):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return await self.reader.readexactly(size)

    async def hear(self) -> tuple[list[Any], list[Any]]:
        """Return the answers and events of the next frame."""
        answers, events = decode_answers(await self.frame())
        return list(answers), list(events)

    async def answered(self) -> list[int]:
        """Return which requests the next frame answers."""
        answers, _ = await self.hear()
        return [one if isinstance(one, int) else one.number for one in answers]

    async def rest(self) -> list[bytes]:
        """Return the frames that come before the server hangs up."""
        frames: list[bytes] = []
        into = Frames(FRAME_LIMIT, lambda body: frames.append(bytes(body)))
        async with asyncio.timeout(LONG):
            with contextlib.suppress(ConnectionError):
                while data := await self.reader.read(65536):
                    into.feed(data)
        return frames

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


@contextlib.asynccontextmanager
async def wire_to(server: Server, **options: Any) -> AsyncGenerator[Wire]:
    async with await Wire.to(server, **options) as wire:
        yield wire


@contextlib.asynccontextmanager
async def let_in(server: Server, channel: str = REQUESTS) -> AsyncGenerator[Wire]:
    async with await Wire.greeted(server, channel) as wire:
        yield wire

"""A TCP proxy between a client and a server of a test, which does to the bytes what networks do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncGenerator, Callable
from typing import Final

UP: Final = "up"  # from the client to the server
DOWN: Final = "down"

Rule = Callable[["Pair", str, bytes], bytes]
"""What becomes of bytes that came in, by direction: what it returns is passed on."""


class _End(asyncio.Protocol):
    """One end of a pair of connections."""

    def __init__(self, pair: Pair, direction: str) -> None:
        self._pair, self._direction = pair, direction
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._pair.gone.is_set():
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self._pair.take(self._direction, data)

    def eof_received(self) -> bool:
        self._pair.ended(self._direction)
        return True  # the other direction stays open

    def connection_lost(self, exc: Exception | None) -> None:
        self._pair.lost()


class Pair:
    """A client's connection, and the one to the server that belongs to it."""

    def __init__(self, proxy: Proxy, number: int) -> None:
        self._proxy, self.number = proxy, number
        self.passed = {UP: 0, DOWN: 0}
        self.stalled: set[str] = set()
        self.gone = asyncio.Event()
        self.beats = False  # whether this is the channel for beats
        self.client, self.server = _End(self, UP), _End(self, DOWN)
        self._over: set[str] = set()  # directions in which nothing more comes
        self._early: list[bytes] = []  # what came before the server was there

    def take(self, direction: str, data: bytes) -> None:
        if direction == UP and self.server.transport is None:
            self._early.append(data)
            return
        if self.gone.is_set() or direction in self.stalled:
            return
        if direction == UP and not self.passed[UP]:
            self.beats = b"beats" in data
        data = self._proxy.rule(self, direction, data)
        if data and not self.gone.is_set():
            self.send(direction, data)

    def send(self, direction: str, data: bytes) -> None:
        end = self.server if direction == UP else self.client
        if end.transport is not None and not end.transport.is_closing():
            self.passed[direction] += len(data)
            end.transport.write(data)

    def connected(self) -> None:
        early, self._early = self._early, []
        for data in early:
            self.take(UP, data)

    def ended(self, direction: str) -> None:
        """One side sends no more; pass that on, unless the pair is stalled."""
        if direction not in self.stalled:
            self.half_close(direction)

    def half_close(self, direction: str) -> None:
        """Tell the receiver of this direction that nothing more comes."""
        end = self.server if direction == UP else self.client
        if direction in self._over or end.transport is None or end.transport.is_closing():
            return
        self._over.add(direction)
        end.transport.write_eof()
        if len(self._over) == 2:
            self.cut()

    def stall(self, *directions: str) -> None:
        """Deliver nothing any more, and no word of it."""
        self.stalled.update(directions or (UP, DOWN))

    def cut(self, *, reset: bool = False) -> None:
        """Close both connections, with FIN or RST."""
        if self.gone.is_set():
            return
        self.gone.set()
        for end in (self.client, self.server):
            if end.transport is not None:
                if reset:
                    sock = end.transport.get_extra_info("socket")
                    linger = struct.pack("ii", 1, 0)
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    end.transport.abort()
                else:
                    end.transport.close()

    def lost(self) -> None:
        """One end is closed: so is the other, unless nobody is to know."""
        if not self.stalled:
            self.cut()


def through(pair: Pair, direction: str, data: bytes) -> bytes:
    """Pass on what comes."""
    return data


class Lose:
    """A rule: the next that the server says is lost, and the connection with it."""

    def __init__(self, *, reset: bool = False, containing: bytes = b"") -> None:
        self._reset, self._containing = reset, containing
        self.lost = asyncio.Event()

    def __call__(self, pair: Pair, direction: str, data: bytes) -> bytes:
        if (
            self.lost.is_set()
            or pair.beats
            or direction == UP
            or not pair.passed[DOWN]  # the welcome
            or self._containing not in data
        ):
            return data
        self.lost.set()
        pair.cut(reset=self._reset)
        return b""


class Proxy:
    """Listens, and connects each client to the server; `rule` says what becomes of the bytes."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.rule: Rule = through
        self.pairs: list[Pair] = []
        self.refusing = False
        self.joined = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._accept, "127.0.0.1", 0)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.sockets[0].getsockname()[:2]
        return host, port

    @property
    def url(self) -> str:
        host, port = self.address
        return f"tcp://{host}:{port}"

    def _accept(self) -> _End:
        pair = Pair(self, len(self.pairs))
        self.pairs.append(pair)
        task = asyncio.get_running_loop().create_task(self._connect(pair))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return pair.client

    async def _connect(self, pair: Pair) -> None:
        loop = asyncio.get_running_loop()
        if self.refusing:
            pair.cut()
            return
        try:
            await loop.create_connection(lambda: pair.server, *self.target)
        except OSError:
            pair.cut()
            return
        if pair.gone.is_set():
            if pair.server.transport is not None:
                pair.server.transport.close()
            return
        pair.connected()
        async with self.joined:
            self.joined.notify_all()

    def cut(self, *, reset: bool = False) -> None:
        """Cut all connections that there are."""
        for pair in self.pairs:
            pair.cut(reset=reset)

    def stall(self) -> None:
        """Stall all connections that there are."""
        for pair in self.pairs:
            pair.stall()

    async def close(self) -> None:
        for listener in self._listener.sockets:  # whoever is just being accepted gets that far
            asyncio.get_running_loop().remove_reader(listener.fileno())
        for _ in range(2):
            await asyncio.sleep(0)
        self._listener.close()
        for task in list(self._tasks):
            task.cancel()
        for pair in self.pairs:
            pair.stalled.clear()
            pair.cut(reset=True)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports close in the next turn


@contextlib.asynccontextmanager
async def proxy_to(target: tuple[str, int]) -> AsyncGenerator[Proxy]:
    proxy = Proxy(target)
    await proxy.listen()
    try:
        yield proxy
    finally:
        await proxy.close()

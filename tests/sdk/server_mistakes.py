"""The mistakes of errors.md that are made with the address of a server."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any
from unittest import mock

from stepwell import Access, Stepwell
from stepwell_queue.tcp.client import link
from stepwell_queue.tcp.protocol import Welcome, encode, framed
from tests.serving import serving, url_of


async def opened(store: str, **settings: Any) -> object:
    async with Stepwell(store, **settings):
        return None


@contextlib.asynccontextmanager
async def answering(with_bytes: bytes) -> AsyncGenerator[str]:
    """Listen, answer whoever comes with the same bytes, and say nothing more."""
    writers: list[asyncio.StreamWriter] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(with_bytes)
        with contextlib.suppress(ConnectionError):
            await reader.read()  # until it hangs up

    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"tcp://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()
        for writer in writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def hanging_up() -> AsyncGenerator[str]:
    """Listen, and close whatever connection has sent a byte."""
    over = asyncio.Event()

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)  # which is no TLS
        writer.close()
        over.set()

    listener = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    try:
        yield f"tcp://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()
        await over.wait()


async def nobody() -> object:
    async with answering(b"") as address:
        pass
    return await opened(address)


async def something_else() -> object:
    async with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        return await opened(address)


async def no_tls() -> object:
    async with hanging_up() as address:
        return await opened(address)


async def wrong_token() -> object:
    with tempfile.TemporaryDirectory() as folder:
        async with serving(Path(folder) / "orders.db", token="secret") as server:
            return await opened(url_of(server), access=Access(token="guess"))


async def silence(call: Callable[[Stepwell], Awaitable[object]]) -> object:
    welcome = framed(encode(Welcome(1, (), "0", "full", 15.0, 0, 0.0, "")))
    async with answering(welcome) as address:
        with mock.patch.object(link, "_PING_EVERY", 0.05):
            app = Stepwell(address, timeout=0.1)
            async with app:
                return await call(app)


SERVER_MISTAKES: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
    "no server at the address": nobody,
    "something else at the address": something_else,
    "`tcp://` for a server that has a certificate": no_tls,
    "a wrong token, or none": wrong_token,
    "a token in the address": lambda: opened("tcp://:secret@127.0.0.1"),
    "an address with a path": lambda: opened("tcp://127.0.0.1/orders.db"),
    "`durability=` for a server": lambda: opened("tcp://127.0.0.1", durability="full"),
    "`access=` for a file": lambda: opened("orders.db", access=Access(token="secret")),
    "certificates for a `tcp://` address": lambda: opened(
        "tcp://127.0.0.1", access=Access(ca="ca.pem")
    ),
    "a certificate without its key": lambda: opened(
        "tls://127.0.0.1", access=Access(certificate="cert.pem")
    ),
    "`Stepwell(…, timeout=0)`": lambda: opened("orders.db", timeout=0),
}

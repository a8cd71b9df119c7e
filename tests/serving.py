"""A server in the process of the test, for what must hold over TCP as it does on a file."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from stepwell_queue import Clock, RandomIds, SystemClock
from stepwell_queue.tcp.server import Server, ServerConfig, open_server


def url_of(server: Server) -> str:
    host, port = server.address
    return f"tcp://{host}:{port}"


@contextlib.asynccontextmanager
async def serving(
    path: Path, *, clock: Clock | None = None, **settings: Any
) -> AsyncGenerator[Server]:
    """Serve a file on a free port of this machine until the block is left."""
    clock = clock or SystemClock()
    chosen: dict[str, Any] = {"port": 0, "durability": "process", **settings}
    config = ServerConfig(path, **chosen)
    server = await open_server(config, clock=clock, ids=RandomIds(clock))
    try:
        yield server
    finally:
        await server.stop()


@contextlib.contextmanager
def serving_in_a_thread(path: Path, **settings: Any) -> Generator[str]:
    """Serve a file from a loop of its own, for tests that block theirs; yields the address."""
    started: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        try:
            async with serving(path, **settings) as server:
                over = asyncio.Event()
                started.set_result((url_of(server), asyncio.get_running_loop(), over))
                await over.wait()
        except BaseException as error:
            if not started.done():
                started.set_exception(error)
            raise

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="server of the test")
    thread.start()
    address, loop, over = started.result(timeout=20)
    try:
        yield address
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(timeout=20)
        assert not thread.is_alive()

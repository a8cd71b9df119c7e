"""A server in the process of the test, for what must hold over TCP as it does on a file."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
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
) -> AsyncIterator[Server]:
    """Serve a file on a free port of this machine until the block is left."""
    clock = clock or SystemClock()
    config = ServerConfig(path, **{"port": 0, "durability": "process", **settings})
    server = await open_server(config, clock=clock, ids=RandomIds(clock))
    try:
        yield server
    finally:
        await server.stop()

"""The server of a sample, as a process of its own: `python -m bench.server`; told what to do."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from bench.meter import usage
from bench.peer import obey
from bench.spec import Durability, Usage
from stepwell_queue.clock import RandomIds, SystemClock
from stepwell_queue.tcp.server import Server, ServerConfig, open_server
from stepwell_runtime.tuning import worker_process


class Serving:
    """One server after the other: that of the warm-up, that of the sample."""

    def __init__(self) -> None:
        self._server: Server | None = None

    async def open(self, file: str, durability: Durability) -> str:
        """Serve a file; returns the address."""
        clock = SystemClock()
        config = ServerConfig(Path(file), port=0, durability=durability)
        self._server = await open_server(config, clock=clock, ids=RandomIds(clock))
        host, port = self._server.address
        return f"tcp://{host}:{port}"

    async def look(self) -> Usage:
        return usage(None if self._server is None else self._server.store)

    async def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop()


def main() -> int:
    serving = Serving()
    with worker_process():  # as `stepwell server` does
        asyncio.run(obey({"open": serving.open, "look": serving.look, "close": serving.close}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

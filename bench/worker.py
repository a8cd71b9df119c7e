"""A worker of a sample, as a process of its own: `python -m bench.worker`; told what to do."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack

from bench import flows
from bench.meter import usage
from bench.peer import Commands, obey
from bench.spec import Usage
from stepwell import Access, Stepwell, Worker
from stepwell_runtime.tuning import worker_process


class Working:
    """One worker after the other: that of the warm-up, that of the sample."""

    def __init__(self) -> None:
        self._exit = AsyncExitStack()
        self._worker: Worker

    async def open(self, address: str, concurrency: int) -> None:
        app = await self._exit.enter_async_context(Stepwell(address, access=Access()))
        self._worker = await self._exit.enter_async_context(app.worker(concurrency=concurrency))

    async def drain(self) -> None:
        await self._worker.drain()
        flows.finishing.clear()  # it is for clients in the same process

    async def look(self) -> Usage:
        return usage()

    async def close(self) -> None:
        await self._exit.aclose()


def main() -> int:
    working = Working()
    commands: Commands = {
        "open": working.open,
        "drain": working.drain,
        "look": working.look,
        "close": working.close,
    }
    with worker_process():  # as `stepwell worker` does
        asyncio.run(obey(commands))
    return 0


if __name__ == "__main__":
    sys.exit(main())

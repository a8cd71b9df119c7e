"""Where steps of other processes say that they have begun, and wait to be told to end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import TracebackType
from typing import Self

PATIENCE = 30.0


@dataclass(frozen=True)
class Visit:
    """One execution of a step that has begun."""

    run: str
    pid: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def end(self, value: str) -> None:
        """Let the step return this."""
        self.writer.write(value.encode() + b"\n")
        await self.writer.drain()

    async def gone(self) -> None:
        """Return once the step is over, whatever became of it."""
        async with asyncio.timeout(PATIENCE):
            assert await self.reader.read() == b""


class Gate:
    """`flows.hold` comes here."""

    def __init__(self) -> None:
        self._visits: asyncio.Queue[Visit] = asyncio.Queue()
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._come, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()

    async def _come(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        run, _, pid = (await reader.readline()).decode().rpartition(" ")
        self._visits.put_nowait(Visit(run, int(pid), reader, writer))

    async def next(self, count: int) -> list[Visit]:
        """Wait for so many visits; return them by their runs."""
        async with asyncio.timeout(PATIENCE):
            visits = [await self._visits.get() for _ in range(count)]
        return sorted(visits, key=lambda visit: visit.run)

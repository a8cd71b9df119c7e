"""Other processes of a sample, which do what they are told line by line: both ends."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

import msgspec

from bench.answer import answer_stream
from bench.samples import ROOT, BrokenSample
from bench.spec import Usage

Commands = Mapping[str, Callable[..., Awaitable[object]]]


class Peer:
    """A process that was started for this one and ends with it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._told, self._said = process.stdin, process.stdout

    async def tell(self, command: str, *arguments: object) -> Any:
        """Return its answer, once it has done that."""
        with contextlib.suppress(ConnectionError):
            self._told.write(msgspec.json.encode([command, *arguments]) + b"\n")
            await self._told.drain()
        answer = await self._said.readline()
        if not answer:  # it is dead, for which the block of `peer` is about to be left
            await asyncio.Event().wait()
        return msgspec.json.decode(answer)

    async def look(self) -> Usage:
        return msgspec.convert(await self.tell("look"), Usage)

    async def end(self) -> int:
        """Let it end; returns how it did."""
        self._told.close()
        return await self.process.wait()


@contextlib.asynccontextmanager
async def peer(module: str) -> AsyncGenerator[Peer]:
    """Start `python -m module`, which obeys, and let it end when the block is left.

    Raises BrokenSample when it has died, also in the middle of the block: clients and workers would
    wait for a server for ever.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    block = asyncio.current_task()
    assert block is not None
    started = Peer(process)

    async def watch() -> None:
        await process.wait()
        block.cancel()

    watching = asyncio.create_task(watch())
    try:
        yield started
    except asyncio.CancelledError:
        if not watching.done():
            raise
        block.uncancel()
        raise BrokenSample(f"{module} ended with {process.returncode} too soon") from None
    finally:
        watching.cancel()
        code = await started.end()
    if code:
        raise BrokenSample(f"{module} ended with {code}")


async def obey(commands: Commands) -> None:
    """Do what standard input tells until that ends, as it does with who tells it; then close."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    with answer_stream() as answers:
        while line := await lines.readline():
            command, *arguments = msgspec.json.decode(line)
            answers.write(msgspec.json.encode(await commands[command](*arguments)) + b"\n")
            answers.flush()
    await commands["close"]()

"""Other processes on the file of a test."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class RemotePeer:
    """Speaks to a process that runs `peer.py`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def __call__(self, name: str, **options: Any) -> Any:
        await self.say(name, **options)
        return await self.hear()

    async def say(self, name: str, **options: Any) -> None:
        stdin = self.process.stdin
        assert stdin is not None
        stdin.write(json.dumps([name, options]).encode() + b"\n")
        await stdin.drain()

    async def hear(self) -> Any:
        stdout = self.process.stdout
        assert stdout is not None
        async with asyncio.timeout(60):
            line = await stdout.readline()
        answer = json.loads(line)
        if "error" in answer:
            raise AssertionError(answer["error"])
        return answer["answer"]

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)


@asynccontextmanager
async def peers(
    path: Path, count: int, *, durability: str = "process", lease: float = 15.0
) -> AsyncGenerator[list[RemotePeer]]:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
        "from tests.store.peer import main; main(*sys.argv[1:])"
    )
    command = [sys.executable, "-I", "-W", "error", "-c", code]
    processes = [
        await asyncio.create_subprocess_exec(
            *command,
            str(path),
            durability,
            str(lease),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for _ in range(count)
    ]
    fleet = [RemotePeer(process) for process in processes]
    try:
        yield fleet
    finally:
        for peer in fleet:
            await peer.kill()

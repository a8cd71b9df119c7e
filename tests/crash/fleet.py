"""Worker processes that are killed at random moments and started again."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

import msgspec

from tests.crash import flows
from tests.crash.flows import Effect

ROOT = Path(__file__).resolve().parents[2]


class Fleet:
    """So many workers on one file; leaves none behind."""

    def __init__(self, file: Path, effects: Path, size: int, rng: Random) -> None:
        self._command = [sys.executable, "-m", flows.__name__, str(file), str(effects)]
        self._effects = effects
        self._log = effects.with_suffix(".workers.log")
        self._rng = rng
        self._size = size
        self._workers: list[subprocess.Popen[bytes]] = []
        self._counted = self._counted_to = 0
        self.killed: set[int] = set()

    def __enter__(self) -> Self:
        self._effects.touch()
        self._workers = [self._start() for _ in range(self._size)]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        # The logs of the workers stay beside their file, to be read when a round failed.
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, cwd=ROOT, stdout=log, stderr=log)

    async def kill_at_random(self, kills: int, apart: int) -> None:
        """Kill one worker after another, each when about `apart` more effects were seen."""
        for _ in range(kills):
            await self._wait_for_effects(self._rng.randrange(apart // 2, apart * 3 // 2))
            number = self._rng.randrange(self._size)
            worker = self._workers[number]
            assert worker.poll() is None, f"a worker ended by itself with {worker.returncode}"
            worker.send_signal(signal.SIGKILL)
            await asyncio.to_thread(worker.wait)
            self.killed.add(worker.pid)
            self._workers[number] = self._start()

    async def _wait_for_effects(self, more: int) -> None:
        # The log is the only sign that another process gives.
        wanted = self._lines() + more
        while self._lines() < wanted:  # noqa: ASYNC110 - there is no event between processes
            await asyncio.sleep(0.005)

    def _lines(self) -> int:
        with self._effects.open("rb") as log:
            log.seek(self._counted_to)
            new = log.read()
        self._counted_to += len(new)
        self._counted += new.count(b"\n")
        return self._counted

    def terminate(self) -> list[int]:
        """Ask every worker to end; return the exit codes."""
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        return [worker.wait(timeout=30) for worker in self._workers]

    def effects(self) -> list[Effect]:
        lines = self._effects.read_bytes().splitlines()
        return [msgspec.json.decode(line, type=Effect) for line in lines]

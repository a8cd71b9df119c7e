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

from tests.crash import flows
from tests.crash.effects import Effects

ROOT = Path(__file__).resolve().parents[2]
STEP_TAKES = "0.01"
"""Seconds: long enough for a kill to hit some."""


class Fleet:
    """So many workers on one file; leaves none behind."""

    def __init__(self, file: Path, effects: Effects, size: int, rng: Random) -> None:
        self._command = [
            sys.executable,
            "-m",
            flows.__name__,
            str(file),
            str(effects.file),
            STEP_TAKES,
        ]
        self._effects = effects
        self._log = effects.file.with_suffix(".workers.log")
        self._rng = rng
        self._size = size
        self._workers: list[subprocess.Popen[bytes]] = []
        self.killed: set[int] = set()

    def __enter__(self) -> Self:
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
        wanted = self._effects.count() + more
        while self._effects.count() < wanted:  # noqa: ASYNC110 - there is no event between processes
            await asyncio.sleep(0.005)

    def terminate(self) -> list[int]:
        """Ask every worker to end; return the exit codes."""
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        return [worker.wait(timeout=30) for worker in self._workers]

"""Processes that the demo starts, kills, and starts again."""

from __future__ import annotations

import asyncio
import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Process:
    """`python -m module`, which ends when the process that started it ends, however that ends."""

    def __init__(
        self, module: str, log: Path, env: Mapping[str, str], *, announces: bool = False
    ) -> None:
        self._command = [sys.executable, "-m", "examples.checkout.processes", module]
        self._log = log
        self._announces = announces
        self._env = {**os.environ, **env}
        self._popen: subprocess.Popen[str] | None = None

    def start(self) -> None:
        with self._log.open("a", encoding="utf-8") as log:
            self._popen = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if self._announces else log,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=self._env,
            )

    @property
    def _started(self) -> subprocess.Popen[str]:
        if self._popen is None:
            raise RuntimeError("the process is not running")
        return self._popen

    @property
    def name(self) -> str:
        return self._log.stem

    @property
    def pid(self) -> int:
        return self._started.pid

    async def announced(self) -> str:
        """Return the first line that it prints."""
        stdout = self._started.stdout
        line = await asyncio.to_thread(stdout.readline) if stdout else ""
        if not line:
            raise RuntimeError(f"it ended at once: see {self._log}")
        return line.strip()

    def died(self) -> bool:
        """Whether it ended though nobody ended it."""
        return self._popen is not None and self._popen.poll() is not None

    async def end(self, how: signal.Signals) -> int:
        """Send the signal, wait, and return the exit code."""
        popen, self._popen = self._started, None
        popen.send_signal(how)
        code = await asyncio.to_thread(popen.wait)
        for pipe in (popen.stdin, popen.stdout):
            if pipe is not None:
                pipe.close()
        return code

    async def stop(self) -> None:
        if self._popen is not None:
            await self.end(signal.SIGKILL)


def end_with_parent() -> None:
    """Nothing is ever written to this pipe: its end is the end of the parent."""

    def wait() -> None:
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    end_with_parent()
    runpy.run_module(sys.argv[1], run_name="__main__", alter_sys=True)

"""What is read from the process around the measured part of a sample."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path

from bench.spec import Usage
from stepwell_queue.contract import Store
from stepwell_queue.sqlite.store import SqliteStore

_PERIOD = 0.01


def rss() -> int:
    """Bytes of memory that the process has now."""
    if sys.platform == "linux":
        return _status("VmRSS:")
    return peak_rss()


def peak_rss() -> int:
    """The most bytes of memory that the process has had."""
    if sys.platform == "linux":
        # Not ru_maxrss: that begins with the size of the process which started this one.
        return _status("VmHWM:")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def commits(store: Store) -> int:
    """How many transactions the open store has committed."""
    assert isinstance(store, SqliteStore)
    return store._group.commits


def usage(store: SqliteStore | None = None) -> Usage:
    """What this process has used, with the commits of the store that it serves."""
    return Usage(time.process_time(), rss(), peak_rss(), commits(store) if store else 0)


class Load:
    """Other work on the loop; `cpu` is what it has used, in seconds."""

    def __init__(self, part: float) -> None:
        self._part = part
        self.cpu = 0.0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        if not self._part:
            yield
            return
        spinning = asyncio.create_task(self._spin())
        try:
            yield
        finally:
            spinning.cancel()
            await asyncio.wait([spinning])

    async def _spin(self) -> None:
        while True:
            begun = time.thread_time()
            until = time.perf_counter() + self._part * _PERIOD
            while time.perf_counter() < until:
                pass
            self.cpu += time.thread_time() - begun
            await asyncio.sleep((1 - self._part) * _PERIOD)

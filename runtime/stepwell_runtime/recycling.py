"""A worker that has done its share stops by itself, so that a fresh one can take its place."""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stepwell_queue.errors import StepwellError
from stepwell_runtime.log import log

if TYPE_CHECKING:
    from stepwell_runtime.worker import Worker

LOOKS = 1.0
"""Seconds between two looks at the memory."""
MIB = 1024 * 1024
_STATM = Path("/proc/self/statm")


class Recycling:
    """Has a worker retire after `max_jobs` runs, or once it has `max_memory` MiB; None = never."""

    def __init__(self, worker: Worker, max_jobs: int | None, max_memory: int | None) -> None:
        self._worker, self._max_memory = worker, max_memory
        self._taken = 0
        self._max_jobs = max_jobs
        self._timer: asyncio.TimerHandle | None = None
        self._retiring: asyncio.Task[None] | None = None
        self.over = asyncio.Event()
        """The worker holds nothing any more, and is not registered."""

    def start(self) -> None:
        """Watch the memory from now on. Raises StepwellError if it is too little for anything."""
        if self._max_memory is None:
            return
        has = resident_mib()
        if has >= self._max_memory:
            raise StepwellError(
                f"max_memory={self._max_memory} MiB: this process has {has:.0f} MiB before it has "
                "done anything, so it would never do anything: allow more"
            )
        self._look_later()

    @property
    def left(self) -> int:
        """How many runs it may still take."""
        return sys.maxsize if self._max_jobs is None else self._max_jobs - self._taken

    def took(self) -> None:
        """Count a run, or an activation of one."""
        self._taken += 1
        if self._taken == self._max_jobs:
            self._retire("max_jobs")

    def _look_later(self) -> None:
        self._timer = self._worker.loop.call_later(LOOKS, self._look)

    def _look(self) -> None:
        has = resident_mib()
        if self._max_memory is not None and has >= self._max_memory:
            self._retire("max_memory", memory=round(has))
        else:
            self._look_later()

    def _retire(self, reason: str, **facts: object) -> None:
        if self._retiring is None:
            log.info("worker_recycles", reason=reason, taken=self._taken, **facts)
            self._retiring = self._worker.loop.create_task(self._retired())

    async def _retired(self) -> None:
        await self._worker.retire()
        self.over.set()

    def stop(self) -> None:
        """The worker is stopped: it need not retire as well."""
        if self._timer is not None:
            self._timer.cancel()
        if self._retiring is not None:
            self._retiring.cancel()


def resident_mib() -> float:
    """Return how much memory this process has, in MiB; where that is not known, has had at most."""
    try:
        pages = int(_STATM.read_text("ascii").split()[1])
        return pages * resource.getpagesize() / MIB
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / MIB if sys.platform == "darwin" else most / 1024

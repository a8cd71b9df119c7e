"""The measured part of a sample, and what was seen of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator

import msgspec

from bench.meter import Load, peak_rss
from bench.setups import Look, Setup
from bench.spec import Measured, Spec, Usage
from stepwell import Stepwell


class Meter:
    """Collects what a driver sees; `window` is around the measured part."""

    def __init__(self, app: Stepwell, spec: Spec, setup: Setup) -> None:
        self._app, self._setup, self._load = app, setup, Load(spec.loop_load)
        self.latencies: list[float] = []
        self.wakes: list[float] = []
        self.ids: list[str] = []
        self._wall = self._cpu = 0.0
        self._before = self._after = Look(0)

    @contextlib.asynccontextmanager
    async def window(self) -> AsyncGenerator[None]:
        self._before = await self._setup.look(self._app)
        async with self._load.running():
            cpu, wall = time.process_time(), time.perf_counter()
            yield
            self._wall = time.perf_counter() - wall
            self._cpu = time.process_time() - cpu - self._load.cpu
        self._after = await self._setup.look(self._app)

    def measured(self) -> Measured:
        before, after = self._before, self._after
        return Measured(
            self._wall,
            self._cpu,
            self.latencies,
            self.wakes,
            after.commits - before.commits,
            peak_rss(),
            self.ids,
            None if after.server is None else between(before.server, after.server),
            [between(*both) for both in zip(before.workers, after.workers, strict=True)],
        )


def between(before: Usage | None, after: Usage) -> Usage:
    """What a process has used from one look to the next."""
    return msgspec.structs.replace(after, cpu=after.cpu - (before.cpu if before else 0.0))

"""Workers killed at random while a schedule ticks each second: each tick has one run."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Self

import pytest

from stepwell import ScheduleNotFound, ScheduleTick, Stepwell
from tests.conftest import Scale
from tests.crash import beats
from tests.crash.cluster import ROOT
from tests.serving import serving_in_a_thread

WORKERS = 4


class Beating:
    """So many workers; leaves none behind."""

    def __init__(self, store: str, log: Path) -> None:
        self._store, self._log = store, log
        self._workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._workers = [self._start(number) for number in range(WORKERS)]
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait()

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        ahead = "2.0" if number == 0 else "0.0"
        command = [sys.executable, "-m", beats.__name__, self._store, ahead]
        with self._log.open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)

    def kill_one(self, rng: Random) -> None:
        number = rng.randrange(WORKERS)
        worker = self._workers[number]
        assert worker.poll() is None, f"{self._log} says why it ended"
        worker.kill()
        worker.wait()
        self._workers[number] = self._start(number)

    def stop(self) -> None:
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        # One that was started only just now has no handler for SIGTERM yet.
        assert {worker.wait(timeout=30) for worker in self._workers} <= {0, -signal.SIGTERM}


@pytest.mark.parametrize("kind", ["file", "tcp"])
def test_each_tick_has_one_run_while_workers_are_killed(
    kind: str, tmp_path: Path, scale: Scale
) -> None:
    rng, file, log = Random(kind), tmp_path / "runs.db", tmp_path / "workers.log"
    if kind == "file":
        check(str(file), log, rng, scale(5, 60))
    else:
        with serving_in_a_thread(file) as address:
            check(address, log, rng, scale(5, 60))


def check(store: str, log: Path, rng: Random, seconds: int) -> None:
    with Beating(store, log) as beating:
        asyncio.run(has_ticked(store))
        late = time.monotonic() + seconds
        while time.monotonic() < late:
            time.sleep(rng.uniform(0.2, 0.8))
            beating.kill_one(rng)
        beating.stop()
    ticks, runs, findings = asyncio.run(what_became(store))
    assert findings == []
    assert all(tick.run_id for tick in ticks), ticks
    times = [round(tick.tick_at.timestamp()) for tick in ticks]
    assert times == list(range(times[0], times[0] + len(times)))
    assert len(times) >= seconds
    assert sorted(tick.run_id or "" for tick in ticks) == sorted(runs)


async def has_ticked(store: str) -> None:
    async with Stepwell(store, include=[]) as app:
        async with asyncio.timeout(60):
            while not await ticked(app):  # noqa: ASYNC110 - there is no event between processes
                await asyncio.sleep(0.02)


async def ticked(app: Stepwell) -> bool:
    try:
        return bool(await app.get_schedule("beat").history())
    except ScheduleNotFound:
        return False


async def what_became(store: str) -> tuple[list[ScheduleTick], list[str], list[object]]:
    async with Stepwell(store, include=[]) as app:
        ticks = await app.get_schedule("beat").history(limit=1000)
        runs = [run.id for run in await app.runs(limit=1000)]
        return ticks[::-1], runs, list(await app.doctor())

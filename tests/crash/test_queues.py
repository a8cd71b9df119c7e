"""What is set for a queue holds for four worker processes together, also while they are killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable
from pathlib import Path
from random import Random
from typing import Any, Self, TypeVar

import pytest

from stepwell import Run, RunInfo, Stepwell, TaskCall
from tests.conftest import Scale
from tests.crash import jobs
from tests.crash.cluster import ROOT
from tests.crash.jobs import Moment
from tests.serving import serving_in_a_thread

T = TypeVar("T")
WORKERS = 4
LEASE = 1.0  # over TCP
LONGEST = 120.0
KINDS = pytest.mark.parametrize("kind", ["file", "tcp"])


def begins(moment: Moment) -> bool:
    return not moment.ends


class Crew:
    """So many workers; leaves none behind."""

    def __init__(self, store: str, folder: Path, size: int = WORKERS) -> None:
        self.store, self.log, self._size = store, folder / "moments", size
        self.log.touch()
        self._output = folder / "workers.log"
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self.killed: dict[int, float] = {}  # process -> when

    def __enter__(self) -> Self:
        for _ in range(self._size):
            self._start()
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers.values():
            worker.kill()
            worker.wait()

    def _start(self) -> None:
        command = [sys.executable, "-m", jobs.__name__, self.store, str(self.log)]
        with self._output.open("ab") as output:
            worker = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
        self._workers[worker.pid] = worker

    def kill(self, process: int) -> None:
        """Kill a worker, and have another in its place."""
        worker = self._workers.pop(process)
        assert worker.poll() is None, f"{self._output} says why it ended"
        self.killed[process] = time.monotonic()
        worker.kill()
        worker.wait()
        self._start()

    def send(self, process: int, number: signal.Signals) -> None:
        self._workers[process].send_signal(number)

    def busy(self, rng: Random) -> int:
        """Choose one of those that have begun something; any, if those were killed."""
        found = {one.process for one in self.moments()} & self._workers.keys()
        return rng.choice(sorted(found or self._workers))

    def moments(self) -> list[Moment]:
        return jobs.read(self.log)

    async def wait_for(self, count: int, which: Callable[[Moment], bool] = begins) -> list[Moment]:
        """Return the moments of this sort once there are so many; the log is the only sign."""
        async with asyncio.timeout(LONGEST):
            while True:
                found = [one for one in self.moments() if which(one)]
                if len(found) >= count:
                    return found
                await asyncio.sleep(0.01)


class Executions:
    """What was executed when, as the log tells it."""

    def __init__(self, crew: Crew) -> None:
        self._killed = crew.killed
        self.spans: list[tuple[Moment, float]] = []  # how it began, and when it ended
        open_ones: dict[tuple[str, int], Moment] = {}
        for moment in crew.moments():
            if not moment.ends:
                open_ones[moment.run, moment.process] = moment
            else:
                self.spans.append((open_ones.pop((moment.run, moment.process)), moment.at))
        for moment in open_ones.values():
            assert moment.process in crew.killed, f"{moment} has no end"
            self.spans.append((moment, crew.killed[moment.process]))

    def most_at_once(self, queue: str, key: str | None = None, since: float = 0.0) -> int:
        some = [
            (one.at, end)
            for one, end in self.spans
            if one.queue == queue and key in (None, one.key) and one.at >= since
        ]
        return max((sum(a <= at < b for a, b in some) for at, _ in some), default=0)

    def repeated_without_a_kill(self) -> list[str]:
        """Runs that were executed again though no worker of theirs was killed."""
        counts = Counter(one.run for one, _ in self.spans)
        cut = Counter(one.run for one, _ in self.spans if one.process in self._killed)
        return [run for run, count in counts.items() if count - 1 > cut[run]]


@contextlib.contextmanager
def store_at(kind: str, folder: Path) -> Generator[str]:
    file = folder / "runs.db"
    if kind == "file":
        yield str(file)
    else:
        with serving_in_a_thread(file, lease=LEASE) as address:
            yield address


def app_at(store: str) -> Stepwell:
    return Stepwell(store, include=[jobs])


@KINDS
def test_limits_and_rates_hold_for_all_workers_while_some_are_killed(
    kind: str, tmp_path: Path, scale: Scale
) -> None:
    rng = Random(kind)
    count, kills = scale(50, 1000), scale(3, 40)
    calls: list[TaskCall[Any]] = []
    for number in range(count):
        calls += [jobs.in_queue(number), jobs.of_key(number), jobs.at_rate(number)]

    async def run(crew: Crew) -> list[RunInfo]:
        async with app_at(crew.store) as app, asyncio.timeout(LONGEST):
            runs = await app.enqueue_many(calls)
            for kill in range(kills):
                await crew.wait_for(len(calls) * (kill + 1) // (kills + 2))
                await asyncio.to_thread(crew.kill, crew.busy(rng))
            assert await results(runs) == [number for number in range(count) for _ in range(3)]
            assert list(await app.doctor()) == []
            return list(await app.runs(queue="rated", limit=count))

    executions, rated = check(kind, tmp_path, run)
    assert executions.most_at_once("limited") == jobs.LIMIT
    assert [executions.most_at_once("keyed", f"key-{n}") for n in range(jobs.KEYS)] == [1] * 4
    assert executions.most_at_once("keyed") > 1
    assert too_fast(rated) == []
    assert executions.repeated_without_a_kill() == []


def check(
    kind: str,
    folder: Path,
    run: Callable[[Crew], Coroutine[Any, Any, T]],
    workers: int = WORKERS,
) -> tuple[Executions, T]:
    """Answer what was executed while `run` was going on, and what that returned."""
    with store_at(kind, folder) as store, Crew(store, folder, workers) as crew:
        answer = asyncio.run(run(crew))
        return Executions(crew), answer


async def results(runs: Iterable[Run[Any]]) -> list[Any]:
    return await asyncio.gather(*(run.result() for run in runs))


def too_fast(infos: Iterable[RunInfo]) -> list[str]:
    """Name the spans in which more runs started than there can have been tokens."""
    times = sorted(info.started_at.timestamp() for info in infos if info.started_at is not None)
    burst, speed = jobs.RATE.burst or 0, jobs.RATE.count
    return [
        f"{last - first + 1} in {times[last] - times[first]:.3f} seconds"
        for last in range(len(times))
        for first in range(last)
        # what clocks give is rounded to microseconds
        if last - first + 1 > burst + (times[last] - times[first] + 1e-5) * speed
    ]


@KINDS
def test_a_killed_worker_leaves_no_place_of_a_limit_taken(kind: str, tmp_path: Path) -> None:
    async def run(crew: Crew) -> None:
        async with app_at(crew.store) as app, asyncio.timeout(LONGEST):
            held = await app.enqueue(jobs.alone(held=True), id="held")
            (holder,) = await crew.wait_for(1)
            others = [await app.enqueue(jobs.alone(held=False)) for _ in range(5)]
            await asyncio.to_thread(crew.kill, holder.process)
            await results([held, *others])

    executions, _ = check(kind, tmp_path, run, workers=2)
    assert executions.most_at_once("single") == 1
    assert len(executions.spans) == 7
    (_, killed), (after, _), *_ = sorted((one.at, end) for one, end in executions.spans)
    assert after - killed < 10 * LEASE


def test_a_worker_that_was_stopped_beyond_its_lease_frees_its_place_once(tmp_path: Path) -> None:
    async def run(crew: Crew) -> None:
        async with app_at(crew.store) as app, asyncio.timeout(LONGEST):
            held = await app.enqueue(jobs.alone(held=True), id="held")
            (holder,) = await crew.wait_for(1)
            crew.send(holder.process, signal.SIGSTOP)
            await held.result()
            crew.send(holder.process, signal.SIGCONT)
            await crew.wait_for(1, lambda one: one.ends and one.process == holder.process)
            later = await app.enqueue_many(jobs.alone(held=False) for _ in range(20))
            await results(later)

    executions, _ = check("tcp", tmp_path, run, workers=2)
    (cut, _), *_ = [span for span in executions.spans if span[0].run == "held"]
    resumed = max(end for one, end in executions.spans if one == cut)
    assert executions.most_at_once("single", since=resumed) == 1
    assert len(executions.spans) == 22


@KINDS
def test_jobs_that_come_due_together_all_run_whoever_is_killed(
    kind: str, tmp_path: Path, scale: Scale
) -> None:
    rng, count = Random(kind), scale(300, 1000)

    async def run(crew: Crew) -> None:
        async with app_at(crew.store) as app, asyncio.timeout(LONGEST):
            await app.enqueue(jobs.delayed(-1))
            await crew.wait_for(1)
            calls = [jobs.delayed(number).with_options(delay=0.5) for number in range(count)]
            runs = await app.enqueue_many(calls)
            for begun in sorted(rng.sample(range(count), scale(2, 5))):
                await crew.wait_for(begun + 1)
                await asyncio.to_thread(crew.kill, crew.busy(rng))
            assert await results(runs) == list(range(count))
            assert list(await app.doctor()) == []

    executions, _ = check(kind, tmp_path, run)
    assert len({one.run for one, _ in executions.spans}) == count + 1
    assert executions.repeated_without_a_kill() == []


@KINDS
def test_calls_with_one_id_from_four_processes_are_executed_once(kind: str, tmp_path: Path) -> None:
    with store_at(kind, tmp_path) as store, Crew(store, tmp_path, 1) as crew:
        command = [sys.executable, "-m", jobs.__name__, store, str(crew.log), "call"]
        callers = [
            subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(WORKERS)
        ]
        heard = [caller.communicate(timeout=LONGEST)[0] for caller in callers]
        assert [json.loads(answer) for answer in heard] == [[7] * 20] * WORKERS
        assert len([one for one in crew.moments() if begins(one)]) == 1

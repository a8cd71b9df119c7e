"""Runs of every kind while workers come and go: all end, and the store is sound."""

from __future__ import annotations

import asyncio
import random
import threading

import pytest

from stepwell import (
    Retry,
    Run,
    RunCancelled,
    RunEnded,
    Stepwell,
    compensate,
    parallel,
    race,
    sleep,
    start,
    step,
    task,
    wait_for_signal,
    workflow,
)
from stepwell import random as chance
from tests.conftest import Scale

pytestmark = [pytest.mark.anyio, pytest.mark.blocking]


@step
async def work(number: int) -> int:
    await asyncio.sleep(random.random() * 0.003)
    return number


@step(queue="far", retry=Retry(attempts=3, delay=0.001))
async def far(number: int) -> int:
    await asyncio.sleep(random.random() * 0.003)
    if random.random() < 0.3:
        raise OSError(number)
    return number


@step
def plain(number: int) -> int:
    threading.Event().wait(random.random() * 0.002)
    return number


@step
async def undo(number: int) -> None: ...


@task
async def job(number: int) -> int:
    await asyncio.sleep(random.random() * 0.003)
    return number


@workflow
async def child(number: int) -> int:
    compensate(undo(number))
    await sleep(chance().random() * 0.004)
    await work(number)
    if chance().random() < 0.2:
        raise LookupError(number)
    return number


async def one_of_many(number: int) -> None:
    match chance().randrange(7):
        case 0:
            await parallel(work(number), far(number), plain(number))
        case 1:
            await race(work(number), sleep(0.001), far(number))
        case 2:
            await child(number)
        case 3:
            await parallel(child(number), child(number + 1), return_exceptions=True)
        case 4:
            await wait_for_signal("s", timeout=0.005, default=None)
        case 5:
            await job(number)
        case _:
            detached = await start(child(number))
            await race(detached.result(), sleep(0.002))


@workflow
async def mixed(number: int) -> int:
    compensate(undo(number))
    for part in range(4):
        try:
            await one_of_many(part)
        except (LookupError, OSError):
            await work(part)
    if chance().random() < 0.3:
        raise RuntimeError("the end")
    return number


async def come_and_go(app: Stepwell, fate: random.Random, over: asyncio.Event) -> None:
    while not over.is_set():
        async with app.worker(
            queues=["default", "far"],
            cache=fate.choice([0, 3, 1000]),
            grace=fate.choice([0, 0.001, 1]),
            concurrency=fate.choice([1, 4, 50]),
        ):
            await asyncio.sleep(fate.random() * 0.05)


async def disturb(runs: list[Run[int]], fate: random.Random) -> None:
    run = fate.choice(runs)
    try:
        if fate.random() < 0.3:
            await run.signal("s", 1)
        elif fate.random() < 0.15:
            await run.cancel()
    except RunEnded:
        pass


async def outcome(run: Run[int]) -> str:
    try:
        await run.result(timeout=60)
    except (RunCancelled, RuntimeError) as error:
        return type(error).__name__
    return "completed"


async def test_runs_all_end_while_workers_come_and_go(app: Stepwell, scale: Scale) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    fate, over = random.Random(seed), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(come_and_go(app, fate, over))
        runs: list[Run[int]] = []
        for number in range(scale(60, 3000)):
            runs.append(await app.start(mixed(number)))
            await disturb(runs, fate)
        outcomes = {await outcome(run) for run in runs}
        over.set()
    assert "completed" in outcomes
    async with app.worker(queues=["default", "far"]) as worker:
        await worker.drain()  # what the detached children have left
    assert await app.runs(status=["stuck", "held", "running", "ready", "rolling_back"]) == []
    for run in runs:
        paths = [event.path for event in (await run.history()).events if event.path]
        assert len(paths) == len(set(paths))

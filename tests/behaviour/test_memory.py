"""Runs leave nothing behind, even where the garbage collector never runs."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Generator

import pytest

from stepwell import (
    RunCancelled,
    Signal,
    Stepwell,
    compensate,
    parallel,
    race,
    sleep,
    step,
    task,
    wait_for_signal,
    workflow,
)
from stepwell_runtime.activation import Activation
from stepwell_runtime.core.branch import Branch
from stepwell_runtime.core.execution import Execution
from stepwell_runtime.job import Job
from tests.behaviour.stage import LONG, stage, until

pytestmark = pytest.mark.anyio
go = Signal("go", int)
OURS = (Activation, Branch, Execution, Job)


@pytest.fixture(autouse=True)
def _no_collector() -> Generator[None, None, None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive() -> list[str]:
    return sorted(type(one).__name__ for one in gc.get_objects() if isinstance(one, OURS))


async def freed(before: list[str]) -> None:
    """Wait until only `before` is left, which no collector helps: a cycle would stay for ever.

    A thread that has just answered may hold what it answered for another moment.
    """

    async def gone() -> bool:
        return alive() == before and all(one() is None for one in buffers)

    await until(gone)


class Buffer:
    """Something large that a step holds while it fails."""


buffers: list[weakref.ref[Buffer]] = []


@step
async def work() -> int:
    return 1


@step
async def fail() -> None:
    held = Buffer()
    buffers.append(weakref.ref(held))
    raise LookupError("no")


@step
def fail_in_thread() -> None:
    held = Buffer()
    buffers.append(weakref.ref(held))
    raise LookupError("no")


@step
async def undo() -> None:
    stage.note("undo")


@task
async def job() -> int:
    return 1


@task
async def failing_job() -> None:
    held = Buffer()
    buffers.append(weakref.ref(held))
    raise LookupError("no")


@workflow
async def steps() -> int:
    return await work() + await work()


@workflow
async def branches() -> None:
    await parallel(work(), steps(), nested())
    await race(work(), sleep(3600))


async def nested() -> None:
    await parallel(work(), work(), return_exceptions=True)


@workflow
async def fails() -> None:
    compensate(undo())
    try:
        await parallel(fail(), sleep(3600))
    except LookupError:
        await fail_in_thread()


@workflow
async def fails_by_itself() -> None:
    held = Buffer()
    buffers.append(weakref.ref(held))
    await work()
    raise LookupError("no")


@workflow
async def waits() -> int:
    return await wait_for_signal(go)


async def test_runs_that_have_ended_are_gone_without_the_collector(app: Stepwell) -> None:
    buffers.clear()
    async with app.worker() as worker:
        before = alive()
        for _ in range(3):
            await (await app.start(steps())).result(timeout=LONG)
            await (await app.start(branches())).result(timeout=LONG)
            await (await app.enqueue(job())).result(timeout=LONG)
        for failing in (fails(), fails_by_itself()):
            with pytest.raises(LookupError):
                await (await app.start(failing)).result(timeout=LONG)
        with pytest.raises(LookupError):
            await (await app.enqueue(failing_job())).result(timeout=LONG)
        await worker.drain()
        await freed(before)
        assert [one() for one in buffers] == [None] * 4


async def test_parked_runs_are_gone_once_they_have_ended_or_were_put_aside(app: Stepwell) -> None:
    async with app.worker(cache=2) as worker:
        before = alive()
        runs = [await app.start(waits()) for _ in range(6)]
        await worker.drain()
        assert alive().count("Activation") == before.count("Activation") + 2
        for run in runs[:3]:
            await run.signal(go, 1)
            await run.result(timeout=LONG)
        for run in runs[3:]:
            await run.cancel()
            with pytest.raises(RunCancelled):
                await run.result(timeout=LONG)
        await worker.drain()
        await freed(before)

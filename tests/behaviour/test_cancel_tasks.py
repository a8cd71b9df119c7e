"""A cancel of a task: before it has begun, while it runs, in a thread, with its workflow."""

from __future__ import annotations

import asyncio

import pytest

from stepwell import (
    Retry,
    RunCancelled,
    RunEnded,
    Stepwell,
    current_job,
    parallel,
    task,
    workflow,
)
from tests.behaviour.stage import LONG, stage

pytestmark = pytest.mark.anyio


@task
async def held(what: str) -> str:
    stage.note(f"begin {what}")
    try:
        await stage.hold(what)
    except asyncio.CancelledError:
        stage.note(f"cancelled {what}")
        raise
    return what


@task
def held_in_thread(what: str) -> str:
    job = current_job()
    stage.note(("begin", job.cancelled))
    stage.hold_thread(what)
    stage.note(("told", job.cancelled))
    stage.reach(f"{what} over")
    return what


@task(retry=Retry(attempts=5, delay=3600.0))
async def fails() -> None:
    stage.reach("failed")
    raise ConnectionError("down")


@task(queue="nobody")
async def unserved() -> None:
    stage.note("never")


@workflow
async def two_jobs() -> None:
    await parallel(held("one"), held("two"), unserved())


async def test_a_task_that_nobody_has_begun_is_cancelled_at_once(app: Stepwell) -> None:
    now = await app.enqueue(held("now"))
    later = await app.enqueue(held("later"), delay=3600.0)
    for run in (now, later):
        assert await run.cancel(reason="not needed") == "cancelled"
        with pytest.raises(RunCancelled, match="not needed"):
            await run.result(timeout=LONG)
    async with app.worker() as worker:
        await worker.drain()
    assert stage.done == []


async def test_a_task_that_waits_for_its_next_attempt_is_cancelled(app: Stepwell) -> None:
    async with app.worker() as worker:
        run = await app.enqueue(fails())
        await stage.reached("failed")
        await worker.drain()
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
        assert (await run.info()).attempts == 1


async def test_a_running_async_task_is_cancelled_and_not_tried_again(app: Stepwell) -> None:
    async with app.worker():
        run = await app.enqueue(held("it"))
        await stage.reached("it")
        assert await run.cancel(reason="enough") == "running"
        with pytest.raises(RunCancelled, match="enough"):
            await run.result(timeout=LONG)
    assert stage.done == ["begin it", "cancelled it"]


async def test_a_task_in_a_thread_is_told_and_what_it_returns_is_dropped(app: Stepwell) -> None:
    async with app.worker():
        run = await app.enqueue(held_in_thread("thread"))
        await stage.reached("thread")
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
        stage.release("thread")
        await stage.reached("thread over")
        assert await run.status() == "cancelled"
    assert stage.done == [("begin", False), ("told", True)]


async def test_the_jobs_of_a_cancelled_workflow_go_with_it(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(two_jobs(), id="parent")
        await stage.reached("one")
        await stage.reached("two")
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
        children = await app.runs(parent="parent")
        assert [one.status for one in children] == ["cancelled"] * 3
    assert sorted(stage.done) == ["begin one", "begin two", "cancelled one", "cancelled two"]


async def test_a_task_that_has_ended_cannot_be_cancelled(app: Stepwell) -> None:
    async with app.worker():
        run = await app.enqueue(held("it"))
        stage.release("it")
        await run.result(timeout=LONG)
        with pytest.raises(RunEnded):
            await run.cancel()
    assert await run.status() == "completed"

"""Whatever comes due in a paused queue waits, through restarts, and none of it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from stepwell import (
    Retry,
    RunCancelled,
    Signal,
    Stepwell,
    current_job,
    task,
    wait_for_signal,
    workflow,
)

pytestmark = pytest.mark.anyio
MakeApp = Callable[[], Stepwell]

go = Signal("go", str)
failing: asyncio.Event
begun: asyncio.Event


@task(queue="jobs", retry=Retry(attempts=2, delay=0.01))
async def flaky() -> int:
    attempt = current_job().attempt
    if attempt == 1:
        begun.set()
        await failing.wait()
        raise OSError("not yet")
    return attempt


@task(queue="jobs")
async def tick() -> str:
    return "ticked"


@workflow(queue="jobs")
async def approval() -> str:
    return await wait_for_signal(go)


async def ready(app: Stepwell, count: int) -> None:
    async with asyncio.timeout(20):
        while (await app.queue("jobs").info()).ready < count:  # noqa: ASYNC110 - told to workers
            await asyncio.sleep(0.01)


async def test_retries_delays_signals_and_schedules_wait_for_a_paused_queue(
    make_app: MakeApp,
) -> None:
    global begun, failing
    begun, failing = asyncio.Event(), asyncio.Event()
    async with make_app() as app, app.worker(queues=["jobs"]) as worker:
        waiting = await app.start(approval())
        await worker.drain()
        retried = await app.enqueue(flaky())
        await begun.wait()
        await app.queue("jobs").pause()
        failing.set()  # what is running goes on, and fails; its next attempt comes due
        delayed = await app.enqueue(tick(), delay=0.01)
        await app.schedule("ticks", tick(), every=1.0)
        await waiting.signal(go, "yes")
        await ready(app, 4)
        await worker.drain()
    async with make_app() as app, app.worker(queues=["jobs", "default"]) as worker:
        await worker.drain()
        info = await app.queue("jobs").info()
        assert (info.paused, info.running) == (True, 0)
        assert info.ready >= 4
        assert [run.started_at for run in await app.runs(name="tick")] == [None] * (info.ready - 2)
        assert await app.get(waiting.id).status() == "ready"
        assert (await app.info(retried.id)).attempts == 1
        await app.get_schedule("ticks").pause()
        await app.queue("jobs").resume()
        assert await app.get(retried.id, flaky).result(timeout=20) == 2
        assert await app.get(waiting.id, approval).result(timeout=20) == "yes"
        assert await app.get(delayed.id, tick).result(timeout=20) == "ticked"
        for run in await app.runs(name="tick"):
            assert await app.get(run.id, tick).result(timeout=20) == "ticked"
        assert await app.doctor() == []


async def test_a_cancel_of_a_parked_run_takes_effect_when_its_queue_is_resumed(
    app: Stepwell,
) -> None:
    async with app, app.worker(queues=["jobs"]) as worker:
        parked = await app.start(approval())
        await worker.drain()
        assert await parked.status() == "parked"
        await app.queue("jobs").pause()
        never_begun = await app.enqueue(tick())
        assert await never_begun.cancel() == "cancelled"
        assert await parked.cancel(reason="enough") == "ready"
        await worker.drain()
        assert await parked.status() == "ready"
        await app.queue("jobs").resume()
        with pytest.raises(RunCancelled, match="enough"):
            await parked.result(timeout=20)


async def test_a_pause_is_seen_by_workers_elsewhere_at_once(make_app: MakeApp) -> None:
    async with (
        make_app() as one,
        make_app() as other,
        one.worker(queues=["jobs"]) as first,
        other.worker(queues=["jobs"]) as second,
    ):
        assert await (await one.enqueue(tick())).result(timeout=20) == "ticked"
        await other.queue("jobs").pause()
        runs = await other.enqueue_many(tick() for _ in range(20))
        await first.drain()
        await second.drain()
        assert {await run.status() for run in runs} == {"ready"}
        await one.queue("jobs").resume()
        async with asyncio.timeout(20):
            assert [await run.result() for run in runs] == ["ticked"] * 20

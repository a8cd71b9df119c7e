"""What is absurdly long or many: it neither wedges nor floods anything, and can be looked at."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from stepwell import (
    Retry,
    RunCancelled,
    Signal,
    Stepwell,
    parallel,
    race,
    sleep,
    sleep_until,
    step,
    wait_for_signal,
    workflow,
)
from tests.behaviour.stage import LONG, stage

pytestmark = pytest.mark.anyio
go = Signal("go", int)
FAR = 1e15


@step(retry=Retry(attempts=2, delay=FAR, max_delay=FAR))
async def fails() -> None:
    raise LookupError("no")


@workflow(deadline=FAR)
async def waits_for_ages() -> int:
    index, _ = await race(
        sleep(FAR),
        sleep(timedelta.max),
        sleep_until(datetime.max.replace(tzinfo=UTC)),
        wait_for_signal(Signal("never", object), timeout=FAR),
        fails(),
        wait_for_signal(Signal("go", object)),
    )
    return index


@pytest.mark.parametrize("cache", [0, 1000])
async def test_absurd_times_are_waited_for_and_can_be_looked_at(app: Stepwell, cache: int) -> None:
    async with app.worker(cache=cache) as worker:
        run = await app.start(waits_for_ages())
        await worker.drain()
        info = await run.info()
        assert info.status == "parked"
        assert info.deadline_at == datetime.max.replace(tzinfo=UTC)
        assert [event.outcome for event in (await run.history()).events] == ["open"] * 5
        assert [one.id for one in await app.runs()] == [run.id]
        await run.signal(go, 1)
        assert await run.result(timeout=LONG) == 5


async def test_a_start_in_the_absurd_future_is_scheduled_and_can_be_cancelled(
    app: Stepwell,
) -> None:
    async with app.worker() as worker:
        run = await app.start(waits_for_ages(), delay=FAR)
        await worker.drain()
        assert (await run.info()).due_at == datetime.max.replace(tzinfo=UTC)
        assert await run.status() == "scheduled"
        assert await run.cancel() == "cancelled"


@step
async def instant(number: int) -> int:
    return number


@workflow
async def wide(width: int) -> int:
    return sum(await parallel(*(instant(number) for number in range(width))))


async def test_a_thousand_branches_need_no_thousand_places(app: Stepwell) -> None:
    async with app.worker(step_concurrency=8):
        assert await (await app.start(wide(1000))).result(timeout=LONG) == sum(range(1000))


@step(on_cancel="interrupt")
async def stays_until_interrupted() -> None:
    stage.reach("staying")
    await asyncio.sleep(3600)


@workflow
async def wide_and_slow(width: int) -> None:
    await parallel(*(stays_until_interrupted() for _ in range(width)))


async def test_cancelling_thousands_of_waiting_steps_does_not_hold_up_the_loop(
    app: Stepwell,
) -> None:
    loop = asyncio.get_running_loop()
    async with app.worker(step_concurrency=4):
        run = await app.start(wide_and_slow(8000))
        await stage.reached("staying")
        begun = loop.time()
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
        assert loop.time() - begun < 2


@workflow
async def deep(depth: int) -> int:
    if depth == 0:
        return await instant(1)
    (below,) = await parallel(nested(depth - 1))
    return below + 1


async def nested(depth: int) -> int:
    if depth == 0:
        return await instant(1)
    (below,) = await parallel(nested(depth - 1))
    return below + 1


async def test_groups_may_nest_deeply(app: Stepwell) -> None:
    async with app.worker(cache=0):
        assert await (await app.start(deep(50))).result(timeout=LONG) == 51


@workflow
async def long_history(count: int) -> int:
    total = 0
    for number in range(count):
        total += await instant(number)
    return total + await wait_for_signal(go)


async def test_a_long_history_is_replayed_without_a_step_being_repeated(app: Stepwell) -> None:
    async with app.worker() as worker:
        run = await app.start(long_history(500))
        await worker.drain()
    await run.signal(go, 1)
    async with app.worker():
        assert await run.result(timeout=LONG) == sum(range(500)) + 1
    assert len((await run.history()).events) == 501

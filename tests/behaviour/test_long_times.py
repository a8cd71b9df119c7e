"""What takes days, in virtual time: timers, retries, timeouts and deadlines come when due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from stepwell import (
    DeadlineExceeded,
    Retry,
    Signal,
    compensate,
    now,
    parallel,
    sleep,
    sleep_until,
    step,
    wait_for_signal,
    workflow,
)
from stepwell.testing import TestApp

pytestmark = pytest.mark.anyio
DAWN = datetime(2025, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
go = Signal("go", int)


@step
async def work(what: str) -> str:
    return what


@step(retry=Retry(attempts=4, delay=DAY, factor=2.0, max_delay=3 * DAY, jitter=False))
async def fails() -> None:
    raise LookupError("no")


@workflow
async def subscription() -> list[int]:
    days: list[int] = []
    for _ in range(30):
        await sleep(DAY)
        await work("a bill")
        days.append((now() - DAWN).days)
    return days


@workflow
async def several_at_once() -> list[float]:
    ends: list[float] = []

    async def until(day: int) -> None:
        await sleep_until(DAWN + day * DAY)
        ends.append((now() - DAWN) / DAY)

    await parallel(until(300), until(7), wait_for_signal(go, timeout=30 * DAY, default=0), until(1))
    return ends


@workflow(deadline=timedelta(days=365))
async def a_year() -> None:
    compensate(work("undo"))
    await wait_for_signal(go)


@workflow
async def gives_up() -> None:
    await fails()


@pytest.mark.parametrize("cache", [0, 1000])
async def test_a_month_of_timers_comes_day_by_day(cache: int) -> None:
    async with TestApp(include=[__name__], cache=cache) as app:
        assert await app.run(subscription()) == list(range(1, 31))
        assert len(app.calls(work)) == 30
        assert await app.doctor() == []


async def test_timers_of_branches_come_in_the_order_of_their_times() -> None:
    async with TestApp(include=[__name__]) as app:
        assert await app.run(several_at_once()) == [1.0, 7.0, 300.0]
        assert app.time == DAWN + 300 * DAY


async def test_a_deadline_of_a_year_is_kept_to_the_day() -> None:
    async with TestApp(include=[__name__]) as app:
        run = await app.start(a_year())
        await app.advance(364 * DAY)
        assert await run.status() == "parked"
        with pytest.raises(DeadlineExceeded):
            await run.result()
        assert app.time == DAWN + 365 * DAY
        assert [call.arguments["what"] for call in app.calls(work)] == ["undo"]


async def test_retries_wait_longer_each_time_up_to_the_longest_delay() -> None:
    async with TestApp(include=[__name__]) as app:
        with pytest.raises(LookupError):
            await app.run(gives_up())
        assert [call.at / DAY.total_seconds() for call in app.calls(fails)] == [0, 1, 3, 6]

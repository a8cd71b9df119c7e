"""Times are absolute: fixed when first reached, and the same after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from stepwell import (
    DeadlineExceeded,
    Retry,
    RetryLater,
    Signal,
    SignalTimeout,
    Stepwell,
    compensate,
    current_run,
    current_step,
    deadline,
    now,
    race,
    sleep,
    step,
    task,
    wait_for_signal,
    workflow,
)
from tests.behaviour.stage import LONG, stage

pytestmark = pytest.mark.anyio
go = Signal("go", int)


@step
async def work(what: str) -> str:
    stage.note(what)
    return what


@workflow
async def no_time_at_all() -> None:
    await sleep(0)
    await wait_for_signal(go, timeout=0.0, default=None)
    await wait_for_signal(go)


async def test_a_wait_of_no_time_leaves_nothing_open(app: Stepwell) -> None:
    async with app.worker() as worker:
        run = await app.start(no_time_at_all())
        while (await run.info()).waiting != "signal go":
            await worker.drain()
        history = await run.history()
        assert [event.outcome for event in history.events] == ["ok", "ok"]
        assert await app.doctor() == []
        await run.signal(go, 1)
        await run.result(timeout=LONG)


@workflow
async def waits(kind: str) -> None:
    await work("begun")
    if kind == "sleep":
        await sleep(3600)
    elif kind == "signal":
        await wait_for_signal(go, timeout=3600)
    else:
        await fails_once()


@step(retry=Retry(attempts=2, delay=3600.0, max_delay=3600.0, jitter=False))
async def fails_once() -> None:
    stage.note("attempt")
    raise LookupError("no")


@pytest.mark.parametrize("kind", ["sleep", "signal", "retry"])
async def test_a_restart_does_not_move_the_time_that_was_fixed_before(
    make_app: Callable[[], Stepwell], kind: str
) -> None:
    due: list[datetime] = []
    for _ in range(3):
        async with make_app() as app:
            if not due:
                await app.start(waits(kind), id="run")
            async with app.worker() as worker:
                await worker.drain()
                info = await app.get("run").info()
                assert info.due_at is not None
                due.append(info.due_at)
                assert info.status == "parked"
                # A signal for nobody wakes it, which must not move anything either.
                await app.signal("run", "noise")
    assert len(set(due)) == 1
    assert stage.done == ["begun"] + ["attempt"] * (kind == "retry")


@workflow
async def measures() -> tuple[float, float]:
    begun = now()
    await sleep(0.1)
    woken = now()
    await work("later")
    return (woken - begun).total_seconds(), (now() - begun).total_seconds()


@pytest.mark.parametrize("cache", [0, 1000])
async def test_a_sleeper_wakes_after_its_time_and_not_before(app: Stepwell, cache: int) -> None:
    async with app.worker(cache=cache):
        run = await app.start(measures())
        slept, total = await run.result(timeout=LONG)
    assert 0.1 <= slept <= total < 5


@workflow
async def sleeps_long(number: int) -> None:
    await sleep(3600)


@workflow
async def short() -> str:
    return await work("short")


async def test_sleepers_hold_no_place_and_delay_neither_work_nor_the_stop(app: Stepwell) -> None:
    async with app.worker(concurrency=4) as worker:
        await app.start_many([sleeps_long(number) for number in range(300)])
        await worker.drain()
        assert await app.run(short(), timeout=LONG) == "short"
        loop = asyncio.get_running_loop()
        begun = loop.time()
    assert loop.time() - begun < 1


@workflow
async def sleeps_briefly() -> None:
    await sleep(0.15)
    stage.note(current_run().id)


async def test_a_sleeper_is_claimed_once_when_it_is_due_and_not_before(app: Stepwell) -> None:
    async with app.worker(), app.worker(), app.worker():
        runs = await app.start_many([sleeps_briefly() for _ in range(40)])
        for run in runs:
            await run.result(timeout=LONG)
        for run in runs:
            info = await run.info()
            assert info.ended_at is not None
            assert info.ended_at - info.created_at >= timedelta(seconds=0.15)
    assert sorted(stage.done) == sorted(run.id for run in runs)


@step
async def undo(what: str) -> None:
    stage.note(f"undo {what}")


@workflow(deadline=0.5)
async def too_slow(where: str) -> None:
    compensate(undo(where))
    try:
        if where == "wait":
            await wait_for_signal(go)
        elif where == "race":
            await race(wait_for_signal(go), sleep(3600))
        else:
            await fails_for_ever()
    finally:
        stage.note("finally")


@step(retry=Retry(attempts=1000, delay=3600.0))
async def fails_for_ever() -> None:
    raise LookupError(current_step().attempt)


@pytest.mark.parametrize("where", ["wait", "race", "retry"])
async def test_a_run_that_passes_its_deadline_fails_and_rolls_back(
    app: Stepwell, where: str
) -> None:
    async with app.worker():
        run = await app.start(too_slow(where))
        with pytest.raises(DeadlineExceeded) as caught:
            await run.result(timeout=LONG)
        assert isinstance(caught.value, TimeoutError)
        info = await run.info()
        assert (info.status, info.rollback) == ("failed", "complete")
    assert stage.done == ["finally", f"undo {where}"]


async def test_a_run_that_no_worker_began_by_its_deadline_fails_and_does_nothing(
    app: Stepwell,
) -> None:
    run = await app.start(too_slow("wait").with_options(deadline=0.01))
    await asyncio.sleep(0.02)
    async with app.worker():
        with pytest.raises(DeadlineExceeded):
            await run.result(timeout=LONG)
    assert stage.done == []


@workflow
async def races_sleeps() -> int:
    return (await race(sleep(0.2), wait_for_signal(go, timeout=0.15, default=1), sleep(0.1)))[0]


@pytest.mark.parametrize("cache", [0, 1000])
async def test_what_was_due_first_comes_first_though_all_of_it_is_late(
    app: Stepwell, cache: int
) -> None:
    async with app.worker(cache=cache) as worker:
        run = await app.start(races_sleeps())
        await worker.drain()
    await asyncio.sleep(0.25)
    async with app.worker(cache=cache):
        assert await run.result(timeout=LONG) == 2


@workflow
async def sleeps_first() -> None:
    stage.note(now())
    await race(sleep(0.2), wait_for_signal(go, timeout=0.2))


@pytest.mark.parametrize("cache", [0, 1000])
async def test_a_first_sleep_begins_when_the_run_does_however_long_it_waited_for_a_worker(
    app: Stepwell, cache: int
) -> None:
    run = await app.start(sleeps_first())
    await asyncio.sleep(0.2)
    async with app.worker(cache=cache):
        begun = datetime.now(UTC)
        await run.result(timeout=LONG)
        assert datetime.now(UTC) - begun >= timedelta(seconds=0.2)


async def test_now_is_at_first_the_time_for_which_the_run_was_scheduled(app: Stepwell) -> None:
    async with app.worker(cache=0):
        run = await app.start(sleeps_first().with_options(delay=0.1))
        await run.result(timeout=LONG)
        info = await run.info()
    assert len(set(stage.done)) == 1
    assert stage.done[0] - info.created_at >= timedelta(seconds=0.09)


@task(retry=Retry(attempts=9, delay=3600.0, max_delay=3600.0))
async def fails_till_its_deadline(how: str) -> None:
    if how == "fails":
        raise LookupError
    raise RetryLater(3600.0)


@pytest.mark.parametrize("how", ["fails", "comes later"])
async def test_a_task_ends_at_its_deadline_though_its_next_attempt_would_be_later(
    app: Stepwell, how: str
) -> None:
    async with app.worker():
        run = await app.enqueue(fails_till_its_deadline(how).with_options(deadline=0.1))
        with pytest.raises(DeadlineExceeded):
            await run.result(timeout=LONG)


@workflow
async def with_a_child() -> str:
    try:
        await too_slow("wait")
    except DeadlineExceeded:
        return await work("went on")
    return ""


async def test_the_deadline_of_a_child_is_an_error_that_its_parent_can_catch(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(with_a_child())
        assert await run.result(timeout=LONG) == "went on"


@workflow
async def times_out_twice() -> list[str]:
    outcomes: list[str] = []
    for timeout in (0.01, timedelta(milliseconds=10)):
        try:
            await wait_for_signal(go, timeout=timeout)
        except SignalTimeout:
            outcomes.append(await work("timeout"))
    return outcomes


async def test_timeouts_take_seconds_or_a_timedelta(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(times_out_twice())
        assert await run.result(timeout=LONG) == ["timeout", "timeout"]


@workflow
async def in_little_time(seconds: float) -> str:
    try:
        async with deadline(seconds):
            return str(await wait_for_signal("word", str))
    except DeadlineExceeded:
        return "too late"


async def test_the_deadline_of_a_block_holds_across_restarts(app: Stepwell) -> None:
    run = await app.start(in_little_time(0.3), id="run")
    async with app.worker() as worker:
        await worker.drain()
        (event,) = (await app.history("run")).events
        assert (event.kind, event.outcome) == ("deadline", "open")
    async with app.worker():
        assert await run.result(timeout=LONG) == "too late"
    (fired,) = (await app.history("run")).events
    assert (fired.kind, fired.path) == ("timer", event.path)
    assert event.due_at is not None
    assert fired.ended_at is not None
    assert fired.ended_at >= event.due_at


async def test_a_block_that_ends_in_time_leaves_no_deadline_behind(app: Stepwell) -> None:
    run = await app.start(in_little_time(1000.0), id="run")
    async with app.worker() as worker:
        await worker.drain()
        await run.signal("word", "went")
        assert await run.result(timeout=LONG) == "went"
    assert [event.kind for event in (await app.history("run")).events] == ["signal"]

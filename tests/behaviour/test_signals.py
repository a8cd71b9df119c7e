"""Signals reach the waits they are for, once and in order, however late or early they come."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable

import pytest

from stepwell import (
    Run,
    RunEnded,
    SerializationError,
    Signal,
    SignalTimeout,
    Stepwell,
    parallel,
    race,
    sleep,
    step,
    wait_for_signal,
    workflow,
)
from tests.behaviour.stage import LONG, stage

pytestmark = pytest.mark.anyio
go = Signal("go", int)
answer = Signal("answer", int)


@step
async def work(what: object = None) -> None:
    stage.note(what)


@step
async def slow(name: str) -> None:
    stage.note(name)
    await stage.hold(name)


@workflow
async def waits_after_a_step() -> int:
    await slow("before the wait")
    return await wait_for_signal(go, timeout=3600)


async def test_a_signal_sent_before_the_wait_is_there_when_the_wait_comes(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(waits_after_a_step())
        await stage.reached("before the wait")
        await run.signal(go, 1)
        stage.release("before the wait")
        assert await run.result(timeout=LONG) == 1
        assert "timer" not in {event.kind for event in (await run.history()).events}


async def test_a_signal_sent_before_any_worker_is_there_is_kept(app: Stepwell) -> None:
    run = await app.start(waits())
    await run.signal(go, 7)
    async with app.worker():
        assert await run.result(timeout=LONG) == 7


@workflow
async def waits() -> int:
    return await wait_for_signal(go, timeout=3600)


@pytest.mark.parametrize("cache", [0, 1000])
async def test_no_signal_is_missed_whatever_the_moment_at_which_it_comes(
    app: Stepwell, cache: int
) -> None:
    async def signalled(run: Run[int], turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        await run.signal(go, turns)
        return await run.result(timeout=LONG)

    async with app.worker(cache=cache):
        runs = [await app.start(waits()) for _ in range(100)]
        results = await asyncio.gather(*(signalled(run, n % 50) for n, run in enumerate(runs)))
    assert results == [n % 50 for n in range(100)]


@workflow
async def asks_five_times() -> list[int]:
    answers: list[int] = []
    for question in range(5):
        await work(question)
        answers.append(await wait_for_signal(answer))
    return answers


@pytest.mark.parametrize("cache", [0, 1000])
async def test_a_wait_in_a_loop_repeats_nothing_across_restarts(app: Stepwell, cache: int) -> None:
    run = await app.start(asks_five_times())
    for number in range(5):
        async with app.worker(cache=cache) as worker:
            await worker.drain()
        await run.signal(answer, number)
    async with app.worker(cache=cache):
        assert await run.result(timeout=LONG) == [0, 1, 2, 3, 4]
    assert stage.done == [0, 1, 2, 3, 4]
    assert len((await run.history()).events) == 10


async def test_signals_of_one_name_are_taken_in_the_order_in_which_they_came(app: Stepwell) -> None:
    run = await app.start(asks_five_times())
    for number in range(5):
        await run.signal(answer, number)
    async with app.worker():
        assert await run.result(timeout=LONG) == [0, 1, 2, 3, 4]


@workflow
async def waits_in_two_branches() -> list[int]:
    taken: list[int] = []

    async def taker() -> None:
        taken.append(await wait_for_signal(go))

    await parallel(taker(), taker())
    return taken


async def test_each_signal_ends_one_wait(app: Stepwell) -> None:
    async with app.worker() as worker:
        run = await app.start(waits_in_two_branches())
        await run.signal(go, 1)
        await worker.drain()
        assert await run.status() == "parked"
        await run.signal(go, 2)
        assert await run.result(timeout=LONG) == [1, 2]


@workflow
async def loses_a_wait() -> tuple[int, int]:
    index, _ = await race(wait_for_signal(go), sleep(0.01))
    return index, await wait_for_signal(go)


async def test_a_wait_that_lost_its_race_takes_no_signal(app: Stepwell) -> None:
    async with app.worker() as worker:
        run = await app.start(loses_a_wait())
        while (await run.info()).waiting != "signal go":
            await worker.drain()
        await run.signal(go, 9)
        assert await run.result(timeout=LONG) == (1, 9)


@workflow
async def falls_back() -> str:
    try:
        value = await wait_for_signal(go, timeout=0.02)
    except SignalTimeout:
        await work("fallback")
        late = await wait_for_signal(answer)
        return f"late {late}"
    return f"got {value}"


@pytest.mark.parametrize("cache", [0, 1000])
async def test_a_timeout_stands_on_replay_though_the_signal_came_later(
    app: Stepwell, cache: int
) -> None:
    async with app.worker(cache=cache) as worker:
        run = await app.start(falls_back())
        while (await run.info()).waiting != "signal answer":
            await worker.drain()
        await run.signal(go, 1)
    async with app.worker(cache=cache):
        await run.signal(answer, 2)
        assert await run.result(timeout=LONG) == "late 2"
    assert stage.done == ["fallback"]


@workflow
async def drains_its_signals() -> int:
    taken = 0
    while True:
        value = await wait_for_signal(answer, timeout=0.0, default=-1)
        if value == -1:
            return taken
        taken += 1


async def test_a_run_ends_while_signals_keep_coming_and_the_rest_is_told_to_the_sender(
    app: Stepwell,
) -> None:
    async with app.worker():
        run = await app.start(drains_its_signals())
        sent = 0
        async with asyncio.timeout(LONG):
            with contextlib.suppress(RunEnded):
                while True:
                    await run.signal(answer, sent)
                    sent += 1
        taken = await run.result(timeout=LONG)
        history = await run.history()
        arrived = [event for event in history.events if event.kind == "signal"]
        assert taken <= len(arrived)
        assert len(arrived) + len(history.undelivered) == sent


async def test_a_signal_that_nobody_waits_for_shows_in_the_history(app: Stepwell) -> None:
    run = await app.start(waits())
    await run.signal("typo", 5)
    async with app.worker() as worker:
        await worker.drain()
        assert await run.status() == "parked"
        (event,) = [one for one in (await run.history()).events if one.kind == "signal"]
        assert (event.name, event.value) == ("typo", 5)
        await run.signal(go, 1)
        assert await run.result(timeout=LONG) == 1


@workflow
async def tolerates_a_misfit() -> tuple[str, int]:
    try:
        await wait_for_signal(go)
    except SerializationError as error:
        return type(error).__name__, await wait_for_signal(go)
    return "", 0


async def test_a_signal_that_does_not_fit_is_raised_at_the_wait_and_consumed(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(tolerates_a_misfit())
        await run.signal("go", "no number")
        await run.signal("go", 3)
        assert await run.result(timeout=LONG) == ("SerializationError", 3)


async def test_a_fresh_process_sees_signals_that_came_between(
    make_app: Callable[[], Stepwell],
) -> None:
    async with make_app() as app:
        run = await app.start(waits_in_two_branches(), id="run")
        async with app.worker() as worker:
            await worker.drain()
    async with make_app() as app:
        await app.signal("run", go, os.getpid())
        await app.signal("run", go, 2)
    async with make_app() as app, app.worker():
        run = app.get("run", waits_in_two_branches)
        assert await run.result(timeout=LONG) == [os.getpid(), 2]

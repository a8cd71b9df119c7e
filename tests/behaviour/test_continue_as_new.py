"""An endless workflow begins anew under its id: nothing of what it was told is lost or doubled."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from stepwell import (
    DurabilityError,
    Event,
    RunCancelled,
    Signal,
    Stepwell,
    compensate,
    continue_as_new,
    current_run,
    patched,
    race,
    random,
    sleep,
    step,
    wait_for_signal,
    workflow,
)
from stepwell.testing import SignalAt, crash_test
from tests.behaviour.stage import LONG, stage
from tests.conftest import Scale

pytestmark = pytest.mark.anyio
word = Signal("word", int)


@step
async def work(what: str) -> str:
    stage.note(what)
    return what


@workflow
async def counts(left: int, chances: list[float]) -> list[float]:
    await work(f"{current_run().id} {left}")
    chances.append(random().random())
    if left:
        continue_as_new(counts(left - 1, chances))
    return chances


async def test_a_run_begins_anew_and_its_result_is_that_of_the_last(app: Stepwell) -> None:
    run = await app.start(counts(3, []), id="run")
    async with app.worker():
        chances = await run.result(timeout=LONG)
    assert stage.done == ["run 3", "run 2", "run 1", "run 0"]
    assert len(set(chances)) == 4
    history = await app.history("run")
    assert [event.name for event in history.events] == [work.name]
    assert history.run.generation == 3
    again = await app.start(counts(3, []), id="run")
    assert not again.created


@workflow
async def takes(taken: list[int]) -> list[int]:
    taken.append(await wait_for_signal(word))
    await sleep(0)
    if len(taken) < 5:
        continue_as_new(takes(taken))
    return taken


async def test_signals_that_nobody_took_travel_along_in_order(app: Stepwell) -> None:
    run = await app.start(takes([]), id="run")
    for value in range(4):
        await run.signal(word, value)
    async with app.worker() as worker:
        await worker.drain()
        await run.signal(word, 4)
        assert await run.result(timeout=LONG) == [0, 1, 2, 3, 4]


@workflow
async def with_a_child(left: int) -> str:
    await counts(0, [])
    if left:
        continue_as_new(with_a_child(left - 1))
    return "done"


async def test_each_generation_has_children_of_its_own(app: Stepwell) -> None:
    run = await app.start(with_a_child(2), id="run")
    async with app.worker():
        assert await run.result(timeout=LONG) == "done"
    assert len(stage.done) == len(set(stage.done)) == 3


@workflow
async def waits_for_the_last() -> list[float]:
    return await counts(2, [])


async def test_a_parent_waits_for_the_last_generation(app: Stepwell) -> None:
    async with app.worker():
        assert len(await app.run(waits_for_the_last(), timeout=LONG)) == 3


@workflow
async def registers() -> None:
    compensate(work("undo"))
    continue_as_new(registers())


@workflow
async def another() -> None:
    continue_as_new(registers())


@pytest.mark.parametrize("code", [registers, another])
async def test_what_would_be_lost_or_mixed_up_is_refused(app: Stepwell, code: object) -> None:
    chosen = registers if code is registers else another
    async with app.worker():
        with pytest.raises(DurabilityError, match=r"continue_as_new\(\)"):
            await app.run(chosen(), timeout=LONG)


@workflow
async def endless() -> None:
    await sleep(0)
    await work("again")
    stage.reach("again")
    continue_as_new(endless())


async def test_an_endless_run_can_be_cancelled(app: Stepwell) -> None:
    run = await app.start(endless(), id="run")
    async with app.worker():
        await stage.reached("again")
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)


@workflow
async def changed(ways: list[bool]) -> list[bool]:
    ways.append(patched("new"))
    await sleep(0)
    if len(ways) < 3:
        continue_as_new(changed(ways))
    return ways


async def test_each_generation_goes_the_new_way_from_its_beginning(app: Stepwell) -> None:
    async with app.worker():
        assert await app.run(changed([]), timeout=LONG) == [True, True, True]


@step(compensate=work)
async def book(what: str) -> str:
    stage.reach("booking")
    await stage.reached("go on")
    return what


async def booked() -> None:
    await book("undone")


async def won() -> None:
    await work("won")


@workflow
async def begins_anew_after_a_race(left: int) -> str:
    if left:
        await race(booked(), won())
        stage.reach("raced")
        continue_as_new(begins_anew_after_a_race(left - 1))
    return "anew"


async def test_an_undo_that_a_race_leaves_behind_is_not_forgotten(app: Stepwell) -> None:
    run = await app.start(begins_anew_after_a_race(1), id="run")
    async with app.worker():
        await stage.reached("booking")
        await stage.reached("raced")
        stage.reach("go on")
        with pytest.raises(DurabilityError, match="would forget the undos"):
            await run.result(timeout=LONG)
    assert stage.done == ["won", "undone"]


async def test_a_cancel_that_comes_before_it_begins_anew_is_not_lost(app: Stepwell) -> None:
    run = await app.start(begins_anew_after_a_race(1), id="run")
    async with app.worker():
        await stage.reached("booking")
        await stage.reached("raced")
        await run.cancel()
        async for event in run.events():
            if isinstance(event.event, Event) and event.event.kind == "cancel":
                break
        stage.reach("go on")
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
    assert stage.done == ["won", "undone"]


async def test_a_crash_behind_any_write_of_an_endless_run_loses_and_doubles_no_signal() -> None:
    report = await crash_test(
        takes([]), signals=[SignalAt(word, value) for value in range(5)], include=[__name__]
    )
    assert report.outcome.result == [0, 1, 2, 3, 4]
    assert report.crashed_after == tuple(range(1, report.writes))


@workflow
async def counts_down(left: int) -> None:
    await work("again")
    if left:
        continue_as_new(counts_down(left - 1))


@pytest.mark.blocking  # it looks into the file
async def test_many_generations_leave_no_more_behind_than_a_few(
    tmp_path: Path, scale: Scale
) -> None:
    path = tmp_path / "endless.db"
    app = Stepwell(path, durability="process", include=[__name__])
    async with app, app.worker():
        sizes: list[int] = []
        for generations in (5, scale(200, 10_000)):
            run = await app.start(counts_down(generations), id=f"run-{generations}")
            await run.result(timeout=300.0)
            with closing(sqlite3.connect(path)) as db:
                tables = ("runs", "journal", "open_ops", "inbox", "blobs", "audit")
                rows = [db.execute(f"SELECT count(*) FROM {one}").fetchone()[0] for one in tables]
            sizes.append(sum(rows))
    assert sizes == [2, 4]  # a run and its last step, each

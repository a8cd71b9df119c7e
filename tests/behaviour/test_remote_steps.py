"""Steps that other workers execute, and children: part of their run, wherever they are."""

from __future__ import annotations

import asyncio

import pytest

from stepwell import (
    Cancelled,
    IdConflict,
    Retry,
    RetryLater,
    RunCancelled,
    Signal,
    StepTimeout,
    Stepwell,
    current_app,
    current_step,
    parallel,
    race,
    sleep,
    start,
    step,
    task,
    wait_for_signal,
    workflow,
)
from tests.behaviour.stage import LONG, stage, until

pytestmark = pytest.mark.anyio
go = Signal("go", int)


@step
async def undo(what: str) -> None:
    stage.note(f"undo {what}")


@step(queue="far", compensate=undo)
async def held(what: str) -> str:
    stage.note(f"begin {what}")
    await stage.hold(what)
    stage.note(f"end {what}")
    return what


@step(queue="far", on_cancel="interrupt")
async def interruptible(what: str) -> str:
    try:
        await stage.hold(what)
    finally:
        stage.note("cleaned up")
    return what


@step
async def work(what: str) -> str:
    stage.note(what)
    return what


@step(queue="far", retry=Retry(attempts=3, delay=0.0))
async def flaky() -> tuple[str, str, int]:
    scope = current_step()
    stage.note((scope.run_id, scope.path, scope.attempt, scope.key))
    if scope.attempt < 3:
        raise LookupError(scope.attempt)
    return scope.run_id, scope.path, scope.attempt


@step(queue="far", timeout=0.02)
async def too_slow() -> None:
    await asyncio.sleep(3600)


@step(queue="far")
async def postponed() -> str:
    stage.note("try")
    if len(stage.done) < 3:
        raise RetryLater(0.0)
    return "done"


@workflow
async def one(what: str) -> str:
    result = await held(what)
    await work("after")
    return result


async def test_the_result_of_a_remote_step_reaches_a_run_whose_worker_was_away(
    app: Stepwell,
) -> None:
    async with app.worker() as worker:
        run = await app.start(one("a"))
        await worker.drain()
        assert (await run.info()).waiting == "remote held"
    async with app.worker(queues=["far"]) as far:
        stage.release("a")
        await far.drain()
        assert await run.status() == "ready"
    async with app.worker():
        assert await run.result(timeout=LONG) == "a"
    assert stage.done == ["begin a", "end a", "after"]


async def test_a_remote_step_that_runs_is_let_finish_when_its_run_is_cancelled(
    app: Stepwell,
) -> None:
    async with app.worker(), app.worker(queues=["far"]):
        run = await app.start(one("a"))
        await stage.reached("a")
        await run.cancel()
        stage.release("a")
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
    assert stage.done == ["begin a", "end a", "undo a"]


@workflow
async def interrupts() -> str:
    try:
        return await interruptible("a")
    except Cancelled:
        await work("cancelled")
        raise


async def test_a_remote_step_that_may_be_interrupted_is(app: Stepwell) -> None:
    async with app.worker(), app.worker(queues=["far"]) as far:
        run = await app.start(interrupts())
        await stage.reached("a")
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
        await far.drain()
    assert sorted(stage.done) == ["cancelled", "cleaned up"]


@workflow
async def retries_far() -> tuple[str, str, int]:
    return await flaky()


async def test_attempts_of_a_remote_step_know_their_run_and_keep_their_key(app: Stepwell) -> None:
    async with app.worker(), app.worker(queues=["far"]):
        run = await app.start(retries_far(), id="run")
        assert await run.result(timeout=LONG) == ("run", "0", 3)
    assert [one[:3] for one in stage.done] == [("run", "0", n) for n in (1, 2, 3)]
    assert len({one[3] for one in stage.done}) == 1


@workflow
async def misses_its_time() -> str:
    try:
        await too_slow()
    except StepTimeout:
        return await work("late")
    return ""


@workflow
async def is_postponed() -> str:
    return await postponed()


async def test_a_remote_step_may_time_out_or_be_postponed(app: Stepwell) -> None:
    async with app.worker(), app.worker(queues=["far"]):
        assert await (await app.start(misses_its_time())).result(timeout=LONG) == "late"
        stage.done.clear()
        assert await (await app.start(is_postponed())).result(timeout=LONG) == "done"


@workflow
async def races_far() -> int:
    index, _ = await race(held("loser"), sleep(0.01))
    await work("after")
    return index


async def test_a_remote_step_that_lost_before_it_began_never_begins(app: Stepwell) -> None:
    async with app.worker() as worker:
        run = await app.start(races_far())
        assert await run.result(timeout=LONG) == 1
        await worker.drain()
        async with app.worker(queues=["far"]) as far:
            await far.drain()
    assert stage.done == ["after"]


@workflow
async def has_own_id() -> str:
    first = await named().with_options(id="taken")
    try:
        await named(1).with_options(id="taken")
    except IdConflict as error:
        await sleep(0.01)
        return f"{first} {error.id}"
    return ""


@task
async def named(number: int = 0) -> str:
    stage.note(f"named {number}")
    return "named"


@pytest.mark.parametrize("cache", [0, 1000])
async def test_a_child_whose_id_is_taken_is_an_error_that_the_workflow_can_catch(
    app: Stepwell, cache: int
) -> None:
    async with app.worker(cache=cache):
        run = await app.start(has_own_id())
        assert await run.result(timeout=LONG) == "named taken"
    assert stage.done == ["named 0"]


@step
async def signals_its_own_run() -> None:
    await current_app().signal(current_step().run_id, go, 5)


@workflow
async def signalled_by_its_step() -> int:
    await signals_its_own_run()
    return await wait_for_signal(go)


async def test_a_step_may_signal_its_own_run(app: Stepwell) -> None:
    async with app.worker():
        assert await (await app.start(signalled_by_its_step())).result(timeout=LONG) == 5


@step
async def starts_another() -> str:
    run = await current_app().start(one("nested"), id="nested")
    return run.id


@workflow
async def starts_from_a_step() -> str:
    return await starts_another()


async def test_a_step_may_start_runs_that_are_nobodys_children(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(starts_from_a_step())
        assert await run.result(timeout=LONG) == "nested"
        assert (await app.info("nested")).parent_id is None


@workflow
async def detached_child(fails: bool) -> str:
    await wait_for_signal(go)
    if fails:
        raise LookupError("child")
    return "child"


@workflow
async def joins(fails: bool) -> str:
    child = await start(detached_child(fails), id="child")
    index, _ = await race(child.result(), sleep(0.01))
    assert index == 1
    try:
        return f"{await child.result()} {await child.result()}"
    except LookupError as error:
        return f"caught {error}"


@pytest.mark.parametrize(("fails", "expected"), [(False, "child child"), (True, "caught child")])
@pytest.mark.parametrize("cache", [0, 1000])
async def test_a_detached_child_may_be_joined_late_and_more_than_once(
    app: Stepwell, cache: int, fails: bool, expected: str
) -> None:
    async with app.worker(cache=cache):
        run = await app.start(joins(fails))

        async def waits_for_it() -> bool:
            return (await run.info()).waiting == "run child"

        await until(waits_for_it)
        await app.signal("child", go, 1)
        assert await run.result(timeout=LONG) == expected


@workflow
async def many_children(width: int) -> int:
    return sum(await parallel(*(tiny(number) for number in range(width))))


@workflow
async def tiny(number: int) -> int:
    await sleep(0)
    return number


@pytest.mark.parametrize("cache", [0, 1000])
async def test_many_children_end_at_once_and_none_is_missed(app: Stepwell, cache: int) -> None:
    async with app.worker(cache=cache):
        run = await app.start(many_children(60))
        assert await run.result(timeout=LONG) == sum(range(60))
        assert {one.status for one in await app.runs()} == {"completed"}

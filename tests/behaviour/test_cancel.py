"""A cancel ends a run at its next durable operation, whatever its code does about it."""

from __future__ import annotations

import asyncio

import pytest

from stepwell import (
    Cancelled,
    RunCancelled,
    RunStuck,
    Signal,
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
from tests.behaviour.stage import LONG, stage

pytestmark = pytest.mark.anyio
go = Signal("go", int)


@step
async def work(what: str) -> str:
    stage.note(what)
    return what


@step
async def held(what: str) -> str:
    stage.note(what)
    await stage.hold(what)
    return what


@step
async def tick() -> None:
    stage.reach("tick")


@workflow
async def ticks() -> None:
    while True:
        await tick()
        await sleep(0.001)


async def test_a_cancel_at_any_moment_ends_a_run_that_never_ends_by_itself(app: Stepwell) -> None:
    async with app.worker():
        runs = [await app.start(ticks()) for _ in range(25)]
        for number, run in enumerate(runs):
            for _ in range(number):
                await asyncio.sleep(0)
            await run.cancel()
        for run in runs:
            with pytest.raises(RunCancelled):
                await run.result(timeout=LONG)


@workflow
async def one_step(what: str) -> str:
    compensate(work("undo"))
    return await work(what)


async def test_a_run_that_no_worker_has_seen_is_cancelled_at_once(app: Stepwell) -> None:
    run = await app.start(one_step("never"))
    assert await run.cancel(reason="changed my mind") == "cancelled"
    with pytest.raises(RunCancelled, match="changed my mind"):
        await run.result(timeout=LONG)
    async with app.worker() as worker:
        await worker.drain()
    assert stage.done == []


@workflow
async def cleans_up() -> None:
    try:
        await wait_for_signal(go)
    finally:
        await work("cleanup")
        await parallel(work("in a branch"), sleep(0.01))


@pytest.mark.parametrize("cache", [0, 1000])
async def test_what_is_asked_for_while_the_cancel_is_handled_is_done_and_journaled(
    app: Stepwell, cache: int
) -> None:
    async with app.worker(cache=cache) as worker:
        run = await app.start(cleans_up())
        await worker.drain()
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
    assert stage.done == ["cleanup", "in a branch"]
    kinds = [event.kind for event in (await run.history()).events]
    assert kinds == ["cancel", "step", "step", "timer"]


@workflow
async def swallows_once() -> str:
    try:
        await wait_for_signal(go)
    except Cancelled:
        stage.note("swallowed")
    await work("never")
    return "never"


async def test_a_cancel_that_was_swallowed_is_raised_again_at_the_next_operation(
    app: Stepwell,
) -> None:
    async with app.worker() as worker:
        run = await app.start(swallows_once())
        await worker.drain()
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
    assert stage.done == ["swallowed"]


@workflow
async def swallows_and_returns() -> str:
    try:
        await wait_for_signal(go)
    except Cancelled:
        return "returned"
    return "signalled"


async def test_a_run_that_returns_before_its_next_operation_is_completed(app: Stepwell) -> None:
    async with app.worker() as worker:
        run = await app.start(swallows_and_returns())
        await worker.drain()
        await run.cancel()
        assert await run.result(timeout=LONG) == "returned"


@workflow
async def swallows_for_ever() -> None:
    while True:
        try:
            await wait_for_signal(go)
        except Cancelled:
            continue


async def test_code_that_swallows_its_cancel_for_ever_is_stuck(app: Stepwell) -> None:
    async with app.worker() as worker:
        run = await app.start(swallows_for_ever())
        await worker.drain()
        await run.cancel()
        with pytest.raises(RunStuck, match="swallowed its cancellation"):
            await run.result(timeout=LONG)


@workflow
async def catches_everything() -> str:
    try:
        value = await wait_for_signal(go)
    except BaseException as error:
        await work(f"oops {error!r}")
        raise
    return f"got {value}"


@pytest.mark.parametrize("cache", [0, 1000])
async def test_parking_raises_nothing_that_code_could_catch(app: Stepwell, cache: int) -> None:
    async with app.worker(cache=cache) as worker:
        run = await app.start(catches_everything())
        await worker.drain()
        assert await run.status() == "parked"
    async with app.worker(cache=cache):
        await run.signal(go, 1)
        assert await run.result(timeout=LONG) == "got 1"
    assert stage.done == []


@workflow
async def races_a_timer() -> int:
    index, _ = await race(work("a"), sleep(3600), wait_for_signal("other", timeout=3600))
    assert index == 0
    return await wait_for_signal(go)


async def test_the_timers_of_cancelled_branches_are_gone(app: Stepwell) -> None:
    async with app.worker() as worker:
        run = await app.start(races_a_timer())
        await worker.drain()
        history = await run.history()
        assert [event.name for event in history.events] == ["work"]
        assert (history.run.waiting, history.run.due_at) == ("signal go", None)
    async with app.worker(cache=0):
        await run.signal(go, 1)
        assert await run.result(timeout=LONG) == 1


@workflow
async def grandchild() -> None:
    compensate(work("undo of grandchild"))
    try:
        await held("grandchild")
        await sleep(3600)
    finally:
        stage.note("grandchild cancelled")


@workflow
async def child() -> None:
    compensate(work("undo of child"))
    await grandchild()


@workflow
async def parent() -> None:
    compensate(work("undo of parent"))
    await child()


async def test_a_cancel_goes_down_the_tree_and_each_undoes_its_own_children_first(
    app: Stepwell,
) -> None:
    async with app.worker():
        run = await app.start(parent())
        await stage.reached("grandchild")
        await run.cancel()
        stage.release("grandchild")
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
        statuses = {one.status for one in await app.runs()}
    assert statuses == {"cancelled"}
    assert stage.done == [
        "grandchild",
        "grandchild cancelled",
        "undo of grandchild",
        "undo of child",
        "undo of parent",
    ]


@task(queue="nobody")
async def job() -> None:
    stage.note("job")


@workflow
async def awaits_a_job() -> None:
    await job()


async def test_a_child_that_was_only_enqueued_is_cancelled_with_its_parent(app: Stepwell) -> None:
    async with app.worker() as worker:
        run = await app.start(awaits_a_job())
        await worker.drain()
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
    assert [one.status for one in await app.runs()] == ["cancelled", "cancelled"]
    async with app.worker(queues=["nobody"]) as worker:
        await worker.drain()
    assert stage.done == []


@workflow
async def quick() -> str:
    return await work("quick")


@workflow
async def detached() -> str:
    await wait_for_signal(go)
    return "went on"


@workflow
async def with_both_kinds_of_children() -> None:
    await quick()
    await start(detached(), id="detached")
    await wait_for_signal(go)


async def test_a_child_that_is_done_or_detached_is_left_alone(app: Stepwell) -> None:
    async with app.worker() as worker:
        run = await app.start(with_both_kinds_of_children())
        await worker.drain()
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
        await app.signal("detached", go, 1)
        assert await app.get("detached", detached).result(timeout=LONG) == "went on"
        (its_child,) = await app.runs(name="quick")
        assert its_child.status == "completed"


@workflow
async def awaits_a_cancelled_child() -> str:
    try:
        await ticks()
    except RunCancelled as error:
        return f"{error.reason} {await work('went on')}"
    return ""


async def test_a_child_cancelled_by_somebody_else_is_an_error_that_its_parent_can_catch(
    app: Stepwell,
) -> None:
    async with app.worker():
        run = await app.start(awaits_a_cancelled_child(), id="parent")
        await stage.reached("tick")
        await app.cancel("parent/0", reason="not needed")
        assert await run.result(timeout=LONG) == "not needed went on"


async def test_cancelling_twice_is_one_cancel(app: Stepwell) -> None:
    async with app.worker() as worker:
        run = await app.start(cleans_up())
        await worker.drain()
        await run.cancel(reason="first")
        await run.cancel(reason="second")
        with pytest.raises(RunCancelled, match="first"):
            await run.result(timeout=LONG)
    assert stage.done == ["cleanup", "in a branch"]

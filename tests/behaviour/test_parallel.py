"""What becomes of the other branches when one fails, or wins."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from stepwell import (
    Cancelled,
    Retry,
    RunCancelled,
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
from tests.behaviour.stage import LONG, stage, until

pytestmark = pytest.mark.anyio
go = Signal("go", int)


class Declined(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"declined with {code}")
        self.code = code


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
async def fail(code: int) -> None:
    raise Declined(code)


@step
async def fail_held(code: int) -> None:
    await stage.hold(f"fail {code}")
    raise Declined(code)


@step(retry=Retry(attempts=2, delay=3600.0))
async def fail_slowly() -> None:
    raise Declined(99)


@step(queue="nobody")
async def remote() -> None:
    stage.note("remote")


@task(queue="nobody")
async def job() -> None:
    stage.note("job")


@workflow
async def child() -> None:
    compensate(work("undo of child"))
    await sleep(3600)


async def watched(name: str, what: Awaitable[object]) -> None:
    try:
        await what
    except Cancelled:
        stage.note(f"{name} cancelled")
        raise


@workflow
async def waits_end_at_once() -> None:
    await parallel(
        watched("sleep", sleep(3600)),
        watched("signal", wait_for_signal("nothing")),
        watched("retry", fail_slowly()),
        watched("child", child()),
        watched("remote", remote()),
        watched("job", job()),
        watched("inner", parallel(sleep(3600), race(sleep(3600), wait_for_signal(go)))),
        fail_held(1),
    )


async def test_a_failure_ends_all_waits_and_withdraws_what_has_not_started(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(waits_end_at_once())

        async def all_begun() -> bool:
            children = (await run.history()).children
            return [one.status for one in children] == ["parked", "ready"]

        await until(all_begun)
        stage.release("fail 1")
        with pytest.raises(Declined, match="declined with 1"):
            await run.result(timeout=LONG)
        children = (await run.history()).children
        assert [one.status for one in children] == ["cancelled"] * 2
        assert (await app.info(f"{run.id}/0.4.0")).status == "cancelled"
        assert children[0].rollback == "complete"
    assert sorted(stage.done) == sorted(
        ["undo of child"]
        + [f"{one} cancelled" for one in ("sleep", "signal", "retry", "child", "inner")]
        + ["remote cancelled", "job cancelled"]
    )
    async with app.worker(queues=["nobody"]) as worker:
        await worker.drain()
    assert not {"remote", "job"} & set(stage.done)


@workflow
async def waits_for_the_running() -> str:
    try:
        await parallel(held("slow"), fail_held(1), work("fast"))
    except Declined as error:
        return await work(f"handled {error.code}")
    return ""


@pytest.mark.parametrize("restart", [False, True])
async def test_the_failure_is_raised_once_the_steps_that_run_have_ended(
    app: Stepwell, restart: bool
) -> None:
    run = await app.start(waits_for_the_running())
    async with app.worker(grace=0):
        await stage.reached("slow")
        stage.release("fail 1")

        async def failed() -> bool:
            return "failed" in {event.outcome for event in (await run.history()).events}

        await until(failed)
        assert "handled 1" not in stage.done
        if not restart:
            stage.release("slow")
            assert await run.result(timeout=LONG) == "handled 1"
    stage.release("slow")
    async with app.worker():
        assert await run.result(timeout=LONG) == "handled 1"
    assert stage.count("slow") == 1 + restart
    assert stage.count("fast") == stage.count("handled 1") == 1
    names = [event.name for event in (await run.history()).events if event.outcome == "ok"]
    assert sorted(names) == ["held", "work", "work"]


@workflow
async def fails_twice() -> None:
    await parallel(fail_held(1), fail_held(2), sleep(3600))


async def test_the_first_failure_is_raised_and_later_ones_are_notes_on_it(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(fails_twice())
        await stage.reached("fail 1")
        await stage.reached("fail 2")
        stage.release("fail 2")

        async def failed() -> bool:
            return len((await run.history()).events) > 0

        await until(failed)
        stage.release("fail 1")
        with pytest.raises(Declined, match="declined with 2") as caught:
            await run.result(timeout=LONG)
        assert "Declined: declined with 1" in caught.value.__notes__[0]


@workflow
async def collects() -> list[str]:
    found = await parallel(fail(1), work("a"), sleep(0.01), fail(2), return_exceptions=True)
    return [str(one) for one in found]


async def test_with_return_exceptions_nothing_is_cancelled(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(collects())
        found = await run.result(timeout=LONG)
    assert found == ["declined with 1", "a", "None", "declined with 2"]


@step
async def undo(what: str) -> None:
    stage.note(f"undo {what}")


@step(compensate=undo)
async def booked(what: str) -> str:
    return what


@step(compensate=undo)
async def booked_held(what: str) -> str:
    await stage.hold(what)
    return what


@workflow
async def books() -> None:
    await parallel(booked("a"), booked("b"), fail(1))


async def test_branches_that_ended_are_undone_in_reverse_of_their_ends(app: Stepwell) -> None:
    async with app.worker():
        with pytest.raises(Declined):
            await (await app.start(books())).result(timeout=LONG)
    assert sorted(stage.done) == ["undo a", "undo b"]


@workflow
async def races_a_booking() -> str:
    index, _ = await race(booked_held("a"), sleep(0.01))
    await work("winner")
    await wait_for_signal(go)
    raise Declined(index)


async def test_a_race_returns_at_once_and_keeps_the_undo_of_its_loser(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(races_a_booking())

        async def won() -> bool:
            return "winner" in stage.done

        await until(won)
        stage.release("a")
        await run.signal(go, 1)
        with pytest.raises(Declined):
            await run.result(timeout=LONG)
    assert stage.done == ["winner", "undo a"]


@workflow
async def races_children() -> int:
    index, _ = await race(child(), work("quick"))
    await work("after")
    return index


async def test_the_child_of_a_losing_branch_is_cancelled_and_awaited(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(races_children())
        assert await run.result(timeout=LONG) == 1
        children = await app.runs(parent=run.id)
        assert [one.status for one in children] in ([], ["cancelled"])
    assert stage.done[:2] == ["quick", "after"]


@workflow
async def nested_race() -> tuple[int, int, str]:
    outer, won = await race(race(sleep(3600), held("fast")), sleep(3600))
    assert won is not None
    inner, value = won
    assert value is not None
    return outer, inner, value


@pytest.mark.parametrize("cache", [0, 1000])
async def test_the_winner_of_a_race_is_the_same_on_every_replay(app: Stepwell, cache: int) -> None:
    async with app.worker(cache=cache):
        run = await app.start(race_then_wait())
        await stage.reached("fast")
        stage.release("slow")
        stage.release("fast")
        await run.signal(go, 0)
        first = await run.result(timeout=LONG)
    names = [event.path for event in (await run.history()).events if event.path.startswith("0.")]
    assert names[0] == f"0.{first}.0"


@workflow
async def race_then_wait() -> int:
    index, _ = await race(held("slow"), held("fast"))
    await wait_for_signal(go)
    await sleep(0.01)
    return index


async def test_races_nest(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(nested_race())
        stage.release("fast")
        assert await run.result(timeout=LONG) == (0, 1, "fast")


@workflow
async def bounded(limit: int) -> int:
    return len(await parallel(*(counted(n) for n in range(12)), limit=limit))


running: set[int] = set()
most: list[int] = []


@step
async def counted(number: int) -> None:
    running.add(number)
    most.append(len(running))
    await asyncio.sleep(0.001)
    running.discard(number)


@pytest.mark.parametrize("limit", [1, 3])
async def test_limit_bounds_the_branches_that_run_at_once(app: Stepwell, limit: int) -> None:
    most.clear()
    async with app.worker():
        assert await (await app.start(bounded(limit))).result(timeout=LONG) == 12
    assert max(most) == limit


@workflow
async def fails_with_some_not_begun() -> list[str]:
    try:
        await parallel(fail(1), work("a"), work("b"), limit=1)
    except Declined:
        return [await work("handled")]
    return []


async def test_branches_beyond_the_limit_never_begin_after_a_failure(app: Stepwell) -> None:
    async with app.worker():
        assert await (await app.start(fails_with_some_not_begun())).result(timeout=LONG) == [
            "handled"
        ]
    assert stage.done == ["handled"]


@workflow
async def detaches_in_a_branch() -> None:
    async def launch() -> None:
        await start(detached(), id="detached")
        await sleep(3600)

    await parallel(launch(), fail_held(1))


@workflow
async def detached() -> str:
    await wait_for_signal(go)
    return "done"


async def test_a_detached_child_outlives_the_branch_that_started_it(app: Stepwell) -> None:
    async with app.worker() as worker:
        run = await app.start(detaches_in_a_branch())

        async def launched() -> bool:
            return bool(await app.runs(name="detached", status="parked"))

        await until(launched)
        stage.release("fail 1")
        with pytest.raises(Declined):
            await run.result(timeout=LONG)
        await worker.drain()
        await app.signal("detached", go, 1)
        assert await app.get("detached", detached).result(timeout=LONG) == "done"


@workflow
async def cancelled_in_parallel() -> None:
    try:
        await parallel(watched("a", sleep(3600)), watched("b", parallel(sleep(3600), sleep(3600))))
    except Cancelled:
        await work("cleanup")
        raise


async def test_a_cancel_of_the_run_reaches_every_branch_before_it_is_raised(app: Stepwell) -> None:
    async with app.worker() as worker:
        run = await app.start(cancelled_in_parallel())
        await worker.drain()
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
    assert stage.done == ["a cancelled", "b cancelled", "cleanup"]

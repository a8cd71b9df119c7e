"""What becomes of children when what waits for them, or has started them, is cancelled."""

from __future__ import annotations

from typing import Literal

import pytest

from stepwell import (
    DeadlineExceeded,
    RunCancelled,
    RunTerminated,
    Signal,
    Stepwell,
    compensate,
    deadline,
    parallel,
    race,
    sleep,
    start,
    step,
    wait_for_signal,
    workflow,
)
from stepwell.testing import crash_test
from tests.behaviour.stage import LONG, stage

pytestmark = pytest.mark.anyio
go = Signal("go", str)
Choice = Literal["cancel", "leave"]


@step
async def note(what: str) -> str:
    stage.reach(what)
    return what


@workflow
async def child(name: str) -> str:
    await note(name)
    return await wait_for_signal(go)


@workflow
async def awaits(choice: Choice | None) -> str:
    return await child("awaited").with_options(id="child", on_parent_cancel=choice)


@workflow
async def starts(choice: Choice | None, end: str) -> str:
    handle = await start(child("started"), id="child", on_parent_cancel=choice)
    if end == "return":
        return handle.id
    if end == "fail":
        raise ValueError(end)
    return await handle.result()


@pytest.mark.parametrize("choice", [None, "cancel", "leave"])
async def test_an_awaited_child_is_cancelled_with_its_parent_or_left(
    app: Stepwell, choice: Choice | None
) -> None:
    async with app.worker() as worker:
        run = await app.start(awaits(choice))
        await stage.reached("awaited")
        await worker.drain()
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
        await worker.drain()
        if choice != "leave":
            assert (await app.info("child")).status == "cancelled"
            return
        # its end changes nothing for the parent
        await app.signal("child", go, "on its own")
        assert await app.get("child", child).result(timeout=LONG) == "on its own"
        assert await run.status() == "cancelled"


async def test_the_result_of_a_child_that_may_be_left_is_waited_for_like_any_other(
    app: Stepwell,
) -> None:
    async with app.worker():
        run = await app.start(awaits("leave"))
        await stage.reached("awaited")
        await app.signal("child", go, "done")
        assert await run.result(timeout=LONG) == "done"


@workflow
async def fails(name: str) -> str:
    await note(name)
    raise ValueError(name)


@workflow
async def branches(how: str) -> str:
    left = child("left").with_options(id="child", on_parent_cancel="leave")
    if how == "race":
        _, value = await race(left, _after("left"))
        return value
    if how == "parallel":
        try:
            await parallel(left, fails("broken"))
        except ValueError as error:
            return str(error)
    try:
        async with deadline(0.05):
            await left
    except DeadlineExceeded:
        return "late"
    return "?"


async def _after(what: str) -> str:
    await sleep(0.05)
    return f"after {what}"


@pytest.mark.parametrize(
    ("how", "result"), [("race", "after left"), ("parallel", "broken"), ("deadline", "late")]
)
async def test_it_speaks_of_every_cancellation_of_what_waits(
    app: Stepwell, how: str, result: str
) -> None:
    async with app.worker() as worker:
        run = await app.start(branches(how))
        assert await run.result(timeout=LONG) == result
        await worker.drain()
        assert (await app.info("child")).status == "parked"
        await app.signal("child", go, "on its own")
        assert await app.get("child", child).result(timeout=LONG) == "on its own"


@pytest.mark.parametrize(
    ("choice", "end", "status"),
    [
        ("cancel", "cancel", "cancelled"),
        ("leave", "cancel", "parked"),
        (None, "cancel", "parked"),
        ("cancel", "return", "parked"),
        ("cancel", "fail", "parked"),
    ],
)
async def test_a_started_child_is_cancelled_with_its_parent_if_asked_for(
    app: Stepwell, choice: Choice | None, end: str, status: str
) -> None:
    async with app.worker() as worker:
        run = await app.start(starts(choice, end))
        await stage.reached("started")
        await worker.drain()
        if end == "cancel":
            await run.cancel()
        await worker.drain()
        assert (await run.info()).ended_at is not None
        assert (await app.info("child")).status == status


@step
async def undo(what: str) -> None:
    stage.reach(f"undo {what}")


@workflow
async def middle() -> str:
    compensate(undo("middle"))
    return await child("below").with_options(id="below")


@workflow
async def top() -> None:
    await start(middle(), id="middle", on_parent_cancel="cancel")
    await wait_for_signal(go)


async def test_a_cancel_goes_down_a_tree_of_started_children(app: Stepwell) -> None:
    async with app.worker() as worker:
        run = await app.start(top())
        await stage.reached("below")
        await worker.drain()
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
        await worker.drain()
        assert [(await app.info(id)).status for id in ("middle", "below")] == ["cancelled"] * 2
        assert (await app.info("middle")).rollback == "complete"


async def test_a_child_that_may_be_left_stays_when_its_parent_is_terminated(app: Stepwell) -> None:
    async with app.worker() as worker:
        run = await app.start(awaits("leave"))
        await stage.reached("awaited")
        await worker.drain()
        await run.terminate()
        with pytest.raises(RunTerminated):
            await run.result(timeout=LONG)
        assert (await app.info("child")).status == "parked"


@workflow
async def waits_forever() -> str:
    linked = await start(child("linked").with_options(on_parent_cancel="cancel"))
    _, found = await race(
        parallel(
            child("left").with_options(on_parent_cancel="leave"), child("also").with_options()
        ),
        _after("the race"),
    )
    return f"{linked.id} {found}"


async def test_a_crash_behind_each_write_changes_nothing_of_it() -> None:
    await crash_test(waits_forever(), include=[__name__])


def test_the_option_is_refused_where_there_is_no_parent() -> None:
    given = child("x").with_options(on_parent_cancel="leave")
    with pytest.raises(ValueError, match=r"on_parent_cancel= must be 'cancel' or 'leave'"):
        child("x").with_options(on_parent_cancel="ignore")  # type: ignore[arg-type]
    assert given.options.on_parent_cancel == "leave"


async def test_a_run_of_its_own_has_no_parent(app: Stepwell) -> None:
    with pytest.raises(ValueError, match="which has no parent"):
        await app.start(child("x").with_options(on_parent_cancel="leave"))


@workflow
async def undoes() -> None:
    compensate(child("x").with_options(on_parent_cancel="leave"))


async def test_an_undo_is_not_interrupted_in_any_case(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(undoes())
        with pytest.raises(ValueError, match="no cancellation interrupts"):
            await run.result(timeout=LONG)

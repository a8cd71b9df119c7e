"""A step that has begun when its branch is cancelled: let finish, or interrupted."""

from __future__ import annotations

import asyncio

import pytest

from stepwell import (
    Cancelled,
    Retry,
    RetryLater,
    RunCancelled,
    RunFailed,
    Stepwell,
    Workflow,
    compensate,
    current_step,
    race,
    sleep,
    step,
    workflow,
)
from tests.behaviour.stage import LONG, stage, until

pytestmark = pytest.mark.anyio


@step
async def undo(what: str) -> None:
    stage.note(f"undo {what}")


@step
async def charge(what: str) -> str:
    stage.note(f"charge {what}")
    await stage.hold(what)
    return what


@step(compensate=undo)
async def reserve(what: str) -> str:
    stage.note(f"reserve {what}")
    await stage.hold(what)
    return what


@step
def charge_in_thread(what: str) -> str:
    stage.note(f"charge {what}")
    stage.hold_thread(what)
    return what


@step(on_cancel="interrupt")
async def interruptible(what: str) -> str:
    try:
        await stage.hold(what)
    except asyncio.CancelledError:
        stage.note("interrupted")
        await asyncio.sleep(0)
        stage.note("cleaned up")
        raise
    return what


@step(on_cancel="interrupt")
def interruptible_in_thread(what: str) -> str:
    stage.hold_thread(what)
    stage.note(f"cancelled: {current_step().cancelled}")
    stage.reach("over")
    return what


@workflow
async def charges() -> None:
    receipt = await charge("a")
    compensate(undo(receipt))
    await charge("b")


@workflow
async def charges_in_thread() -> None:
    receipt = await charge_in_thread("a")
    compensate(undo(receipt))
    await charge("b")


@pytest.mark.parametrize("flow", [charges, charges_in_thread])
async def test_a_step_that_has_begun_finishes_and_its_branch_learns_its_result(
    app: Stepwell, flow: Workflow[[], None]
) -> None:
    async with app.worker():
        run = await app.start(flow())
        await stage.reached("a")
        await run.cancel()
        assert await run.status() == "running"
        stage.release("a")
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
        assert (await run.info()).rollback == "complete"
    assert stage.done == ["charge a", "undo a"]


async def test_a_step_that_was_running_finishes_after_a_restart(app: Stepwell) -> None:
    run = await app.start(charges())
    async with app.worker(grace=0):
        await stage.reached("a")
        await run.cancel()
    stage.release("a")
    async with app.worker():
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
    assert stage.done == ["charge a", "charge a", "undo a"]


@workflow
async def holds_a_place() -> None:
    await charge("place")


async def test_a_step_that_was_running_finishes_after_a_restart_though_it_has_to_wait_for_a_place(
    app: Stepwell,
) -> None:
    run = await app.start(charges())
    async with app.worker(grace=0):
        await stage.reached("a")
    other = await app.start(holds_a_place().with_options(priority=1))
    async with app.worker(step_concurrency=1):
        await stage.reached("place")
        await run.cancel()
        stage.release("a")
        stage.release("place")
        await other.result(timeout=LONG)
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
    assert stage.done == ["charge a", "charge place", "charge a", "undo a"]


@step(queue="far")
async def charge_far(what: str) -> str:
    stage.note(f"charge {what}")
    await stage.hold(what)
    if what == "later":
        raise RetryLater(3600.0)
    return what


@workflow
async def charges_far(what: str) -> None:
    receipt = await charge_far(what)
    compensate(undo(receipt))
    await charge("b")


async def test_a_remote_step_that_was_running_finishes_after_a_restart(app: Stepwell) -> None:
    run = await app.start(charges_far("a"), id="run")
    async with app.worker(queues=["default", "far"], grace=0):
        await stage.reached("a")
    await run.cancel()
    async with app.worker() as worker:
        await worker.drain()  # the run tells its remote step
    stage.release("a")
    async with app.worker(queues=["default", "far"]):
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
        assert (await app.info("run/0")).status == "completed"
    assert stage.done == ["charge a", "charge a", "undo a"]


async def test_a_remote_step_that_was_to_be_tried_later_ends_with_the_cancel(
    app: Stepwell,
) -> None:
    async with app.worker(queues=["default", "far"]):
        run = await app.start(charges_far("later"), id="run")
        await stage.reached("later")
        await run.cancel()
        stage.release("later")
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
        assert (await app.info("run/0")).status == "cancelled"
    assert set(stage.done) == {"charge later"}


@workflow
async def reserves(goes_on: bool) -> str:
    what = await reserve("a")
    if goes_on:
        await charge("never")
    return what


async def test_the_undo_of_a_step_is_registered_though_its_branch_was_cancelled(
    app: Stepwell,
) -> None:
    async with app.worker():
        run = await app.start(reserves(goes_on=True))
        await stage.reached("a")
        await run.cancel()
        stage.release("a")
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
    assert stage.done == ["reserve a", "undo a"]


async def test_a_run_whose_last_step_was_running_when_it_was_cancelled_completes(
    app: Stepwell,
) -> None:
    async with app.worker():
        run = await app.start(reserves(goes_on=False))
        await stage.reached("a")
        await run.cancel()
        stage.release("a")
        assert await run.result(timeout=LONG) == "a"
    assert stage.done == ["reserve a"]


@workflow
async def reserves_in_a_losing_branch() -> str:
    index, _ = await race(reserve("a"), charge("winner"))
    await charge("after")
    await sleep(0)
    raise LookupError(index)


async def test_a_run_does_not_roll_back_before_the_steps_of_lost_branches_have_ended(
    app: Stepwell,
) -> None:
    async with app.worker():
        run = await app.start(reserves_in_a_losing_branch())
        await stage.reached("a")
        stage.release("winner")
        stage.release("after")
        await stage.reached("after")

        async def slept() -> bool:
            return (await run.history()).events[-1].kind == "timer"

        await until(slept)
        assert "undo a" not in stage.done
        assert not (await run.info()).ended
        stage.release("a")
        with pytest.raises(LookupError):
            await run.result(timeout=LONG)
    assert stage.done[-1] == "undo a"


@step(retry=Retry(attempts=100, delay=0.0))
async def fails_after_cancel() -> None:
    stage.note("attempt")
    await stage.hold("failing")
    raise LookupError("no")


@workflow
async def awaits_a_failing_step() -> None:
    try:
        await fails_after_cancel()
    except LookupError:
        stage.note("caught")
        await sleep(0)


async def test_a_step_that_fails_after_the_cancel_is_not_tried_again(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(awaits_a_failing_step())
        await stage.reached("failing")
        await run.cancel()

        async def delivered() -> bool:
            return [event.kind for event in (await run.history()).events] == ["cancel"]

        await until(delivered)
        stage.release("failing")
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
    assert stage.done == ["attempt", "caught"]


@step(retry=Retry(attempts=2, delay=3600.0, jitter=False))
async def fails_at_once() -> None:
    stage.note("attempt")
    raise LookupError("no")


@workflow
async def awaits_a_retry() -> None:
    try:
        await fails_at_once()
    except Cancelled:
        stage.note("cancelled")
        raise


async def test_a_cancel_ends_the_wait_for_the_next_attempt(app: Stepwell) -> None:
    async with app.worker() as worker:
        run = await app.start(awaits_a_retry())
        await worker.drain()
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
    assert stage.done == ["attempt", "cancelled"]


@workflow
async def interrupts() -> str:
    return await interruptible("a")


async def test_an_interrupted_step_cleans_up_before_its_branch_goes_on(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(interrupts())
        await stage.reached("a")
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
        assert [event.kind for event in (await run.history()).events] == ["cancel"]
    assert stage.done == ["interrupted", "cleaned up"]


@workflow
async def interrupts_a_thread() -> str:
    return await interruptible_in_thread("a")


async def test_an_interrupted_thread_is_told_and_what_it_returns_is_dropped(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(interrupts_a_thread())
        await stage.reached("a")
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
        stage.release("a")
        await stage.reached("over")
        assert stage.done == ["cancelled: True"]
        assert [event.kind for event in (await run.history()).events] == ["cancel"]


@step
async def cancels_itself() -> None:
    raise asyncio.CancelledError


@step
async def cancels_its_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


@step
async def cancels_an_inner_task() -> None:
    async def inner() -> None:
        await asyncio.sleep(3600)

    task = asyncio.create_task(inner())
    asyncio.get_running_loop().call_soon(task.cancel)
    await task


@step(retry=Retry(attempts=3, delay=0.0, retry_on=(asyncio.CancelledError,)))
async def cancels_itself_thrice() -> None:
    stage.note("attempt")
    raise asyncio.CancelledError


@workflow
async def fails_with_a_cancel(which: int) -> None:
    steps = (cancels_itself, cancels_its_task, cancels_an_inner_task, cancels_itself_thrice)
    await steps[which]()


@pytest.mark.parametrize("which", range(4))
async def test_a_cancellation_of_the_steps_own_making_is_its_failure(
    app: Stepwell, which: int
) -> None:
    async with app.worker():
        run = await app.start(fails_with_a_cancel(which))
        with pytest.raises(RunFailed, match="CancelledError"):
            await run.result(timeout=LONG)
        assert await run.status() == "failed"
        with pytest.raises(RunFailed):
            await app.run(fails_with_a_cancel(0), timeout=LONG)
    assert stage.done == (["attempt"] * 3 if which == 3 else [])

"""Held and failed runs: an operator retries them from the failed step, or lets them roll back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepwell import (
    DeadlineExceeded,
    RequestRefused,
    RunHeld,
    Signal,
    Stepwell,
    Workflow,
    compensate,
    current_run,
    current_step,
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
broken: set[str] = set()


@pytest.fixture(autouse=True)
def _all_is_broken() -> None:
    broken.clear()
    broken.update("xyz")


@step
async def work(what: str) -> str:
    stage.note(what)
    if what in broken:
        raise LookupError(what)
    return what


@step
async def undo(what: str) -> None:
    stage.note(f"undo {what}")


@workflow(on_failure="hold")
async def held() -> list[str]:
    done = [await work("a")]
    compensate(undo("a"))
    done += [await work("x"), await work("b")]
    return done


async def test_a_held_run_goes_on_from_its_failed_step_after_a_restart(
    make_app: Callable[[], Stepwell],
) -> None:
    async with make_app() as app, app.worker():
        run = await app.start(held(), id="run")
        with pytest.raises(RunHeld, match="x"):
            await run.result(timeout=LONG)
        assert await run.status() == "held"
    broken.clear()
    async with make_app() as app:
        assert await app.retry("run", actor="me", reason="mended") == "ready"
        async with app.worker():
            assert await app.get("run", held).result(timeout=LONG) == ["a", "x", "b"]
        history = await app.history("run")
        assert [(one.action, one.actor, one.reason) for one in history.audit] == [
            ("retry", "me", "mended")
        ]
        assert [event.name for event in history.events if event.voided] == ["work"]
        assert await app.doctor() == []
    assert stage.done == ["a", "x", "x", "b"]


async def test_a_held_run_that_fails_again_is_held_again(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(held())
        for _ in range(3):
            with pytest.raises(RunHeld):
                await run.result(timeout=LONG)
            await run.retry()
        with pytest.raises(RunHeld):
            await run.result(timeout=LONG)
        broken.clear()
        await run.retry()
        assert await run.result(timeout=LONG) == ["a", "x", "b"]
    assert stage.done == ["a"] + ["x"] * 5 + ["b"]


async def test_a_held_run_that_is_let_roll_back_fails_with_its_reason(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(held())
        with pytest.raises(RunHeld):
            await run.result(timeout=LONG)
        await run.roll_back()
        with pytest.raises(LookupError, match="x"):
            await run.result(timeout=LONG)
        assert (await run.info()).rollback == "complete"
        with pytest.raises(RequestRefused):
            await run.retry()
    assert stage.done == ["a", "x", "undo a"]


@workflow
async def fails_without_undo() -> tuple[str, int]:
    await work("a")
    return await work("x"), current_run().attempt


async def test_a_failed_run_that_undid_nothing_can_be_retried(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(fails_without_undo())
        with pytest.raises(LookupError):
            await run.result(timeout=LONG)
        broken.clear()
        await run.retry()
        assert await run.result(timeout=LONG) == ("x", 2)
    assert stage.done == ["a", "x", "x"]


async def branch(name: str, bad: str) -> str:
    await work(f"before {name}")
    await work(bad)
    return await work(f"after {name}")


@workflow(on_failure="hold")
async def held_in_parallel() -> tuple[str, ...]:
    first = await work("first")
    results = await parallel(branch("1", "ok"), branch("2", "x"), branch("3", "fine"))
    return first, *results


@pytest.mark.parametrize("cache", [0, 1000])
async def test_a_retry_in_parallel_repeats_the_failed_step_and_not_what_succeeded(
    app: Stepwell, cache: int
) -> None:
    async with app.worker(cache=cache):
        run = await app.start(held_in_parallel())
        with pytest.raises(RunHeld):
            await run.result(timeout=LONG)
        broken.clear()
        await run.retry()
        assert await run.result(timeout=LONG) == ("first", "after 1", "after 2", "after 3")
    assert stage.count("x") == 2
    for once in ("first", "before 1", "before 2", "before 3"):
        assert stage.count(once) == 1
    for at_least_once in ("ok", "fine", "after 1", "after 2", "after 3"):
        assert stage.count(at_least_once) in (1, 2)


@workflow(on_failure="hold")
async def catches_before_it_fails() -> str:
    try:
        await work("y")
    except LookupError:
        await work("handled")
    await sleep(0.01)
    return await work("x")


async def test_a_retry_leaves_a_failure_that_was_handled_as_it_was(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(catches_before_it_fails())
        with pytest.raises(RunHeld):
            await run.result(timeout=LONG)
        broken.clear()
        await run.retry()
        assert await run.result(timeout=LONG) == "x"
    assert stage.done == ["y", "handled", "x", "x"]


@workflow(on_failure="hold")
async def wraps_its_failure() -> str:
    try:
        return await work("x")
    except LookupError as error:
        await work("noted")
        raise RuntimeError("wrapped") from error


async def test_a_failure_that_was_wrapped_is_retried_where_it_came_from(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(wraps_its_failure())
        with pytest.raises(RunHeld, match="wrapped"):
            await run.result(timeout=LONG)
        broken.clear()
        await run.retry()
        assert await run.result(timeout=LONG) == "x"
    assert stage.done == ["x", "noted", "x"]


@workflow(on_failure="hold")
async def fails_by_itself(limit: int = 1) -> int:
    await work("a")
    value = await wait_for_signal(go)
    if current_run().attempt <= limit:
        raise RuntimeError("not yet")
    return value


async def test_a_failure_of_the_workflows_own_code_is_retried_with_all_its_records(
    app: Stepwell,
) -> None:
    async with app.worker():
        run = await app.start(fails_by_itself())
        await run.signal(go, 5)
        with pytest.raises(RunHeld, match="not yet"):
            await run.result(timeout=LONG)
        await run.retry()
        assert await run.result(timeout=LONG) == 5
    assert stage.done == ["a"]


@workflow(on_failure="hold")
async def held_child() -> str:
    return await work("x")


@workflow
async def parent_of_held() -> str:
    return f"child said {await held_child()}"


async def test_a_parent_waits_for_a_child_that_is_held_and_goes_on_after_its_retry(
    app: Stepwell,
) -> None:
    async with app.worker() as worker:
        run = await app.start(parent_of_held(), id="parent")
        await worker.drain()
        assert await app.info("parent/0") is not None
        assert (await app.info("parent/0")).status == "held"
        assert await run.status() == "parked"
        broken.clear()
        await app.retry("parent/0")
        assert await run.result(timeout=LONG) == "child said x"


@workflow
async def failing_child() -> str:
    return await work("x")


@workflow(on_failure="hold")
async def parent_of_failing() -> str:
    return await failing_child()


async def test_a_child_whose_failure_its_parent_took_is_not_retried_apart(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(parent_of_failing(), id="parent")
        with pytest.raises(RunHeld):
            await run.result(timeout=LONG)
        with pytest.raises(RequestRefused):
            await app.retry("parent/0")


async def test_a_cancel_lets_a_held_run_roll_back(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(held())
        with pytest.raises(RunHeld):
            await run.result(timeout=LONG)
        await run.cancel()
        with pytest.raises(LookupError, match="x"):
            await run.result(timeout=LONG)
        assert (await run.info()).rollback == "complete"
    assert stage.done == ["a", "x", "undo a"]


@workflow
async def waits_for_held() -> None:
    try:
        await held()
    finally:
        stage.note("parent")


async def test_a_parent_that_is_cancelled_does_not_wait_for_the_operator_of_its_held_child(
    app: Stepwell,
) -> None:
    async with app.worker() as worker:
        run = await app.start(waits_for_held())
        await worker.drain()
        assert [one.status for one in await app.runs(name="held")] == ["held"]
        await run.cancel()
        with pytest.raises(LookupError, match="x"):  # the child's own failure was first
            await run.result(timeout=LONG)
    assert stage.done == ["a", "x", "undo a", "parent"]


@workflow(on_failure="hold", deadline=0.5)
async def held_too_late() -> None:
    compensate(undo("a"))
    await wait_for_signal(go)


async def test_a_run_that_passed_its_deadline_is_not_held_since_no_retry_could_help(
    app: Stepwell,
) -> None:
    async with app.worker():
        run = await app.start(held_too_late())
        with pytest.raises(DeadlineExceeded):
            await run.result(timeout=LONG)
    assert stage.done == ["undo a"]


@workflow(on_failure="hold")
async def fails_at_its_cancel() -> None:
    try:
        await wait_for_signal(go)
    finally:
        await work("x")


async def test_a_run_that_fails_while_it_is_cancelled_is_not_held(app: Stepwell) -> None:
    async with app.worker() as worker:
        run = await app.start(fails_at_its_cancel())
        await worker.drain()
        await run.cancel()
        with pytest.raises(LookupError, match="x"):
            await run.result(timeout=LONG)


@workflow(on_failure="hold")
async def races_then_fails() -> str:
    index, _ = await race(sleep(0.01), wait_for_signal(go))
    await work(f"won {index}")
    return await work("x")


async def test_a_retry_keeps_timers_and_winners_as_they_were(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(races_then_fails())
        with pytest.raises(RunHeld):
            await run.result(timeout=LONG)
        broken.clear()
        await run.signal(go, 1)
        await run.retry()
        assert await run.result(timeout=LONG) == "x"
    assert stage.done == ["won 0", "x", "x"]


@step
async def keyed() -> str:
    stage.note(current_step().key)
    if broken:
        raise LookupError("x")
    return "done"


@workflow(on_failure="hold")
async def held_with_a_key() -> str:
    return await keyed()


async def test_a_retried_step_has_the_key_that_it_had(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(held_with_a_key())
        with pytest.raises(RunHeld):
            await run.result(timeout=LONG)
        broken.clear()
        await run.retry()
        assert await run.result(timeout=LONG) == "done"
    assert len(stage.done) == 2
    assert len(set(stage.done)) == 1


def deploy(version: int) -> Workflow[[], str]:
    """Replace the code of a workflow, as a new release does."""
    if version == 1:

        @workflow(name="changing", on_failure="hold")
        async def changing() -> str:
            await work("a")
            await work("x")
            return "first release"

        return changing

    @workflow(name="changing", on_failure="hold")
    async def changing_2() -> str:
        await work("a")
        await work("b")
        await work("c")
        return "second release"

    return changing_2


async def test_a_retry_may_use_code_that_was_changed_from_the_failed_step_on(
    app: Stepwell,
) -> None:
    first = deploy(1)
    async with app.worker():
        run = await app.start(first(), id="run")
        with pytest.raises(RunHeld):
            await run.result(timeout=LONG)
    deploy(2)
    async with app.worker():
        await run.retry()
        assert await run.result(timeout=LONG) == "second release"
    assert stage.done == ["a", "x", "b", "c"]

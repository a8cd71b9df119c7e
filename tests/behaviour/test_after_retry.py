"""What an attempt at a run leaves behind (timers, late children) does not meet the next one."""

from __future__ import annotations

import pytest

from stepwell import (
    RunHeld,
    Stepwell,
    parallel,
    race,
    sleep,
    step,
    workflow,
)
from tests.behaviour.stage import LONG, stage, until

pytestmark = pytest.mark.anyio
broken: set[str] = set()


@pytest.fixture(autouse=True)
def _all_is_broken() -> None:
    broken.clear()
    broken.update("xy")


@step
async def work(what: str) -> str:
    stage.note(what)
    if what in broken:
        raise LookupError(what)
    return what


@workflow(on_failure="hold")
async def times_its_repair() -> str:
    try:
        return await work("x")
    except LookupError:
        await race(sleep(100.0), work("y"))
        raise


async def test_a_retry_does_not_meet_the_timers_of_the_code_that_failed(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(times_its_repair())
        with pytest.raises(RunHeld):
            await run.result(timeout=LONG)
        broken.clear()
        await run.retry()
        assert await run.result(timeout=LONG) == "x"


@step(queue="far", on_cancel="interrupt")
async def far(what: str) -> str:
    stage.note(what)
    await stage.hold(what)
    return what


@step
async def fails_beside(what: str) -> str:
    if broken:
        await stage.reached(what)
        raise LookupError("x")
    return "ok"


@workflow(on_failure="hold")
async def fails_beside_a_remote_step() -> tuple[str, str]:
    return await parallel(far("r"), fails_beside("r"))


async def test_a_retry_does_not_meet_the_late_end_of_a_remote_step_that_was_interrupted(
    app: Stepwell,
) -> None:
    async def job_ended() -> bool:
        return (await app.info("run/0.0.0")).status in ("cancelled", "completed")

    async with app.worker(queues=["default", "far"]):
        run = await app.start(fails_beside_a_remote_step(), id="run")
        with pytest.raises(RunHeld):
            await run.result(timeout=LONG)
        broken.clear()
        stage.release("r")
        await until(job_ended)
        await run.retry()
        assert await run.result(timeout=LONG) == ("r", "ok")


@workflow(on_failure="hold")
async def raises_all_that_failed() -> list[str]:
    results = await parallel(work("x"), work("ok"), work("y"), return_exceptions=True)
    failures = [one for one in results if isinstance(one, Exception)]
    if failures:
        raise ExceptionGroup("several", failures)
    return [one for one in results if isinstance(one, str)]


async def test_a_retry_does_all_anew_that_a_group_of_failures_is_made_of(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(raises_all_that_failed())
        with pytest.raises(RunHeld):
            await run.result(timeout=LONG)
        broken.clear()
        await run.retry()
        assert await run.result(timeout=LONG) == ["x", "ok", "y"]
    assert sorted(stage.done) == ["ok", "x", "x", "y", "y"]


@workflow(on_failure="hold")
async def held_without_undo() -> str:
    return await work("x")


async def test_a_run_that_was_let_roll_back_and_is_retried_is_held_when_it_fails_again(
    app: Stepwell,
) -> None:
    async with app.worker():
        run = await app.start(held_without_undo())
        with pytest.raises(RunHeld):
            await run.result(timeout=LONG)
        await run.roll_back()
        with pytest.raises(LookupError):
            await run.result(timeout=LONG)
        await run.retry()
        with pytest.raises(RunHeld):
            await run.result(timeout=LONG)

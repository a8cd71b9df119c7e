"""Attempts of tasks and steps: when there is another one, and what becomes of one that is late."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from stepwell import (
    DurabilityError,
    GiveUp,
    Retry,
    RetryLater,
    RunCancelled,
    StepTimeout,
    Stepwell,
    TaskTimeout,
    current_job,
    current_step,
    step,
    task,
    workflow,
)
from tests.behaviour.stage import LONG, stage, until

pytestmark = pytest.mark.anyio
THREE = Retry(attempts=3, delay=0.0)


class CardStolen(GiveUp):
    pass


@task(retry=THREE)
async def task_gives_up() -> None:
    stage.note("executed")
    raise GiveUp("the card is stolen")


@step(retry=THREE)
async def step_gives_up() -> None:
    stage.note("executed")
    raise GiveUp("the card is stolen")


@step(retry=THREE, queue="far")
async def far_step_gives_up() -> None:
    stage.note("executed")
    raise CardStolen("the card is stolen")


@workflow
async def gives_up(far: bool) -> str:
    try:
        await (far_step_gives_up() if far else step_gives_up())
    except GiveUp as error:
        return f"{type(error).__name__}: {error.reason}"
    return ""


async def test_give_up_ends_a_task_at_once(app: Stepwell) -> None:
    async with app.worker():
        for call in (task_gives_up(), task_gives_up().with_options(retry=Retry(attempts=9))):
            run = await app.enqueue(call)
            with pytest.raises(GiveUp, match="the card is stolen") as caught:
                await run.result(timeout=LONG)
            assert caught.value.reason == "the card is stolen"
            assert (await run.info()).attempts == 1
    assert stage.done == ["executed", "executed"]


@pytest.mark.parametrize(("far", "outcome"), [(False, "GiveUp"), (True, "CardStolen")])
async def test_give_up_ends_a_step_at_once_and_its_workflow_may_catch_it(
    app: Stepwell, far: bool, outcome: str
) -> None:
    async with app.worker(queues=["default", "far"]):
        run = await app.start(gives_up(far))
        assert await run.result(timeout=LONG) == f"{outcome}: the card is stolen"
    assert stage.done == ["executed"]


TWENTY = 20


async def _busy_twenty_times() -> int:
    stage.note(current_job().attempt)
    if len(stage.done) <= TWENTY:
        raise RetryLater(0.0)
    return current_job().attempt


@task(retry=THREE)
async def busy_task() -> int:
    return await _busy_twenty_times()


@step(retry=THREE)
async def busy_step() -> int:
    return await _busy_twenty_times()


@step(retry=THREE, queue="far")
async def busy_far_step() -> int:
    return await _busy_twenty_times()


@workflow
async def busy(far: bool) -> int:
    return await (busy_far_step() if far else busy_step())


@pytest.mark.parametrize("cache", [0, 1000])
@pytest.mark.parametrize("where", ["task", "step", "far step"])
async def test_to_come_later_twenty_times_costs_none_of_three_attempts(
    app: Stepwell, where: str, cache: int
) -> None:
    async with app.worker(queues=["default", "far"], cache=cache):
        run = (
            await app.enqueue(busy_task())
            if where == "task"
            else await app.start(busy(where == "far step"))
        )
        assert await run.result(timeout=LONG) == 1
    assert stage.done == [1] * (TWENTY + 1)


def test_retry_later_takes_a_finite_span() -> None:
    assert RetryLater(timedelta(minutes=1)).delay == 60.0
    wrong: Any
    for wrong in (-1.0, float("inf"), float("nan"), True, "soon"):
        with pytest.raises((TypeError, ValueError), match="RetryLater"):
            RetryLater(wrong)


class Transient(Exception):
    pass


class Fatal(Transient):
    pass


@task(queue="far")
async def fails_with(kind: str) -> None:
    stage.note(kind)
    raise {"transient": Transient, "fatal": Fatal, "other": LookupError}[kind]


@step(queue="far")
async def step_fails_with(kind: str) -> None:
    stage.note(kind)
    raise {"transient": Transient, "fatal": Fatal, "other": LookupError}[kind]


CHOOSY = Retry(attempts=4, delay=0.0, retry_on=(Transient,), give_up_on=(Fatal,))


@workflow
async def chooses(kind: str) -> None:
    await step_fails_with(kind).with_options(retry=CHOOSY)


@pytest.mark.parametrize("where", ["task", "step"])
async def test_a_call_chooses_the_exceptions_it_is_retried_on_for_whichever_worker_executes_it(
    make_app: Callable[[], Stepwell], where: str
) -> None:
    async with make_app() as app:
        runs = [
            (
                await app.enqueue(fails_with(kind).with_options(retry=CHOOSY))
                if where == "task"
                else await app.start(chooses(kind))
            )
            for kind in ("transient", "fatal", "other")
        ]
    async with make_app() as app, app.worker(queues=["default", "far"]):
        for run, error in zip(runs, (Transient, Fatal, LookupError), strict=True):
            with pytest.raises(error):
                await app.get(run.id).result(timeout=LONG)
    assert Counter(stage.done) == {"transient": 4, "fatal": 1, "other": 1}


def test_what_failed_together_is_not_retried_together() -> None:
    """A thousand that fail at one moment come back evenly over the whole of each delay."""
    retry = Retry(attempts=9, delay=1.0, factor=2.0, max_delay=4.0)
    chances = [Random(seed) for seed in range(1000)]
    for failures, longest in ((1, 1.0), (2, 2.0), (3, 4.0), (4, 4.0)):
        waits = [retry.delay_after(failures, chance) for chance in chances]
        tenths = Counter(int(wait / longest * 10) for wait in waits)
        assert set(tenths) == set(range(10))
        assert all(60 < count < 140 for count in tenths.values())


def test_without_jitter_the_whole_delay_is_waited() -> None:
    retry = Retry(attempts=9, delay=1.0, factor=2.0, max_delay=4.0, jitter=False)
    assert [retry.delay_after(n, Random(0)) for n in (1, 2, 3, 4)] == [1.0, 2.0, 4.0, 4.0]


@task(retry=Retry(attempts=2, delay=3600.0, max_delay=3600.0))
async def fails_together() -> None:
    stage.note("failed")
    if len(stage.done) == 20:
        stage.reach("all failed")
    raise LookupError


async def test_the_delay_that_was_drawn_is_stored(app: Stepwell) -> None:
    async with app.worker() as worker:
        await app.enqueue_many(fails_together() for _ in range(20))
        await stage.reached("all failed")
        await worker.drain()
    waits = [run.due_at for run in await app.runs()]
    assert len(set(waits)) == 20


@task(timeout=0.02)
def task_blocks() -> str:
    stage.hold_thread("thread")
    stage.note(current_job().cancelled)
    stage.reach("over")
    return "late"


@step(timeout=0.02)
def step_blocks() -> str:
    stage.hold_thread("thread")
    stage.note(current_step().cancelled)
    stage.reach("over")
    return "late"


@workflow
async def step_blocks_in_it() -> str:
    return await step_blocks()


@task
def quick() -> str:
    return "quick"


@pytest.mark.parametrize("which", ["task", "step"])
async def test_a_thread_that_is_abandoned_is_said_to_be_so_and_its_result_is_dropped(
    app: Stepwell, which: str
) -> None:
    goes_on = "; its thread, which cannot be stopped, goes on, and what it returns does not count"
    error = TaskTimeout if which == "task" else StepTimeout
    with capture_logs() as logs:
        async with app.worker():
            if which == "task":
                run = await app.enqueue(task_blocks())
            else:
                run = await app.start(step_blocks_in_it())
            with pytest.raises(error) as caught:
                await run.result(timeout=LONG)
            name = f"{which} '{which}_blocks'"
            assert str(caught.value) == f"{name} took longer than its timeout of 0.02 s{goes_on}"
            assert (await run.info()).status == "failed"
            stage.release("thread")
            await stage.reached("over")
            while not any(line["event"] == "late_result_dropped" for line in logs):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            assert (await run.info()).status == "failed"
    assert stage.done == [True]
    (abandoned,) = [line for line in logs if line["event"] == "thread_abandoned"]
    assert (abandoned[which], abandoned["run"], abandoned["abandoned"]) == (
        f"{which}_blocks",
        run.id,
        1,
    )
    (dropped,) = [line for line in logs if line["event"] == "late_result_dropped"]
    assert dropped["abandoned"] == 0


async def test_a_hundred_abandoned_threads_leave_a_pool_of_four_as_it_was(app: Stepwell) -> None:
    async with app.worker(threads=4):
        runs = await app.enqueue_many(task_blocks() for _ in range(100))
        for run in runs:
            with pytest.raises(TaskTimeout):
                await run.result(timeout=LONG)
        assert await (await app.enqueue(quick())).result(timeout=LONG) == "quick"
        stage.release("thread")


@task
def holds_the_only_thread() -> None:
    stage.hold_thread("only")


@task
def leaves_a_trace(what: str = "default") -> None:
    stage.note(what)


async def test_what_was_cancelled_before_it_had_a_thread_never_begins(app: Stepwell) -> None:
    async with app.worker(threads=1) as worker:
        await app.enqueue(holds_the_only_thread())
        await stage.reached("only")
        run = await app.enqueue(leaves_a_trace("cancelled"))

        async def runs() -> bool:
            return await run.status() == "running"

        await until(runs)
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
        stage.release("only")
        await worker.drain()
    assert stage.done == []


@task(timeout=0.02)
async def task_waits() -> None:
    await asyncio.sleep(3600)


async def test_the_timeout_of_a_task_is_no_steps(app: Stepwell) -> None:
    async with app.worker():
        with pytest.raises(TaskTimeout) as caught:
            await (await app.enqueue(task_waits())).result(timeout=LONG)
    assert str(caught.value) == "task 'task_waits' took longer than its timeout of 0.02 s"
    assert isinstance(caught.value, TimeoutError)


@task(queue="mail")
async def tells_of_itself(number: int = 7) -> list[object]:
    job = current_job()
    assert job is current_step()
    return [job.kind, job.name, job.run_id, job.path, job.queue, job.attempt, dict(job.arguments)]


async def test_a_job_knows_itself(app: Stepwell) -> None:
    async with app.worker(queues=["mail"]):
        run = await app.enqueue(tells_of_itself(), id="job-1")
        told = await run.result(timeout=LONG)
    assert told == ["task", "tells_of_itself", "job-1", "", "mail", 1, {"number": 7}]


@task
async def to_start() -> float:
    return current_job().scheduled_at.timestamp()


async def test_a_job_that_nothing_delays_was_to_start_when_it_was_made(app: Stepwell) -> None:
    async with app.worker():
        run = await app.enqueue(to_start())
        assert await run.result(timeout=LONG) == (await run.info()).created_at.timestamp()


def test_outside_there_is_no_current_job() -> None:
    with pytest.raises(DurabilityError, match=r"current_job\(\) works only inside a step or task"):
        current_job()

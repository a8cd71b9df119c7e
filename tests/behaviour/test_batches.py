"""Tasks with `batch=`: one call of the function for many jobs, and an outcome for each of them."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stepwell import (
    BatchMismatch,
    DeadlineExceeded,
    Queue,
    Rate,
    Retry,
    RetryLater,
    Run,
    RunCancelled,
    Stepwell,
    TaskCall,
    current_job,
    current_step,
    parallel,
    task,
    workflow,
)
from tests.behaviour.stage import LONG, stage, until

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Message:
    to: str
    text: str = ""


@task(batch=10)
async def mail(messages: list[Message]) -> list[str]:
    stage.note(len(messages))
    return [f"to {message.to}" for message in messages]


@task(batch=3, linger=3600.0)
async def patient(numbers: list[int]) -> list[int]:
    stage.note(list(numbers))
    return [number * 2 for number in numbers]


@task(batch=100, linger=0.02)
async def soon(numbers: list[int]) -> list[int]:
    stage.note(list(numbers))
    return numbers


@task(batch=3)
async def since_when(numbers: list[int]) -> list[float]:
    return [current_job().scheduled_at.timestamp() for _ in numbers]


async def test_a_batch_is_told_the_earliest_start_of_its_jobs(app: Stepwell) -> None:
    early = datetime(2020, 1, 1, tzinfo=UTC)
    times = [early + timedelta(days=1), early, None]
    runs = [await app.enqueue(since_when(number), at=at) for number, at in enumerate(times)]
    async with app.worker():
        assert [await run.result(timeout=LONG) for run in runs] == [early.timestamp()] * 3


async def results(runs: list[Run[int]]) -> list[int]:
    return [await run.result(timeout=LONG) for run in runs]


async def test_calls_are_made_per_item_and_executed_together(app: Stepwell) -> None:
    calls = [mail(Message(f"{number}")) for number in range(25)]
    runs = await app.enqueue_many(calls)
    async with app.worker():
        outcomes = [await run.result(timeout=LONG) for run in runs]
    assert outcomes == [f"to {number}" for number in range(25)]
    assert sorted(stage.done) == [5, 10, 10]


async def test_a_batch_is_gathered_across_claims_until_it_is_full(app: Stepwell) -> None:
    async with app.worker():
        runs = [await app.enqueue(patient(number)) for number in range(6)]
        assert await results(runs) == [0, 2, 4, 6, 8, 10]
    assert stage.done == [[0, 1, 2], [3, 4, 5]]


async def test_a_batch_that_does_not_become_full_begins_when_it_has_lingered(
    app: Stepwell,
) -> None:
    async with app.worker():
        runs = await app.enqueue_many([soon(number) for number in range(3)])
        assert await results(runs) == [0, 1, 2]
    assert stage.done == [[0, 1, 2]]


@task(batch=3, linger=3600.0)
async def patient_too(numbers: list[int]) -> list[int]:
    stage.note(list(numbers))
    return numbers


async def test_batches_that_have_all_places_between_them_do_not_wait_for_more(
    app: Stepwell,
) -> None:
    runs = await app.enqueue_many([patient(0), patient_too(1), patient(2), patient_too(3)])
    async with app.worker(concurrency=4):
        assert await results(runs) == [0, 1, 4, 3]
    assert sorted(stage.done) == [[0, 2], [1, 3]]


async def test_a_batch_has_no_more_jobs_than_its_worker_has_places(app: Stepwell) -> None:
    runs = await app.enqueue_many([patient(number) for number in range(4)])
    async with app.worker(concurrency=2):
        assert await results(runs) == [0, 2, 4, 6]
    assert stage.done == [[0, 1], [2, 3]]


@task(batch=10, retry=Retry(attempts=2, delay=0.0))
async def checked(numbers: list[int]) -> list[int | Exception]:
    stage.note(list(numbers))
    return [ValueError(f"{number} is odd") if number % 2 else number for number in numbers]


async def test_an_exception_in_the_list_fails_that_item_alone_which_is_tried_again(
    app: Stepwell,
) -> None:
    runs = await app.enqueue_many([checked(number) for number in range(4)])
    async with app.worker():
        assert [await runs[n].result(timeout=LONG) for n in (0, 2)] == [0, 2]
        for number in (1, 3):
            with pytest.raises(ValueError, match=f"{number} is odd"):
                await runs[number].result(timeout=LONG)
        assert [(await run.info()).attempts for run in runs] == [0, 2, 0, 2]
    assert stage.done == [[0, 1, 2, 3], [1, 3]]


@task(batch=10)
async def gathers(numbers: list[int]) -> list[int | BaseException]:
    async def one(number: int) -> int:
        if number == 1:
            raise LookupError(number)
        if number == 2:
            raise asyncio.CancelledError
        return number

    return await asyncio.gather(*map(one, numbers), return_exceptions=True)


async def test_a_list_of_what_gather_returns_tells_how_each_item_went(app: Stepwell) -> None:
    runs = await app.enqueue_many([gathers(number) for number in range(4)])
    async with app.worker() as worker:
        await worker.drain()
    statuses = [await run.status() for run in runs]
    assert statuses == ["completed", "failed", "failed", "completed"]


@task(batch=10, retry=Retry(attempts=3, delay=0.0))
async def flaky(numbers: list[int]) -> list[int]:
    stage.note(list(numbers))
    if len(stage.done) == 1:
        raise ConnectionError("down")
    return numbers


async def test_a_batch_that_raises_is_tried_again_by_the_policy_of_each_item(
    app: Stepwell,
) -> None:
    calls = [flaky(0), flaky(1), flaky(2).with_options(retry=Retry(attempts=1))]
    runs = await app.enqueue_many(calls)
    async with app.worker():
        assert await results(runs[:2]) == [0, 1]
        with pytest.raises(ConnectionError):
            await runs[2].result(timeout=LONG)
    assert stage.done == [[0, 1, 2], [0, 1]]


@task(batch=10)
async def not_yet(numbers: list[int]) -> list[int | Exception]:
    stage.note(list(numbers))
    first = len(stage.done) == 1
    return [RetryLater(0.0) if first and number else number for number in numbers]


async def test_an_item_may_ask_to_be_executed_later(app: Stepwell) -> None:
    runs = await app.enqueue_many([not_yet(number) for number in range(3)])
    async with app.worker():
        assert await results(runs) == [0, 1, 2]
        assert [(await run.info()).attempts for run in runs] == [0, 0, 0]
    assert stage.done == [[0, 1, 2], [1, 2]]


@task(batch=10, retry=Retry(attempts=5, delay=0.0))
async def forgetful(numbers: list[int]) -> list[int]:
    stage.note(list(numbers))
    return numbers[1:]


@task(batch=10)
async def wordy(numbers: list[int]) -> list[int]:
    word: object = "abc"
    return word  # type: ignore[return-value]  # pyright: ignore[reportReturnType]  # on purpose


async def test_a_list_that_does_not_fit_fails_all_at_once_and_says_what_is_wrong(
    app: Stepwell,
) -> None:
    runs = await app.enqueue_many([forgetful(number) for number in range(3)])
    (other,) = await app.enqueue_many([wordy(1)])
    async with app.worker():
        for run in runs:
            with pytest.raises(BatchMismatch, match=r"a batch of 3 and returned 2 results"):
                await run.result(timeout=LONG)
        with pytest.raises(BatchMismatch, match=r"a batch of 1 and returned str: return a list"):
            await other.result(timeout=LONG)
    assert stage.done == [[0, 1, 2]]


@task(batch=10)
async def in_silence(messages: list[Message]) -> None:
    stage.note(len(messages))


async def test_a_function_without_results_gives_none_to_all(app: Stepwell) -> None:
    runs = await app.enqueue_many([in_silence(Message("a")), in_silence(Message("b"))])
    async with app.worker():
        assert await asyncio.gather(*(run.result(timeout=LONG) for run in runs)) == [None, None]
    assert stage.done == [2]


@task(batch=10)
def in_thread(messages: list[Message]) -> list[Message]:
    stage.note(threading.current_thread() is threading.main_thread())
    return messages


async def test_a_plain_function_gets_its_batch_in_a_thread(app: Stepwell) -> None:
    runs = await app.enqueue_many([in_thread(Message("a")), in_thread(Message("b"))])
    async with app.worker():
        assert [await run.result(timeout=LONG) for run in runs] == [Message("a"), Message("b")]
    assert stage.done == [False]


@workflow
async def mails() -> list[str]:
    return [*await parallel(*(mail(Message(f"{number}")) for number in range(5)))]


async def test_awaited_in_a_workflow_each_call_is_a_child_run(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(mails(), id="mails")
        assert await run.result(timeout=LONG) == [f"to {number}" for number in range(5)]
        assert len(await app.runs(parent="mails")) == 5
    assert stage.done == [5]


async def test_awaited_elsewhere_the_function_gets_a_list_of_one() -> None:
    assert await mail(Message("ann")) == "to ann"
    assert await in_thread(Message("ann")) == Message("ann")
    with pytest.raises(ValueError, match="1 is odd"):
        await checked(1)
    with pytest.raises(BatchMismatch):
        await forgetful(1)
    assert await mail.fn([Message("a"), Message("b")]) == ["to a", "to b"]
    assert stage.done[0] == 1


@task(batch=10, timeout=0.05)
async def slow(numbers: list[int]) -> list[int]:
    await asyncio.sleep(3600)
    return numbers


@task(batch=10, timeout=0.05)
def slow_in_thread(numbers: list[int]) -> list[int]:
    stage.hold_thread("thread")
    stage.note(current_step().cancelled)
    stage.reach("told")
    return numbers


async def test_the_timeout_is_for_an_attempt_of_the_whole_batch(app: Stepwell) -> None:
    runs = await app.enqueue_many([slow(0), slow(1), slow_in_thread(2), slow_in_thread(3)])
    async with app.worker():
        for run in runs:
            with pytest.raises(TimeoutError, match=r"longer than its timeout of 0\.05 s"):
                await run.result(timeout=LONG)
        stage.release("thread")
        await stage.reached("told")
    assert stage.done == [True]


async def test_a_call_cannot_have_another_timeout_than_its_batch() -> None:
    with pytest.raises(ValueError, match="a timeout is for a whole batch"):
        slow(1).with_options(timeout=1.0)


@task(batch=3, linger=3600.0)
async def held(numbers: list[int]) -> list[int]:
    stage.note(list(numbers))
    try:
        await stage.hold("batch")
    except asyncio.CancelledError:
        stage.note("cancelled")
        raise
    return numbers


async def running(app: Stepwell, calls: list[TaskCall[int]]) -> list[Run[int]]:
    runs = [await app.enqueue(call) for call in calls]

    async def claimed() -> bool:
        return {await run.status() for run in runs} == {"running"}

    await until(claimed)
    return runs


async def test_an_item_that_is_cancelled_before_the_start_is_left_out(app: Stepwell) -> None:
    async with app.worker():
        runs = await running(app, [held(0), held(1)])
        await runs[0].cancel()
        with pytest.raises(RunCancelled):
            await runs[0].result(timeout=LONG)
        runs += [await app.enqueue(held(number)) for number in (2, 3)]
        stage.release("batch")
        assert await results(runs[1:]) == [1, 2, 3]
    assert stage.done == [[1, 2, 3]]


async def test_an_item_that_is_cancelled_while_it_runs_ends_so_when_its_batch_has(
    app: Stepwell,
) -> None:
    async with app.worker():
        runs = [await app.enqueue(held(number)) for number in range(3)]
        await stage.reached("batch")
        assert await runs[1].cancel() == "running"
        stage.release("batch")
        assert [await runs[n].result(timeout=LONG) for n in (0, 2)] == [0, 2]
        with pytest.raises(RunCancelled):
            await runs[1].result(timeout=LONG)
    assert stage.done == [[0, 1, 2]]


async def test_a_batch_of_which_all_items_are_cancelled_is_interrupted(app: Stepwell) -> None:
    async with app.worker():
        runs = [await app.enqueue(held(number)) for number in range(3)]
        await stage.reached("batch")
        for run in runs:
            await run.cancel()
        for run in runs:
            with pytest.raises(RunCancelled):
                await run.result(timeout=LONG)
    assert stage.done == [[0, 1, 2], "cancelled"]


async def test_an_item_whose_deadline_passes_leaves_its_batch(app: Stepwell) -> None:
    async with app.worker():
        late = await app.enqueue(held(0).with_options(deadline=0.05))  # while it is gathered
        with pytest.raises(DeadlineExceeded):
            await late.result(timeout=LONG)
        late = await app.enqueue(held(1).with_options(deadline=1.0))
        runs = [await app.enqueue(held(number)) for number in (2, 3)]
        await stage.reached("batch")
        with pytest.raises(DeadlineExceeded):  # while it runs
            await late.result(timeout=LONG)
        stage.release("batch")
        assert await results(runs) == [2, 3]
    assert stage.done == [[1, 2, 3]]


async def test_a_stop_hands_back_what_is_gathered_and_lets_what_runs_end(app: Stepwell) -> None:
    async with app.worker(grace=LONG) as worker:
        runs = [await app.enqueue(held(number)) for number in range(3)]
        await stage.reached("batch")
        runs += await running(app, [held(3), held(4)])
        stopping = asyncio.create_task(worker._running.stop())

        async def handed_back() -> bool:
            return {await run.status() for run in runs[3:]} == {"ready"}

        await until(handed_back)
        stage.release("batch")
        await stopping
    assert await results(runs[:3]) == [0, 1, 2]
    assert [(await run.info()).attempts for run in runs[3:]] == [0, 0]
    assert stage.done == [[0, 1, 2]]


async def test_a_batch_that_outlives_the_grace_is_cancelled_and_handed_back(
    app: Stepwell,
) -> None:
    async with app.worker(grace=0.01):
        runs = [await app.enqueue(held(number)) for number in range(3)]
        await stage.reached("batch")
    assert {await run.status() for run in runs} == {"ready"}
    stage.release("batch")
    async with app.worker():
        assert await results(runs) == [0, 1, 2]
    assert stage.done == [[0, 1, 2], "cancelled", [0, 1, 2]]


seldom = Queue("seldom", rate=Rate(3, per=3600.0))


@task(batch=3, linger=3600.0, queue=seldom)
async def metered(numbers: list[int]) -> list[int]:
    stage.note(list(numbers))
    return numbers


async def test_what_is_handed_back_before_its_batch_began_has_used_no_rate(app: Stepwell) -> None:
    async with app.worker(queues=["seldom"]):
        runs = await running(app, [metered(0), metered(1)])
    assert {await run.status() for run in runs} == {"ready"}
    runs.append(await app.enqueue(metered(2)))
    async with app.worker(queues=["seldom"]):
        assert await results(runs) == [0, 1, 2]
    assert stage.done == [[0, 1, 2]]


@task(batch=2, linger=3600.0)
async def tells(numbers: list[int]) -> list[str]:
    scope = current_step()
    stage.note((scope.key, scope.run_id, scope.attempt))
    return [scope.key for _ in numbers]


async def test_the_key_of_a_batch_is_that_of_no_other_set_of_jobs(app: Stepwell) -> None:
    async with app.worker():
        runs = [await app.enqueue(tells(n), id=id) for n, id in enumerate(["a", "b", "c", "d"])]
        for run in runs:
            await run.result(timeout=LONG)
    (first, one, attempt), (second, other, _) = stage.done
    assert first != second
    assert (one, other, attempt) == ("a (and 1 more)", "c (and 1 more)", 1)


@pytest.mark.parametrize("batch", [0, -1, 10_001, 1.5, True, "10"])
def test_a_batch_has_from_one_to_ten_thousand_items(batch: int) -> None:
    with pytest.raises(TypeError, match="batch= "):
        task(batch=batch)(lambda_of_one)


def lambda_of_one(items: list[int]) -> None: ...


def no_items() -> list[int]:
    return []


def two_arguments(items: list[int], more: int) -> list[int]:
    return [*items, more]


def by_name(*, items: list[int]) -> list[int]:
    return items


@pytest.mark.parametrize("fn", [no_items, two_arguments, by_name])
def test_the_function_of_a_batch_takes_one_argument(fn: Callable[..., list[int]]) -> None:
    with pytest.raises(TypeError, match="it takes one argument, the list of items"):
        task(batch=2)(fn)


def test_options_that_make_no_sense_for_a_batch_are_refused() -> None:
    with pytest.raises(TypeError, match="linger= is for batches"):
        task(linger=1.0)(lambda_of_one)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="max_crashes of at least 3"):
        task(batch=2, max_crashes=2)(lambda_of_one)
    with pytest.raises(TypeError, match="linger= must be a finite span"):
        task(batch=2, linger=-1.0)(lambda_of_one)
    with pytest.raises(TypeError, match="missing a required argument"):
        mail()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


@pytest.mark.blocking
async def test_an_item_that_its_worker_has_lost_is_left_to_the_other_one(
    make_app: Callable[[], Stepwell], tmp_path: Path
) -> None:
    async with make_app() as one, make_app() as other:
        async with one.worker():
            runs = [await one.enqueue(held(number), id=f"{number}") for number in range(3)]
            await stage.reached("batch")
            with sqlite3.connect(tmp_path / "runs.db") as db:  # as when its lease has run out
                db.execute("UPDATE runs SET status = 1, worker = NULL WHERE id = '1'")
            db.close()
            async with other.worker(concurrency=1):

                async def taken() -> bool:
                    return stage.done[1:] == [[1]]

                await until(taken)
                stage.release("batch")
                assert await results(runs) == [0, 1, 2]
        assert await other.doctor() == []
    assert stage.done == [[0, 1, 2], [1]]

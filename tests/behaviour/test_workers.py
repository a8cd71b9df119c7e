"""What a worker does at once, how it stops, and what becomes of a run that it has lost."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from stepwell import (
    Run,
    Signal,
    StepFailed,
    Stepwell,
    StoreUnavailable,
    Worker,
    parallel,
    step,
    task,
    wait_for_signal,
    workflow,
)
from stepwell_queue.sqlite.store import SqliteStore
from tests.behaviour.stage import LONG, stage, until

pytestmark = pytest.mark.anyio
go = Signal("go", int)
running: set[object] = set()
most: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_runs() -> None:
    running.clear()
    most.clear()


@step
async def counted(number: int) -> None:
    running.add(number)
    most.append(len(running))
    await asyncio.sleep(0.002)
    running.discard(number)


@workflow
async def fans_out(width: int) -> None:
    await parallel(*(counted(number) for number in range(width)))


@task
async def counted_task(number: int) -> None:
    running.add(number)
    most.append(len(running))
    await asyncio.sleep(0.002)
    running.discard(number)


@step
def counted_in_thread(number: int) -> None:
    running.add(number)
    most.append(len(running))
    threading.Event().wait(0.002)
    running.discard(number)


@workflow
async def fans_out_in_threads(width: int) -> None:
    await parallel(*(counted_in_thread(number) for number in range(width)))


async def test_step_concurrency_bounds_the_steps_of_one_run(app: Stepwell) -> None:
    async with app.worker(step_concurrency=3):
        await (await app.start(fans_out(30))).result(timeout=LONG)
    assert max(most) == 3


async def test_without_it_concurrency_bounds_steps_as_it_does_tasks(app: Stepwell) -> None:
    async with app.worker(concurrency=4):
        await (await app.start(fans_out(30))).result(timeout=LONG)
        assert max(most) == 4
        most.clear()
        for run in await app.enqueue_many([counted_task(number) for number in range(30)]):
            await run.result(timeout=LONG)
    assert max(most) == 4


@task
async def short_task() -> None: ...


async def test_tasks_are_claimed_in_the_transaction_in_which_others_end(tmp_path: Path) -> None:
    async with Stepwell(tmp_path / "a.db", include=[__name__], durability="process") as app:
        store = app.engine.store
        assert isinstance(store, SqliteStore)
        runs = await app.enqueue_many([short_task() for _ in range(60)])
        before = store._group.commits
        async with app.worker(concurrency=10) as worker:
            await worker.drain()
        assert store._group.commits - before < 60 / 10 + 7  # starting and stopping, too
        assert {await run.status() for run in runs} == {"completed"}


@pytest.mark.blocking
async def test_threads_bounds_the_plain_functions_that_run_at_once(app: Stepwell) -> None:
    async with app.worker(threads=3):
        await (await app.start(fans_out_in_threads(12))).result(timeout=LONG)
    assert max(most) == 3


@step
async def held(what: str) -> str:
    stage.note(f"begin {what}")
    await stage.hold(what)
    stage.note(f"end {what}")
    return what


@step
def held_in_thread(what: str) -> str:
    stage.note(f"begin {what}")
    stage.hold_thread(what)
    stage.note(f"end {what}")
    stage.reach(f"{what} over")
    return what


@workflow
async def two_steps() -> str:
    await held("first")
    return await held("second")


@task
async def held_task() -> str:
    stage.note("begin task")
    await stage.hold("task")
    return "done"


@workflow
async def waits() -> int:
    return await wait_for_signal(go)


async def test_a_stop_lets_running_steps_end_keeps_their_results_and_begins_no_other(
    app: Stepwell,
) -> None:
    run = await app.start(two_steps())
    job = await app.enqueue(held_task())
    worker = app.worker(grace=LONG)
    async with worker:
        await stage.reached("first")
        await stage.reached("task")
        stopping = asyncio.create_task(_leave(worker))
        await asyncio.sleep(0)
        late = await app.start(two_steps())
        stage.release("first")
        stage.release("task")
        await stopping
    assert await job.status() == "completed"
    assert await run.status() == await late.status() == "ready"
    assert sorted(stage.done) == ["begin first", "begin task", "end first"]
    stage.release("second")
    async with app.worker():
        assert await run.result(timeout=LONG) == "second"
    assert stage.count("begin second") >= 1
    assert len([event for event in (await run.history()).events if event.path == "0"]) == 1


async def _leave(worker: Worker) -> None:
    await worker._running.stop()  # what leaving the block does first


async def test_what_outlives_the_grace_is_cancelled_handed_back_and_done_again(
    app: Stepwell,
) -> None:
    with capture_logs() as logs:
        async with app.worker(grace=0.01):
            run = await app.start(two_steps())
            await stage.reached("first")
    assert await run.status() == "ready"
    (line,) = [line for line in logs if line["event"] == "steps_outlived_grace"]
    assert line["steps"] == ["held"]
    stage.release("first")
    stage.release("second")
    async with app.worker():
        assert await run.result(timeout=LONG) == "second"
        info = await run.info()
    assert (info.attempts, info.crashes) == (0, 0)
    assert stage.count("begin first") == 2


@workflow
async def in_a_thread() -> str:
    return await held_in_thread("thread")


async def test_what_a_thread_returns_after_its_worker_has_stopped_is_dropped(
    app: Stepwell,
) -> None:
    async with app.worker(grace=0.01):
        run = await app.start(in_a_thread())
        await stage.reached("thread")
    assert await run.status() == "ready"
    stage.release("thread")
    await stage.reached("thread over")
    assert (await run.history()).events == ()
    async with app.worker():
        assert await run.result(timeout=LONG) == "thread"


@step
async def will_not_die() -> None:
    stage.reach("undead")
    while not released.is_set():
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            stage.note("ignored")


released = threading.Event()


@workflow
async def undead() -> None:
    await will_not_die()


async def test_a_step_that_ignores_its_cancellation_does_not_keep_the_worker_from_stopping(
    app: Stepwell,
) -> None:
    released.clear()
    loop = asyncio.get_running_loop()
    with capture_logs() as logs:
        async with app.worker(grace=0.01):
            run = await app.start(undead())
            await stage.reached("undead")
            begun = loop.time()
    assert loop.time() - begun < 5
    assert await run.status() == "ready"
    assert ["will_not_die"] in [line.get("steps") for line in logs]
    released.set()
    for one in asyncio.all_tasks():
        if one is not asyncio.current_task() and one.get_name() == "stepwell lane":
            one.cancel()
            await asyncio.wait([one])


@pytest.mark.parametrize("cache", [0, 1, 3])
async def test_runs_whose_code_was_put_aside_go_on_like_the_others(
    app: Stepwell, cache: int
) -> None:
    async with app.worker(cache=cache) as worker:
        runs: list[Run[int]] = [await app.start(waits()) for _ in range(10)]
        await worker.drain()
        for number, run in enumerate(runs):
            await run.signal(go, number)
        assert [await run.result(timeout=LONG) for run in runs] == list(range(10))


async def test_nothing_of_a_running_step_is_left_to_the_garbage_collector(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(two_steps())
        for what in ("first", "second"):
            await stage.reached(what)
            gc.collect()
            await asyncio.sleep(0)
            gc.collect()
            stage.release(what)
        assert await run.result(timeout=LONG) == "second"


@workflow
async def after_the_loss() -> str:
    what = await held("contested")
    number = await wait_for_signal(go)
    return f"{what} {number}"


@pytest.mark.blocking
async def test_a_worker_that_lost_its_run_has_no_say_in_it_any_more(
    make_app: Callable[[], Stepwell], tmp_path: Path
) -> None:
    async with make_app() as one, make_app() as other:
        with capture_logs() as logs:
            async with one.worker():
                run = await one.start(after_the_loss())
                await stage.reached("contested")
                with sqlite3.connect(tmp_path / "runs.db") as db:  # as when its lease has run out
                    db.execute("UPDATE runs SET status = 1, worker = NULL")
                db.close()
                async with other.worker() as worker:

                    async def taken() -> bool:
                        return stage.count("begin contested") == 2

                    await until(taken)
                    stage.release("contested")
                    await worker.drain()
                    await other.signal(run.id, go, 1)
                    assert await run.result(timeout=LONG) == "contested 1"
        assert "run_lost" in {line["event"] for line in logs}
        events = (await other.history(run.id)).events
        assert [event.name for event in events] == ["held", "go"]
        assert await other.doctor() == []


@workflow
async def once(what: str) -> str:
    return await noted(what)


@step
async def noted(what: str) -> str:
    stage.note(what)
    return what


async def test_an_id_that_many_start_at_once_is_one_run(make_app: Callable[[], Stepwell]) -> None:
    async with make_app() as one, make_app() as other, one.worker(), other.worker():
        runs = await asyncio.gather(
            *(app.start(once("k"), id="k") for app in (one, other) for _ in range(20))
        )
        assert {run.id for run in runs} == {"k"}
        assert sum(run.created for run in runs) == 1
        assert {await run.result(timeout=LONG) for run in runs} == {"k"}
    assert stage.done == ["k"]


@workflow
async def three_in_a_row(name: str) -> list[str]:
    return [await noted(f"{name}{number}") for number in range(3)]


async def test_a_worker_of_one_place_goes_on_with_all_its_runs_after_every_restart(
    app: Stepwell,
) -> None:
    runs = [await app.start(three_in_a_row(name)) for name in "abc"]

    for number in range(1, 9):
        async with app.worker(concurrency=1, grace=LONG):

            async def done(number: int = number) -> bool:
                return len(stage.done) >= number

            await until(done)
    async with app.worker(concurrency=1):
        results = [await run.result(timeout=LONG) for run in runs]
    assert results == [[f"{name}{number}" for number in range(3)] for name in "abc"]
    assert sorted(stage.done) == sorted(what for result in results for what in result)


@pytest.mark.blocking
@step(timeout=1.0)
def takes_a_while(number: int) -> int:
    threading.Event().wait(0.4)
    return number


@step(timeout=0.1)
def takes_too_long() -> None:
    stage.hold_thread("too long")


@workflow
async def queues_for_a_thread() -> tuple[int, ...]:
    return await parallel(*(takes_a_while(number) for number in range(3)))


@workflow
async def times_out_in_a_thread() -> None:
    await takes_too_long()


async def test_a_timeout_counts_what_a_thread_does_and_not_the_wait_for_it(app: Stepwell) -> None:
    async with app.worker(threads=1):
        run = await app.start(queues_for_a_thread())
        assert await run.result(timeout=LONG) == (0, 1, 2)
        late = await app.start(times_out_in_a_thread())
        with pytest.raises(TimeoutError, match="takes_too_long"):
            await late.result(timeout=LONG)
        stage.release("too long")


async def test_user_threads_that_are_all_taken_keep_nothing_else_from_going_on(
    app: Stepwell,
) -> None:
    async with app.worker():
        greedy = await app.start(takes_all_threads())
        await stage.reached("threads")
        run = await app.start(in_a_thread())
        stage.release("thread")
        assert await run.result(timeout=LONG) == "thread"
        assert await app.doctor() == []
        stage.release("threads")
        assert await greedy.result(timeout=LONG) == 100


@step
async def greedy_step() -> int:
    await asyncio.gather(*(asyncio.to_thread(stage.hold_thread, "threads") for _ in range(100)))
    return 100


@workflow
async def takes_all_threads() -> int:
    return await greedy_step()


@task(queue="other")
async def elsewhere(number: int) -> int:
    return number


@workflow
async def over_queues() -> int:
    return sum(await parallel(elsewhere(1), far(2)))


@step(queue="far")
async def far(number: int) -> int:
    return number


async def test_a_run_parks_while_other_workers_do_what_is_on_their_queues(app: Stepwell) -> None:
    async with app.worker() as worker:
        run = await app.start(over_queues())
        await worker.drain()
        assert await run.status() == "parked"
        async with app.worker(queues=["other"]), app.worker(queues=["far"]):
            assert await run.result(timeout=LONG) == 3


async def test_a_start_that_finds_its_run_keeps_no_place_from_ready_work(app: Stepwell) -> None:
    async with app.worker(concurrency=1):
        run = await app.start(waits(), id="run")

        async def parked() -> bool:
            return await run.status() == "parked"

        await until(parked)
        await run.signal(go, 1)
        # Takes the only place before the worker gets to claim, and then does not need it.
        assert not (await app.start(waits(), id="run")).created
        assert await run.result(timeout=LONG) == 1


async def test_a_worker_that_stops_while_it_claims_logs_no_error(tmp_path: Path) -> None:
    app = Stepwell(tmp_path / "runs.db", include=[__name__], durability="full")
    with capture_logs() as logged:
        async with app:
            for turns in range(10):
                run = await app.enqueue(counted_task(1))
                async with app.worker(grace=0.0):
                    for _ in range(turns):
                        await asyncio.sleep(0)
                async with app.worker():
                    await run.result(timeout=LONG)
    assert [entry for entry in logged if entry["log_level"] == "error"] == []


@step
async def leaves_a_cancel_behind(turns: int) -> None:
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None

    def later(turns: int) -> None:
        if turns:
            loop.call_soon(later, turns - 1)
        else:
            task.cancel()

    later(turns)


@step
async def comes_after(number: int) -> int:
    return number


@workflow
async def goes_on_after_them() -> list[int]:
    numbers: list[int] = []
    for turns in range(1, 5):
        await leaves_a_cancel_behind(turns)
        try:
            numbers.append(await comes_after(turns))
        except StepFailed:
            numbers.append(0)  # the cancel has met this one
    return numbers


async def test_a_cancel_that_a_step_leaves_behind_does_not_keep_the_worker_from_later_steps(
    app: Stepwell,
) -> None:
    async with app.worker():
        run = await app.start(goes_on_after_them())
        assert len(await run.result(timeout=LONG)) == 4


@step
async def tidied(what: str) -> None:
    stage.note(f"tidied {what}")


@workflow
async def tidies_up() -> str:
    try:
        return await held("first")
    finally:
        await tidied("first")


async def test_a_stop_that_is_cut_short_hands_back_and_runs_no_cleanup(app: Stepwell) -> None:
    async def serve() -> None:
        async with app.worker(grace=LONG):
            await asyncio.Event().wait()

    run = await app.start(tidies_up())
    serving = asyncio.create_task(serve())
    await stage.reached("first")
    for _ in range(2):  # the first one begins the stop, the second one cuts it short
        serving.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await serving
    gc.collect()
    assert await run.status() == "ready"
    assert stage.done == ["begin first"]
    stage.release("first")
    async with app.worker():
        assert await run.result(timeout=LONG) == "first"
    assert stage.done == ["begin first", "begin first", "end first", "tidied first"]


async def test_a_worker_that_outlives_its_app_runs_no_cleanup(
    make_app: Callable[[], Stepwell],
) -> None:
    async with make_app() as app:
        run = await app.start(tidies_up())
        worker = app.worker(grace=0.0)
        await worker.__aenter__()
        await stage.reached("first")
    with suppress(StoreUnavailable):
        await worker.__aexit__(None, None, None)
    gc.collect()
    assert stage.done == ["begin first"]
    stage.release("first")
    async with make_app() as again, again.worker():
        assert await again.get(run.id).result(timeout=LONG) == "first"
    assert stage.done == ["begin first", "begin first", "end first", "tidied first"]

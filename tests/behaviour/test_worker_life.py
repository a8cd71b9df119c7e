"""How a worker begins and ends, what it takes at once, and what others see of it meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from stepwell import (
    Run,
    Signal,
    Stepwell,
    StepwellError,
    WorkerInfo,
    step,
    task,
    wait_for_signal,
    workflow,
)
from stepwell_runtime import recycling
from tests.behaviour.stage import LONG, stage, until

pytestmark = pytest.mark.anyio
go = Signal("go", int)


@task
async def quick(number: int) -> int:
    stage.note(number)
    return number


@task
async def held() -> str:
    await stage.hold("held")
    return "done"


@workflow
async def waits() -> int:
    return await wait_for_signal(go)


async def serve(app: Stepwell, **options: Any) -> None:
    """Serve until the worker stops by itself."""
    async with asyncio.timeout(LONG):
        await app.worker(**options).run()


async def counts(runs: list[Run[int]]) -> dict[str, int]:
    statuses = [await run.status() for run in runs]
    return {status: statuses.count(status) for status in sorted(set(statuses))}


# --- recycling ---


@pytest.mark.parametrize("concurrency", [1, 2, 100])
async def test_a_worker_stops_by_itself_after_its_number_of_jobs(
    app: Stepwell, concurrency: int
) -> None:
    runs = await app.enqueue_many([quick(number) for number in range(5)])
    await serve(app, max_jobs=3, concurrency=concurrency)
    assert await counts(runs) == {"completed": 3, "ready": 2}
    assert stage.done == [0, 1, 2]
    assert await app.workers() == []


async def test_activations_of_workflows_count_too(app: Stepwell) -> None:
    run = await app.start(waits())
    await serve(app, max_jobs=1)
    assert await run.status() == "parked"
    await run.signal(go, 1)
    await serve(app, max_jobs=1)
    assert await run.result(timeout=LONG) == 1


async def test_around_a_block_it_leaves_by_itself_and_says_so(app: Stepwell) -> None:
    with capture_logs() as logs:
        async with app.worker(max_jobs=2):
            runs = [await app.enqueue(quick(number)) for number in range(3)]

            async def gone() -> bool:
                return await app.workers() == []

            await until(gone)
            assert await counts(runs) == {"completed": 2, "ready": 1}
    (line,) = [line for line in logs if line["event"] == "worker_recycles"]
    assert (line["reason"], line["taken"]) == ("max_jobs", 2)


async def test_it_waits_for_what_it_holds_however_short_the_grace(app: Stepwell) -> None:
    run = await app.enqueue(held())
    serving = asyncio.create_task(serve(app, max_jobs=1, grace=0))
    await stage.reached("held")
    await until_state(app, "stopping")
    stage.release("held")
    await serving
    assert await run.status() == "completed"


async def test_a_stop_meanwhile_is_one_as_ever(app: Stepwell) -> None:
    async with app.worker(max_jobs=1, grace=0.01):
        run = await app.enqueue(held())
        await stage.reached("held")
        await until_state(app, "stopping")
    assert await run.status() == "ready"
    assert await app.workers() == []


async def test_a_worker_that_retires_waits_for_no_more_jobs_of_a_batch(app: Stepwell) -> None:
    runs = await app.enqueue_many([gathered(0), gathered(1)])
    await serve(app, max_jobs=2)
    assert await counts(runs) == {"completed": 2}


@task(batch=10, linger=3600.0)
async def gathered(numbers: list[int]) -> list[int]:
    return numbers


async def test_a_worker_stops_by_itself_once_it_has_too_much_memory(
    app: Stepwell, monkeypatch: pytest.MonkeyPatch
) -> None:
    has = 100.0
    monkeypatch.setattr(recycling, "resident_mib", lambda: has)
    monkeypatch.setattr(recycling, "LOOKS", 0.001)
    with capture_logs() as logs:
        serving = asyncio.create_task(serve(app, max_memory=200))
        runs = [await app.enqueue(quick(number)) for number in range(2)]
        for run in runs:
            await run.result(timeout=LONG)
        assert not serving.done()
        has = 250.4
        await serving
    (line,) = [line for line in logs if line["event"] == "worker_recycles"]
    assert (line["reason"], line["memory"], line["taken"]) == ("max_memory", 250, 2)


async def test_a_bound_below_what_the_process_has_to_begin_with_is_refused(app: Stepwell) -> None:
    with pytest.raises(StepwellError, match=r"max_memory=1 MiB: this process has \d+ MiB before"):
        async with app.worker(max_memory=1):
            pass
    assert await app.workers() == []


@pytest.mark.blocking
def test_the_memory_of_this_process_is_known() -> None:
    before = recycling.resident_mib()
    ballast = bytearray(b"x") * (64 * 1024 * 1024)
    assert 40 < recycling.resident_mib() - before < 200
    assert ballast


@pytest.mark.parametrize("option", ["max_jobs", "max_memory"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "3"])
async def test_limits_of_a_life_are_whole_numbers_from_one(
    app: Stepwell, option: str, value: object
) -> None:
    with pytest.raises((TypeError, ValueError), match=f"{option}= "):
        app.worker(**{option: value})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# --- limits by queue ---


class Most:
    """How many of each queue were running at once, at most."""

    def __init__(self) -> None:
        self.now: dict[str, int] = {}
        self.most: dict[str, int] = {}

    async def run(self, queue: str) -> None:
        self.now[queue] = self.now.get(queue, 0) + 1
        self.most[queue] = max(self.most.get(queue, 0), self.now[queue])
        await asyncio.sleep(0.002)
        self.now[queue] -= 1


most = Most()


@pytest.fixture(autouse=True)
def _nothing_runs() -> None:
    most.__init__()  # type: ignore[misc]


@task(queue="mail")
async def mail(number: int) -> int:
    await most.run("mail")
    return number


@task
async def other(number: int) -> int:
    await most.run("default")
    return number


@step(queue="mail")
async def mail_step(number: int) -> int:
    await most.run("mail")
    return number


@workflow
async def mails() -> int:
    return await mail_step(1) + await mail(2)


async def test_a_worker_takes_so_many_of_each_queue_at_once(app: Stepwell) -> None:
    calls = [call for number in range(20) for call in (mail(number), other(number))]
    runs = await app.enqueue_many(calls)
    async with app.worker(queues={"mail": 2, "default": 100}, concurrency=10):
        runs += [await app.enqueue(mail(number)) for number in range(5)]
        started = await app.start(mails())
        for run in runs:
            await run.result(timeout=LONG)
        assert await started.result(timeout=LONG) == 3
    assert most.most["mail"] == 2
    assert 2 < most.most["default"] <= 10


async def test_a_drain_does_what_waits_for_places_of_its_queue_too(app: Stepwell) -> None:
    runs = await app.enqueue_many([mail(number) for number in range(5)])
    async with app.worker(queues={"mail": 1, "default": None}) as worker:
        await worker.drain()
        assert await counts(runs) == {"completed": 5}
    assert most.most == {"mail": 1}


async def test_the_limit_is_for_each_worker(make_app: Callable[[], Stepwell]) -> None:
    async with make_app() as one, make_app() as two:
        runs = await one.enqueue_many([mail(number) for number in range(30)])
        async with one.worker(queues={"mail": 2}), two.worker(queues={"mail": 1}):
            for run in runs:
                await run.result(timeout=LONG)
    assert most.most["mail"] <= 3


@task(queue="mail", batch=10)
async def mail_many(numbers: list[int]) -> list[int]:
    stage.note(list(numbers))
    return numbers


async def test_a_batch_has_no_more_jobs_than_its_queue_has_places(app: Stepwell) -> None:
    runs = await app.enqueue_many([mail_many(number) for number in range(4)])
    async with app.worker(queues={"mail": 2}):
        for run in runs:
            await run.result(timeout=LONG)
    assert stage.done == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    "queues", [{}, {"mail": 0}, {"mail": "5"}, {"mail": True}, {"": 5}, {None: 5}, {"mail": -1}]
)
async def test_limits_of_queues_are_whole_numbers_from_one(
    app: Stepwell, queues: Mapping[Any, Any]
) -> None:
    with pytest.raises((TypeError, ValueError), match="queues="):
        app.worker(queues=queues)


# --- what others see ---


async def until_state(app: Stepwell, state: str) -> WorkerInfo:
    found: list[WorkerInfo] = []

    async def is_so() -> bool:
        found[:] = await app.workers()
        return [worker.state for worker in found] == [state]

    await until(is_so)
    return found[0]


async def test_others_see_what_a_worker_is_about_and_what_it_still_waits_for(
    address: str, make_app: Callable[[], Stepwell]
) -> None:
    @asynccontextmanager
    async def lifespan(app: Stepwell) -> AsyncGenerator[None]:
        await stage.hold("lifespan")
        yield

    async with (
        make_app() as other_app,
        Stepwell(address, include=[__name__], lifespan=lifespan) as app,
    ):
        run = await other_app.enqueue(held())
        serving = asyncio.create_task(serve(app, max_jobs=1))
        await stage.reached("lifespan")
        assert (await until_state(other_app, "starting")).held == 0
        assert await run.status() == "ready"
        stage.release("lifespan")
        await stage.reached("held")
        assert (await until_state(other_app, "stopping")).holding == {"held": 1}
        stage.release("held")
        await serving
        assert await other_app.workers() == []


async def test_the_log_says_what_a_stop_waits_for(app: Stepwell) -> None:
    with capture_logs() as logs:
        async with app.worker(grace=0.01):
            await app.enqueue(held())
            await stage.reached("held")
            assert (await until_state(app, "running")).holding == {"held": 1}
    (line,) = [line for line in logs if line["event"] == "worker_stopping"]
    assert (line["runs"], line["waits_for"]) == (1, ["held"])


async def test_a_worker_whose_lifespan_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    @asynccontextmanager
    async def lifespan(app: Stepwell) -> AsyncGenerator[None]:
        raise LookupError("no pool")
        yield

    async with Stepwell(tmp_path / "a.db", include=[__name__], lifespan=lifespan) as app:
        run = await app.enqueue(quick(1))
        with pytest.raises(LookupError, match="no pool"):
            async with app.worker():
                pass
        assert await app.workers() == []
        assert await run.status() == "ready"

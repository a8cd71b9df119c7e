"""What an app does around every attempt of its tasks and steps."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Callable
from contextvars import ContextVar
from typing import Any

import pytest

from stepwell import (
    BlockingStepwell,
    CallNext,
    GiveUp,
    JobScope,
    Middleware,
    Outcome,
    Retry,
    RetryLater,
    StepTimeout,
    Stepwell,
    TaskTimeout,
    current_job,
    step,
    task,
    workflow,
)
from tests.behaviour import computing
from tests.behaviour.computing import ROOT
from tests.behaviour.stage import LONG, stage

pytestmark = pytest.mark.anyio
tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
pool: ContextVar[str] = ContextVar("pool", default="no pool")


@pytest.fixture
def with_middleware(address: str) -> Callable[..., Stepwell]:
    def make(*middleware: Middleware, **settings: Any) -> Stepwell:
        durability: Any = None if address.startswith("tcp:") else "process"
        return Stepwell(
            address,
            include=[__name__, computing.__name__],
            durability=durability,
            middleware=middleware,
            **settings,
        )

    return make


class Notes(Middleware):
    """Notes when it is entered and left."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def around(self, job: JobScope, call_next: CallNext) -> object:
        stage.note(f"{self.name} in")
        try:
            return await call_next()
        finally:
            stage.note(f"{self.name} out")


@task
async def on_the_loop(what: str) -> str:
    stage.note(what)
    return what


@task
def in_a_thread(what: str) -> str:
    stage.note(what)
    return what


@pytest.mark.parametrize("which", [on_the_loop, in_a_thread])
async def test_the_first_is_the_outermost(
    with_middleware: Callable[..., Stepwell], which: Any
) -> None:
    async with with_middleware(Notes("first"), Notes("second")) as app, app.worker():
        assert await (await app.enqueue(which("work"))).result(timeout=LONG) == "work"
    assert stage.done == ["first in", "second in", "work", "second out", "first out"]


class Outcomes(Middleware):
    """Notes every attempt, and how it ended."""

    async def before(self, job: JobScope) -> None:
        stage.note(("before", job.kind, job.name, job.attempt, dict(job.arguments)))

    async def after(self, job: JobScope, outcome: Outcome) -> None:
        stage.note(("after", job.name, outcome.value, repr(outcome.error)))


@step(retry=Retry(attempts=2, delay=0.0))
async def fails_once(number: int, unit: str = "m") -> int:
    if current_job().attempt == 1:
        raise LookupError("once")
    return number


@workflow
async def fails_once_in_it() -> int:
    return await fails_once(7)


async def test_it_is_around_each_attempt_of_a_step_and_told_how_it_ended(
    with_middleware: Callable[..., Stepwell],
) -> None:
    async with with_middleware(Outcomes()) as app, app.worker():
        assert await (await app.start(fails_once_in_it())).result(timeout=LONG) == 7
    arguments = {"number": 7, "unit": "m"}
    assert stage.done == [
        ("before", "step", "fails_once", 1, arguments),
        ("after", "fails_once", None, "LookupError('once')"),
        ("before", "step", "fails_once", 2, arguments),
        ("after", "fails_once", 7, "None"),
    ]


class TellsOfTheJob(Middleware):
    async def before(self, job: JobScope) -> None:
        stage.note((job.run_id, job.path, job.queue, job.key))


@task(queue="mail")
async def tells_of_itself() -> tuple[str, str, str, str]:
    job = current_job()
    return job.run_id, job.path, job.queue, job.key


@step
async def step_tells_of_itself() -> tuple[str, str, str, str]:
    job = current_job()
    return job.run_id, job.path, job.queue, job.key


@workflow(queue="mail")
async def step_tells() -> tuple[str, str, str, str]:
    return await step_tells_of_itself()


async def test_it_gets_what_the_function_can_know_of_its_job(
    with_middleware: Callable[..., Stepwell],
) -> None:
    async with with_middleware(TellsOfTheJob()) as app, app.worker(queues=["mail"]):
        run = await app.enqueue(tells_of_itself(), id="job-1")
        of_task = await run.result(timeout=LONG)
        of_step = await (await app.start(step_tells(), id="run-1")).result(timeout=LONG)
    assert stage.done == [of_task, of_step]
    assert of_task[:3] == ("job-1", "", "mail")
    assert of_step[0] == "run-1"
    assert of_step[1] != ""
    assert of_step[2] == "mail"


class SetsTenant(Middleware):
    async def before(self, job: JobScope) -> None:
        tenant.set(str(job.arguments["name"]))


@task
async def asks_on_the_loop(name: str) -> str:
    await asyncio.sleep(0)
    return f"{tenant.get()}, {pool.get()}"


@task
def asks_in_a_thread(name: str) -> str:
    return f"{tenant.get()}, {pool.get()}"


@step
def step_asks(name: str) -> str:
    return f"{tenant.get()}, {pool.get()}"


@workflow
async def step_asks_in_it(name: str) -> tuple[str, str]:
    return await step_asks(name), tenant.get()


@contextlib.asynccontextmanager
async def lifespan(app: Stepwell) -> AsyncGenerator[None]:
    token = pool.set("a pool")
    try:
        yield
    finally:
        pool.reset(token)


async def test_context_variables_of_middleware_and_lifespan_reach_the_function_and_no_other(
    with_middleware: Callable[..., Stepwell],
) -> None:
    async with with_middleware(SetsTenant(), lifespan=lifespan) as app, app.worker():
        for which in (asks_on_the_loop, asks_in_a_thread):
            runs = [await app.enqueue(which(name)) for name in ("ann", "bob")]
            found = [await run.result(timeout=LONG) for run in runs]
            assert found == ["ann, a pool", "bob, a pool"]
        run = await app.start(step_asks_in_it("eve"))
        assert await run.result(timeout=LONG) == ("eve, a pool", "nobody")


class Refuses(Middleware):
    def __init__(self, error: Exception) -> None:
        self.errors: list[Exception] = [error]

    async def before(self, job: JobScope) -> None:
        if self.errors:
            raise self.errors.pop()


@task(retry=Retry(attempts=3, delay=0.0))
async def counts() -> int:
    return current_job().attempt


@pytest.mark.parametrize(("error", "attempt"), [(LookupError("no"), 2), (RetryLater(0.0), 1)])
async def test_what_it_raises_is_as_if_the_function_had(
    with_middleware: Callable[..., Stepwell], error: Exception, attempt: int
) -> None:
    async with with_middleware(Refuses(error)) as app, app.worker():
        assert await (await app.enqueue(counts())).result(timeout=LONG) == attempt


async def test_it_can_end_a_task_at_once(with_middleware: Callable[..., Stepwell]) -> None:
    async with with_middleware(Refuses(GiveUp("blocked tenant"))) as app, app.worker():
        with pytest.raises(GiveUp, match="blocked tenant"):
            await (await app.enqueue(counts())).result(timeout=LONG)


class Doubles(Middleware):
    async def around(self, job: JobScope, call_next: CallNext) -> object:
        value: Any = await call_next()
        return value * 2


class Forgets(Middleware):
    async def around(self, job: JobScope, call_next: CallNext) -> object:
        await call_next()
        return None


async def test_the_result_is_what_it_returns(with_middleware: Callable[..., Stepwell]) -> None:
    async with with_middleware(Doubles()) as app, app.worker():
        run = await app.enqueue(on_the_loop("ha"))
        assert await run.result(timeout=LONG) == "haha"


async def test_a_result_that_it_forgets_to_return_is_no_none(
    with_middleware: Callable[..., Stepwell],
) -> None:
    async with with_middleware(Forgets()) as app, app.worker():
        with pytest.raises(TypeError, match=r"Forgets.around\(\) returned None, and task"):
            await (await app.enqueue(on_the_loop("work"))).result(timeout=LONG)


@task(timeout=0.02)
async def too_slow_on_the_loop() -> None:
    await asyncio.sleep(3600)


@task(timeout=0.02)
def too_slow_in_a_thread() -> None:
    stage.hold_thread("thread")


@step(timeout=0.02)
async def step_too_slow() -> None:
    await asyncio.sleep(3600)


@workflow
async def step_too_slow_in_it() -> None:
    await step_too_slow()


async def test_it_is_told_of_a_timeout_as_such(with_middleware: Callable[..., Stepwell]) -> None:
    async with with_middleware(Outcomes()) as app, app.worker():
        for which in (too_slow_on_the_loop, too_slow_in_a_thread):
            with pytest.raises(TaskTimeout, match=f"task '{which.name}' took longer"):
                await (await app.enqueue(which())).result(timeout=LONG)
        with pytest.raises(StepTimeout):
            await (await app.start(step_too_slow_in_it())).result(timeout=LONG)
        stage.release("thread")
    told = [error for kind, *_, error in stage.done if kind == "after"]
    assert [error.partition("(")[0] for error in told] == [
        "TaskTimeout",
        "TaskTimeout",
        "StepTimeout",
    ]


class WaitsAfter(Middleware):
    """Still has something to do when the function has timed out."""

    async def after(self, job: JobScope, outcome: Outcome) -> None:
        await asyncio.sleep(0.001)
        stage.note(type(outcome.error))


async def test_it_may_await_after_a_timeout(with_middleware: Callable[..., Stepwell]) -> None:
    async with with_middleware(WaitsAfter()) as app, app.worker():
        with pytest.raises(TaskTimeout):
            await (await app.enqueue(too_slow_on_the_loop())).result(timeout=LONG)
    assert stage.done == [TaskTimeout]


async def test_it_is_around_functions_in_child_processes(
    with_middleware: Callable[..., Stepwell], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    async with with_middleware(Notes("mine")) as app, app.worker(child_processes=1):
        value, _ = await (await app.enqueue(computing.square(5))).result(timeout=LONG)
    assert value == 25
    assert stage.done == ["mine in", "mine out"]


async def test_what_is_no_middleware_is_refused_when_the_app_is_made() -> None:
    class Plain(Middleware):
        def before(self, job: JobScope) -> None:  # type: ignore[override]
            pass

    wrong: Any
    for wrong, message in (
        (Notes("bare"), "takes a list"),
        ([Notes], "make an object of it"),
        ([print], "takes objects of class Middleware, not <built-in function print>"),
        ([Plain()], "Plain.before must be an `async def`"),
    ):
        for app in (Stepwell, BlockingStepwell):
            with pytest.raises(TypeError, match=message):
                app("runs.db", middleware=wrong)

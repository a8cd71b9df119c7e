"""The app: opening it, starting runs, finding them again."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import stepwell
from stepwell import (
    DefinitionError,
    IdConflict,
    PayloadTooLarge,
    Retention,
    RunNotFound,
    RunStuck,
    Signal,
    Stepwell,
    StepwellError,
    current_app,
    current_step,
    step,
    task,
    wait_for_signal,
    workflow,
)

pytestmark = pytest.mark.anyio
MakeApp = Callable[[], Stepwell]


@dataclass(frozen=True)
class Decision:
    approved: bool


decision = Signal("decision", Decision)


@step
async def add(a: int, b: int) -> int:
    return a + b


@task
async def send(number: int) -> int:
    return number


@task(queue="mail")
async def post(number: int) -> int:
    return number


@workflow
async def total(a: int, b: int) -> int:
    return await add(a, b)


@workflow
async def approval() -> bool:
    return (await wait_for_signal(decision)).approved


@workflow
async def posts() -> int:
    return await post(3)


async def test_constructing_an_app_does_no_io_and_needs_no_loop(tmp_path: Path) -> None:
    app = await asyncio.to_thread(Stepwell, tmp_path / "none" / "runs.db")
    assert not app.opened
    assert not await asyncio.to_thread(lambda: list(tmp_path.iterdir()))


async def test_an_app_can_be_opened_again_after_closing(app: Stepwell) -> None:
    async with app:
        assert app.opened
        run = await app.start(total(1, 2), id="sum")
    with pytest.raises(StepwellError, match="is closed"):
        await run.status()
    async with app:
        assert await app.get("sum").status() == "ready"


async def test_a_module_level_app_may_be_used_in_one_loop_after_another(tmp_path: Path) -> None:
    app = Stepwell(tmp_path / "runs.db", include=[__name__])

    async def once() -> int:
        async with app:
            return await app.run(total(1, 2), timeout=20)

    assert await asyncio.to_thread(lambda: [asyncio.run(once()) for _ in range(2)]) == [3, 3]


async def test_an_app_that_could_not_open_can_be_opened_later(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.write_text("this is not a database, and long enough to look like one " * 20)
    app = Stepwell(path)
    with pytest.raises(StepwellError):
        await app.__aenter__()
    path.unlink()
    async with app:
        assert await app.runs() == []


async def test_another_platform_is_refused_when_opening(
    app: Stepwell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell._app.settings.sys.platform", "win32")
    with pytest.raises(StepwellError, match="Linux and macOS, not on 'win32'"):
        await app.__aenter__()


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"store": ""}, TypeError, "a path or a URL"),
        ({"store": 5}, TypeError, "a path or a URL"),
        ({"durability": "some"}, ValueError, "'full' or 'process'"),
        ({"max_value_size": 5}, ValueError, "from 1024"),
        ({"max_value_size": 2**26}, ValueError, "to 33554432"),
        ({"lifespan": 5}, TypeError, "async context manager"),
        ({"retention": 5}, TypeError, "Retention"),
        ({"include": "shop"}, TypeError, "list of modules"),
        ({"include": [5]}, TypeError, "modules or their names"),
        ({"include": ["no.such.module"]}, ValueError, "not imported"),
    ],
)
def test_a_bad_setting_is_refused_when_it_is_given(
    settings: dict[str, Any], error: type[Exception], words: str
) -> None:
    given: dict[str, Any] = {"store": "runs.db", **settings}
    with pytest.raises(error, match=words):
        Stepwell(**given)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"queues": []}, ValueError, "at least one"),
        ({"queues": [None]}, TypeError, "names"),
        ({"concurrency": 0}, ValueError, "concurrency="),
        ({"step_concurrency": 0}, ValueError, "step_concurrency="),
        ({"threads": "many"}, TypeError, "threads="),
        ({"cache": -1}, ValueError, "cache="),
        ({"grace": None}, TypeError, "grace="),
        ({"grace": -1}, ValueError, "grace="),
        ({"name": ""}, ValueError, "name="),
    ],
)
def test_a_bad_setting_of_a_worker_is_refused_when_it_is_given(
    app: Stepwell, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        app.worker(**options)


async def test_a_run_is_executed_by_a_worker(app: Stepwell) -> None:
    async with app, app.worker():
        run = await app.start(total(1, 2))
        assert run.created
        assert await run.result(timeout=20) == 3
        assert await run.status() == "completed"


async def test_run_executes_a_call_and_its_children_on_all_their_queues(app: Stepwell) -> None:
    async with app:
        assert await app.run(posts(), timeout=20) == 3
        assert await app.run(send(4), timeout=20) == 4


async def test_calls_that_run_at_the_same_time_share_a_worker(tmp_path: Path) -> None:
    lives: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(app: Stepwell) -> AsyncGenerator[None, None]:
        lives.append("begun")
        async with asyncio.TaskGroup():
            yield
        lives.append("ended")

    async with Stepwell(tmp_path / "runs.db", lifespan=lifespan, include=[__name__]) as app:
        runs = [app.run(total(number, 1), timeout=20) for number in range(10)]
        assert await asyncio.gather(*runs) == list(range(1, 11))
        assert lives == ["begun", "ended"]
        assert await app.run(total(1, 2), timeout=20) == 3
        assert lives == ["begun", "ended"] * 2


async def test_a_run_that_is_cancelled_leaves_the_app_usable(app: Stepwell) -> None:
    async with app:
        said = r"run 'waits' has not ended within 0\.01 s; .* the run goes on"
        with pytest.raises(TimeoutError, match=said):
            await app.run(approval(), id="waits", timeout=0.01)
        running = asyncio.create_task(app.run(approval(), id="waits"))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await app.run(total(1, 2), timeout=20) == 3
        assert await app.get("waits").status() in ("parked", "ready")


async def test_run_goes_on_with_an_earlier_run_of_the_same_id(app: Stepwell) -> None:
    async with app:
        first = await app.start(total(1, 2), id="sum")
        assert await app.run(total(1, 2), id="sum", timeout=20) == 3
        assert await app.run(total(1, 2), id="sum", timeout=20) == 3
        assert await first.result() == 3
        assert len(await app.runs()) == 1


async def test_the_same_id_finds_the_same_run(app: Stepwell) -> None:
    async with app:
        first = await app.start(total(1, 2), id="sum")
        again = await app.start(total(1, b=2), id="sum")
        third = await app.start(total(1, 2).with_options(id="sum"))
        assert (first.created, third.created) == (True, False)
        assert again.id == first.id
        with pytest.raises(IdConflict):
            await app.start(total(2, 2), id="sum")
        with pytest.raises(IdConflict):
            await app.start(approval(), id="sum")
        assert len(await app.runs()) == 1


used_inside: list[Stepwell] = []


@workflow
async def enqueues_by_the_app() -> None:
    await used_inside[-1].enqueue_many([send(1), send(2)])


async def test_calls_that_cannot_be_enqueued_in_a_workflow_do_not_warn_in_addition(
    app: Stepwell,
) -> None:
    used_inside.append(app)
    async with app, app.worker():
        run = await app.start(enqueues_by_the_app())
        with pytest.raises(RunStuck, match="the app"):
            await run.result(timeout=20)


async def test_many_are_started_all_or_none(app: Stepwell) -> None:
    async with app:
        runs = await app.start_many(total(n, 1).with_options(id=f"sum-{n}") for n in range(3))
        assert [run.id for run in runs] == ["sum-0", "sum-1", "sum-2"]
        calls = [send(1).with_options(id="fresh"), send(2).with_options(id="sum-1")]
        with pytest.raises(IdConflict):
            await app.enqueue_many(calls)
        with pytest.raises(RunNotFound):
            await app.info("fresh")
        assert await app.start_many([]) == []
        mixed: Any = [send(1), total(1, 2)]
        with pytest.raises(TypeError, match=r"start_many\(\)"):
            await app.enqueue_many(mixed)
        async with app.worker() as worker:
            await worker.drain()
            assert [await run.result() for run in runs] == [1, 2, 3]


async def test_a_start_can_be_delayed(app: Stepwell) -> None:
    when = datetime.now(UTC) + timedelta(hours=1)
    async with app, app.worker() as worker:
        late = await app.start(total(1, 2), delay=timedelta(hours=1))
        at = await app.enqueue(send(1), at=when)
        past = await app.enqueue(send(1), at=when - timedelta(days=9))
        await past.result(timeout=20)
        await worker.drain()
        assert await late.status() == await at.status() == "scheduled"
        assert (await at.info()).due_at == when


async def test_a_task_is_enqueued_with_its_options(app: Stepwell) -> None:
    async with app:
        run = await app.enqueue(send(1), queue="bulk", priority=7)
        info = await run.info()
        assert (info.queue, info.priority, info.kind, info.status) == ("bulk", 7, "task", "ready")


async def test_runs_are_listed_newest_first_and_by_page(app: Stepwell) -> None:
    async with app:
        for number in range(5):
            await app.start(total(number, 1), id=f"sum-{number}")
        await app.enqueue(send(1), id="task")
        first = await app.runs(limit=3)
        assert [run.id for run in first] == ["task", "sum-4", "sum-3"]
        rest = await app.runs(after=first[-1].id)
        assert [run.id for run in rest] == ["sum-2", "sum-1", "sum-0"]
        assert [run.id for run in await app.runs(name="send")] == ["task"]
        assert await app.runs(status="completed") == []
        assert len(await app.runs(status=["ready", "completed"])) == 6
        assert await app.runs(queue="elsewhere") == []
        with pytest.raises(RunNotFound):
            await app.runs(after="nobody")


async def test_what_no_worker_has_code_for_is_listed_as_such(app: Stepwell) -> None:
    async with app:
        run = await app.enqueue(post(1))
        async with app.worker():
            assert [one.id for one in await app.runs(status="no_code")] == [run.id]
            assert not (await run.info()).has_code
        async with app.worker(queues=["mail"]):
            await run.result(timeout=20)


async def test_a_signal_reaches_the_run_and_keeps_its_type(app: Stepwell) -> None:
    async with app, app.worker():
        run = await app.start(approval())
        await app.signal(run.id, decision, Decision(approved=True))
        assert await run.result(timeout=20) is True


async def test_get_finds_a_run_without_io(app: Stepwell) -> None:
    async with app:
        await app.run(total(1, 2), id="sum")
        assert await app.get("sum", total).result() == 3
        assert await app.get("sum").result() == 3
        with pytest.raises(RunNotFound):
            await app.get("nobody", total).result()
        with pytest.raises(RunNotFound):
            await app.get("nobody").history()
        anything: Any = app
        with pytest.raises(TypeError, match="takes a workflow or task"):
            anything.get("sum", add)
        with pytest.raises(TypeError, match="not None"):
            anything.get(None)


async def test_a_value_over_the_limit_is_refused_at_the_producer(tmp_path: Path) -> None:
    @task
    async def keep(text: str) -> None: ...

    async with Stepwell(tmp_path / "runs.db", max_value_size=2048, include=[__name__]) as app:
        with pytest.raises(PayloadTooLarge):
            await app.enqueue(keep("x" * 4096))
        assert await app.runs() == []


@step
async def seen_by_the_step() -> tuple[str, bool, str]:
    app: object = current_app()
    assert isinstance(app, Stepwell)
    await app.start(total(1, 2), id=f"from-{current_step().run_id}")
    return resource.get(), app.opened, current_step().path


@step
def seen_by_a_plain_step() -> str:
    run = current_app().blocking.enqueue(send(7), id="from-a-thread")
    return f"{resource.get()} {run.id}"


@workflow
async def looks_around() -> tuple[tuple[str, bool, str], str]:
    return await seen_by_the_step(), await seen_by_a_plain_step()


resource: contextvars.ContextVar[str] = contextvars.ContextVar("resource")


async def test_steps_see_what_the_lifespan_of_their_worker_sets(tmp_path: Path) -> None:
    lives: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(app: Stepwell) -> AsyncGenerator[None, None]:
        assert app.opened
        lives.append("begun")
        resource.set("pool")
        yield
        lives.append("ended")

    async with Stepwell(tmp_path / "runs.db", lifespan=lifespan, include=[__name__]) as app:
        assert lives == []
        async with app.worker():
            run = await app.start(looks_around(), id="run")
            assert await run.result(timeout=20) == (("pool", True, "0"), "pool from-a-thread")
            assert await app.get("from-run", total).result(timeout=20) == 3
            assert await app.get("from-a-thread", send).result(timeout=20) == 7
    assert lives == ["begun", "ended"]


async def test_a_lifespan_may_hold_a_task_group(tmp_path: Path) -> None:
    @contextlib.asynccontextmanager
    async def lifespan(app: Stepwell) -> AsyncGenerator[None, None]:
        async with asyncio.TaskGroup() as group:
            background = group.create_task(asyncio.Event().wait())
            yield
            background.cancel()

    async with Stepwell(tmp_path / "runs.db", lifespan=lifespan, include=[__name__]) as app:
        assert await app.run(total(1, 2), timeout=20) == 3


async def test_a_lifespan_that_fails_is_raised_where_the_worker_starts(tmp_path: Path) -> None:
    @contextlib.asynccontextmanager
    async def lifespan(app: Stepwell) -> AsyncGenerator[None, None]:
        raise LookupError("no database")
        yield

    async with Stepwell(tmp_path / "runs.db", lifespan=lifespan, include=[__name__]) as app:
        with pytest.raises(LookupError, match="no database"):
            async with app.worker():
                pass
        assert await app.workers() == []


async def test_a_worker_is_listed_while_it_lives(app: Stepwell) -> None:
    async with app:
        async with app.worker(name="first", queues=["default", "mail"]) as worker:
            (info,) = await app.workers()
            assert (info.name, info.alive, list(info.queues)) == (
                "first",
                True,
                ["default", "mail"],
            )
            with pytest.raises(StepwellError, match="running already"):
                await worker.__aenter__()
        assert [one for one in await app.workers() if one.alive] == []
        with pytest.raises(StepwellError, match="not running"):
            await worker.drain()


async def test_include_limits_what_a_worker_serves(tmp_path: Path) -> None:
    async with Stepwell(tmp_path / "runs.db", include=[stepwell]) as app:
        run = await app.start(total(1, 2))
        async with app.worker() as worker:
            await worker.drain()
            assert await run.status() == "ready"
            assert not (await run.info()).has_code


async def test_a_worker_does_not_start_when_two_definitions_clash(app: Stepwell) -> None:
    from stepwell_runtime.definitions import registry

    def define(file: str, module: str) -> Any:
        source = "import stepwell\n@stepwell.workflow\nasync def clashing(): ...\n"
        names: dict[str, Any] = {"__name__": module}
        exec(compile(source, file, "exec"), names)
        return names["clashing"].definition

    both_defined = [define("one.py", __name__), define("two.py", "elsewhere")]
    both = Stepwell("unused.db")
    object.__setattr__(both.settings, "include", frozenset((__name__, "elsewhere")))
    try:
        with pytest.raises(DefinitionError, match=r"one\.py:2 and two\.py:2"):
            both.definitions()
        assert both_defined[0] in app.definitions().values()
    finally:
        for one in both_defined:
            registry.remove(one)


async def test_ended_runs_are_pruned_on_request(app: Stepwell) -> None:
    async with app:
        for number in range(3):
            await app.run(total(number, 1), id=f"sum-{number}", timeout=20)
        await app.start(total(9, 1), id="not ended")
        assert await app.prune(keep=1) == 2
        assert {run.id for run in await app.runs()} == {"sum-2", "not ended"}
        assert await app.prune(older_than=3600) == 0
        assert await app.prune(older_than=timedelta()) == 1


async def test_a_worker_prunes_as_the_retention_says(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"include": [__name__], "durability": "process"}
    async with Stepwell(tmp_path / "runs.db", **settings) as app:
        for number in range(3):
            await app.run(total(number, 1), timeout=20)
    kept = Stepwell(tmp_path / "runs.db", retention=Retention(count=1), **settings)
    async with kept, kept.worker():
        async with asyncio.timeout(20):
            while len(await kept.runs()) > 1:  # noqa: ASYNC110 - a pass tells nobody that it ended
                await asyncio.sleep(0.01)


async def test_doctor_finds_nothing_in_a_sound_store(app: Stepwell) -> None:
    async with app:
        await app.run(total(1, 2), timeout=20)
        await app.start(approval())
        assert await app.doctor() == []

"""Runs whose code has changed: stuck or without code, visible, and resumed by code that fits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs
from structlog.typing import EventDict

from stepwell import (
    RunStuck,
    Signal,
    Stepwell,
    Workflow,
    compensate,
    parallel,
    patched,
    race,
    sleep,
    step,
    wait_for_signal,
    workflow,
)
from tests.behaviour.stage import LONG, stage

pytestmark = pytest.mark.anyio
go = Signal("go", int)
Code = Callable[[], Coroutine[Any, Any, str]]


@step
async def a() -> str:
    stage.note("a")
    return "a"


@step
async def b() -> str:
    stage.note("b")
    return "b"


@step
async def x() -> str:
    stage.note("x")
    return "x"


@step
async def undo() -> None:
    stage.note("undo")


def deploy(code: Code, version: int = 1) -> Workflow[[], str]:
    """Make `code` the workflow of this name, as a new release does."""

    @workflow(name="changing", version=version)
    async def changing() -> str:
        return await code()

    return changing


async def original() -> str:
    compensate(undo())
    await a()
    await b()
    value = await wait_for_signal(go)
    await sleep(0)
    return f"original {value}"


async def swapped() -> str:
    compensate(undo())
    await b()
    await a()
    return f"swapped {await signalled()}"


async def dropped() -> str:
    compensate(undo())
    await a()
    return f"dropped {await signalled()}"


async def in_front() -> str:
    compensate(undo())
    await x()
    await a()
    await b()
    return f"in front {await signalled()}"


async def ended_early() -> str:
    compensate(undo())
    return await a()


async def another_kind() -> str:
    compensate(undo())
    await a()
    await sleep(0)
    return f"another kind {await signalled()}"


async def in_branches() -> str:
    compensate(undo())
    await parallel(a(), b())
    return f"in branches {await signalled()}"


async def signalled() -> int:
    value: int = await wait_for_signal(go)
    return value


async def parked(app: Stepwell, code: Code) -> None:
    """Bring a run of this code to its wait for a signal."""
    await app.start(deploy(code)(), id="run")
    async with app.worker() as worker:
        await worker.drain()
        assert await app.get("run").status() == "parked"


@pytest.mark.parametrize(
    ("code", "path", "recorded", "asked"),
    [
        (swapped, "0", "'a'", "step 'b'"),
        (dropped, "1", "'b'", "wait 'go'"),
        (in_front, "0", "'a'", "step 'x'"),
        (ended_early, "1", "'b'", "nothing"),
        (another_kind, "1", "'b'", "sleep 'sleep'"),
        (in_branches, "0", "'a'", "nothing"),
    ],
)
async def test_code_that_does_not_fit_executes_nothing_and_says_where_it_differs(
    app: Stepwell, code: Code, path: str, recorded: str, asked: str
) -> None:
    await parked(app, original)
    await app.signal("run", go, 1)
    before = await app.history("run")
    stage.done.clear()
    deploy(code)
    async with app.worker():
        with pytest.raises(RunStuck) as caught:
            await app.get("run").result(timeout=LONG)
    message = str(caught.value)
    assert f"at path {path}:" in message
    assert recorded in message
    assert asked in message
    after = await app.history("run")
    assert after.run.status == "stuck"
    assert after.run.rollback == "none"
    assert after.events == before.events
    assert stage.done == []


async def test_a_stuck_run_is_resumed_by_code_that_fits(app: Stepwell) -> None:
    await parked(app, original)
    await app.signal("run", go, 1)
    run = app.get("run")
    deploy(swapped)
    async with app.worker() as worker:
        with pytest.raises(RunStuck):
            await run.result(timeout=LONG)
        await worker.drain()
        assert [one.id for one in await app.runs(status="stuck")] == ["run"]
        await run.resume()
        with pytest.raises(RunStuck):
            await run.result(timeout=LONG)
    deploy(original)
    async with app.worker():
        assert await run.result(timeout=LONG) == "original 1"
    assert stage.done == ["a", "b"]


async def with_a_patch() -> str:
    compensate(undo())
    await a()
    if patched("x for b"):
        await x()
    else:
        await b()
    value = await wait_for_signal(go)
    await sleep(0)
    return f"patched {value}"


async def test_old_runs_go_the_old_way_and_new_ones_the_new_way(app: Stepwell) -> None:
    await parked(app, original)
    changed = deploy(with_a_patch)
    async with app.worker() as worker:
        await app.start(changed(), id="new")
        await worker.drain()
    assert stage.done == ["a", "b", "a", "x"]
    async with app.worker():  # which replays both
        for id in ("run", "new"):
            await app.signal(id, go, 1)
            assert await app.get(id).result(timeout=LONG) == "patched 1"
    assert stage.done == ["a", "b", "a", "x"]
    markers = [event.name for event in (await app.history("new")).events if event.kind == "marker"]
    assert markers == ["x for b"]
    assert "marker" not in [event.kind for event in (await app.history("run")).events]


async def test_a_stuck_run_is_tried_once_by_a_worker_and_not_over_and_over(app: Stepwell) -> None:
    await parked(app, original)
    await app.signal("run", go, 1)
    deploy(swapped)
    with capture_logs() as logs:
        async with app.worker() as worker:
            with pytest.raises(RunStuck):
                await app.get("run").result(timeout=LONG)
            for _ in range(20):
                await worker.drain()
                await asyncio.sleep(0.001)
    assert len([line for line in logs if line["event"] == "run_stuck"]) == 1


async def test_a_signal_to_a_stuck_run_is_kept_for_the_code_that_fits(app: Stepwell) -> None:
    await parked(app, original)
    deploy(swapped)
    async with app.worker():
        await app.signal("run", "noise")
        with pytest.raises(RunStuck):
            await app.get("run").result(timeout=LONG)
    await app.signal("run", go, 7)
    deploy(original)
    async with app.worker():
        assert await app.get("run").result(timeout=LONG) == "original 7"


async def test_a_run_that_goes_on_no_longer_says_why_it_was_stuck(app: Stepwell) -> None:
    await parked(app, original)
    deploy(swapped)
    async with app.worker():
        await app.signal("run", "noise")
        with pytest.raises(RunStuck):
            await app.get("run").result(timeout=LONG)
    assert "journal has" in ((await app.info("run")).error or "")
    deploy(original)
    async with app.worker() as worker:
        await worker.drain()
    info = await app.info("run")
    assert (info.status, info.error) == ("parked", None)


async def test_a_stuck_run_can_be_cancelled_once_its_code_fits(app: Stepwell) -> None:
    await parked(app, original)
    deploy(swapped)
    await app.signal("run", "noise")
    async with app.worker():
        with pytest.raises(RunStuck):
            await app.get("run").result(timeout=LONG)
    await app.cancel("run")
    deploy(original)
    async with app.worker() as worker:
        await worker.drain()
        assert await app.get("run").status() == "cancelled"
    assert stage.done == ["a", "b", "undo"]


async def original_with_more() -> str:
    """Code that only does something else after the point that was reached."""
    compensate(undo())
    note: list[str] = []
    await a()
    note.append("local")
    await b()
    value = await wait_for_signal(go)
    await x()
    return f"more {value} {note}"


async def test_a_change_of_what_is_not_recorded_yet_strands_nothing(app: Stepwell) -> None:
    await parked(app, original)
    await app.signal("run", go, 1)
    deploy(original_with_more)
    async with app.worker():
        assert await app.get("run").result(timeout=LONG) == "more 1 ['local']"
    assert stage.done == ["a", "b", "x"]


async def test_a_run_stays_with_the_version_with_which_it_began(app: Stepwell) -> None:
    await parked(app, original)
    await app.signal("run", go, 1)
    second = deploy(swapped, version=2)
    async with app.worker():
        assert (await app.get("run").result(timeout=LONG)) == "original 1"
        run = await app.start(second())
        await run.signal(go, 2)
        assert await run.result(timeout=LONG) == "swapped 2"
        assert [one.version for one in await app.runs(name="changing")] == [2, 1]


@workflow(name="unknown elsewhere", version=3)
async def known_here() -> str:
    return await a()


async def test_a_run_without_code_waits_and_shows_until_a_worker_has_it(
    make_app: Callable[..., Stepwell],
) -> None:
    async with make_app(include=["tests.behaviour.stage"]) as app:
        run = await app.start(known_here())
        async with app.worker() as worker:
            await worker.drain()
            (listed,) = await app.runs(status="no_code")
            assert (listed.id, listed.name, listed.version) == (run.id, "unknown elsewhere", 3)
            assert (listed.status, listed.attempts, listed.has_code) == ("ready", 0, False)
    async with make_app() as app, app.worker():
        assert await app.get(run.id, known_here).result(timeout=LONG) == "a"
        assert await app.runs(status="no_code") == []


async def uses_asyncio() -> str:
    compensate(undo())
    await a()
    await asyncio.sleep(3600)
    return "never"


async def uses_sleep() -> str:
    compensate(undo())
    await a()
    await sleep(0.01)
    return "fixed"


async def test_a_mistake_in_the_code_makes_a_run_stuck_and_its_correction_resumes_it(
    app: Stepwell,
) -> None:
    run = await app.start(deploy(uses_asyncio)())
    async with app.worker():
        with pytest.raises(RunStuck, match=r"use `await sleep\(\.\.\.\)`"):
            await run.result(timeout=LONG)
    assert stage.done == ["a"]
    deploy(uses_sleep)
    async with app.worker():
        assert await run.result(timeout=LONG) == "fixed"
    assert stage.done == ["a"]


async def with_an_open_sleep() -> str:
    await parallel(signalled(), sleep(3600))
    return "done"


async def without_the_sleep() -> str:
    await parallel(signalled(), a())
    return "done"


async def test_an_open_timer_that_the_code_does_not_ask_for_any_more_is_a_divergence(
    app: Stepwell,
) -> None:
    await parked(app, with_an_open_sleep)
    await app.signal("run", go, 1)
    deploy(without_the_sleep)
    async with app.worker():
        with pytest.raises(RunStuck, match="at path 0.1.0: the journal has an open sleep"):
            await app.get("run").result(timeout=LONG)
    assert stage.done == []


async def raced() -> str:
    await race(b(), sleep(3600), x_after_a())
    return f"raced {await signalled()}"


async def x_after_a() -> None:
    await a()
    await x()


async def test_what_a_losing_branch_has_recorded_is_no_divergence(app: Stepwell) -> None:
    await parked(app, raced)
    await app.signal("run", go, 1)
    async with app.worker(cache=0):
        assert await app.get("run").result(timeout=LONG) == "raced 1"
    assert stage.count("a") == stage.count("b") == 1


@dataclass
class Model:
    first: int


@step
async def make_model() -> Model:
    stage.note("made")
    return Model(1)


@workflow
async def uses_model() -> str:
    model = await make_model()
    await wait_for_signal(go)
    return f"{type(model).__name__} {model}"


@dataclass
class ModelWithMore:
    first: int
    second: int


@dataclass
class ModelWithDefault:
    first: int
    second: int = 2


def release(cls: type[Any]) -> None:
    """Let `Model` be another class, as after an edit of this module and a restart."""
    cls.__qualname__ = cls.__name__ = "Model"
    globals()["Model"] = cls
    make_model.definition.types = None


@pytest.fixture
def _original_model() -> Generator[None, None, None]:
    yield
    release(original_model)


original_model = Model


@pytest.mark.usefixtures("_original_model")
async def test_a_stored_value_that_its_class_no_longer_fits_makes_the_run_stuck(
    app: Stepwell,
) -> None:
    run = await app.start(uses_model())
    async with app.worker() as worker:
        await worker.drain()
    await run.signal(go, 1)
    release(ModelWithMore)
    async with app.worker():
        with pytest.raises(RunStuck, match="make_model.*second"):
            await run.result(timeout=LONG)
    release(ModelWithDefault)
    async with app.worker():
        assert await run.result(timeout=LONG) == "Model Model(first=1, second=2)"
    assert stage.done == ["made"]


@workflow
async def takes_model(model: Model | None) -> str:
    return "taken"


def refuse(logger: object, method: str, event: EventDict) -> EventDict:
    raise ZeroDivisionError


@pytest.mark.usefixtures("_original_model")
async def test_arguments_that_no_longer_fit_and_a_log_that_raises_lose_no_run_beside_them(
    app: Stepwell,
) -> None:
    unfit, *fit = await app.start_many(
        [takes_model(Model(1)), takes_model(None), takes_model(None)]
    )
    release(ModelWithMore)
    before = structlog.get_config()["processors"]
    structlog.configure(processors=[refuse])
    try:
        async with app.worker():
            for run in fit:
                assert await run.result(timeout=LONG) == "taken"
            with pytest.raises(RunStuck, match="second"):
                await unfit.result(timeout=LONG)
    finally:
        structlog.configure(processors=before)


@step
async def fill(items: list[int]) -> int:
    items.append(len(items))
    return len(items)


@workflow
async def passes_a_list() -> tuple[list[int], int, list[int]]:
    items: list[int] = []
    size = await fill(items)
    seen = list(items)
    await wait_for_signal(go)
    return seen, size, items


@pytest.mark.parametrize("cache", [0, 1000])
async def test_a_step_gets_a_copy_so_that_live_and_replayed_code_see_the_same(
    app: Stepwell, cache: int
) -> None:
    async with app.worker(cache=cache) as worker:
        run = await app.start(passes_a_list())
        await worker.drain()
        await run.signal(go, 1)
        assert await run.result(timeout=LONG) == ([], 1, [])


@workflow
async def changes_its_argument(items: list[int]) -> list[int]:
    items.append(await fill([]))
    await wait_for_signal(go)
    items.append(await fill([]))
    return items


@pytest.mark.parametrize("cache", [0, 1000])
async def test_arguments_are_fresh_at_every_replay(app: Stepwell, cache: int) -> None:
    given = [7]
    async with app.worker(cache=cache) as worker:
        run = await app.start(changes_its_argument(given))
        given.append(8)
        await worker.drain()
        await run.signal(go, 1)
        assert await run.result(timeout=LONG) == [7, 1, 1]

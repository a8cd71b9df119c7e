"""`@schedule`: what it takes, what workers make of it, and what becomes of it as code changes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import structlog

from stepwell import (
    DefinitionError,
    Schedule,
    Stepwell,
    schedule,
    step,
    task,
    workflow,
)
from stepwell_queue.errors import RequestRefused, ScheduleNotFound
from stepwell_runtime.definitions import registry
from tests.behaviour.stage import until
from tests.serving import serving, url_of
from tests.store.kit import ManualClock

pytestmark = pytest.mark.anyio

CODE = "code_of_the_app"
OTHER = "other_code"
Nightly = Callable[..., Any]


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test defines is forgotten afterwards."""
    for name in (CODE, OTHER):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    yield
    for one in registry.select(frozenset((CODE, OTHER))).values():
        registry.remove(one)


@pytest.fixture(params=["file", "tcp"])
async def address(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[str]:
    if request.param == "file":
        yield str(tmp_path / "runs.db")
    else:
        async with serving(tmp_path / "runs.db", clock=clock) as server:
            yield url_of(server)


Deploy = Callable[..., contextlib.AbstractAsyncContextManager[Stepwell]]


@pytest.fixture
def deploy(address: str, clock: ManualClock) -> Deploy:
    """Open an app with a worker, which serves what the code of the app defines by then."""

    @contextlib.asynccontextmanager
    async def deploy(*, include: str = CODE, **worker: Any) -> AsyncGenerator[Stepwell]:
        how: Any = None if address.startswith("tcp:") else "process"
        app = Stepwell(address, include=[include], durability=how, clock=clock)
        async with app, app.worker(**worker):
            yield app

    return deploy


def code(name: str, module: str = CODE) -> Callable[..., Coroutine[Any, Any, str]]:
    """A function as the app's code has it; each time anew, as in each deploy."""

    async def function(region: str = "eu") -> str:
        return f"{name} {region}"

    function.__name__ = function.__qualname__ = name
    function.__module__ = module
    return function


# --- what workers make of declarations ---


async def test_a_worker_makes_the_schedules_of_what_it_serves(deploy: Deploy) -> None:
    declared = task(name="nightly", queue="reports")(code("nightly"))
    schedule(cron=" 30  2 * * * ", tz="Europe/Rome", overlap="queue", missed="skip", jitter=5)(
        declared
    )
    schedule(every=timedelta(minutes=1), id="often")(declared("us"))
    async with deploy() as app:
        assert await app.schedules() == []
    async with deploy(queues=["default", "reports"]) as app:
        nightly, often = await app.schedules()
    assert (nightly.id, nightly.kind, nightly.name, nightly.queue) == (
        "nightly", "task", "nightly", "reports",
    )  # fmt: skip
    assert nightly.when == "cron '30 2 * * *' in Europe/Rome"
    assert (nightly.overlap, nightly.missed, nightly.jitter) == ("queue", "skip", 5.0)
    assert (nightly.module, nightly.paused, nightly.last_at) == (CODE, False, None)
    assert (often.id, often.when, often.missed, often.overlap) == (
        "often", "every 60 s", "once", "skip",
    )  # fmt: skip


async def test_the_run_of_a_tick_gets_the_arguments_of_its_call(
    deploy: Deploy, clock: ManualClock
) -> None:
    report = workflow(name="report")(code("report"))
    schedule(every=60, id="us")(report("us"))
    schedule(every=60)(report)
    async with deploy() as app:
        for id, result in (("us", "report us"), ("report", "report eu")):
            run = await app.get_schedule(id).run_now()
            assert await run.result(timeout=20) == result


async def test_a_worker_starts_the_run_of_a_tick_by_itself(
    deploy: Deploy, clock: ManualClock
) -> None:
    schedule(every=60)(task(name="often")(code("often")))
    async with deploy() as app:
        made = app.get_schedule("often")
        next_at = (await made.info()).next_at
        assert next_at is not None
        clock.move(next_at.timestamp() - clock.now())
        async with app.worker():  # whose scheduler looks at once
            await until(partial(has_ticked, made))
        (tick,) = await made.history()
        assert (tick.tick_at, tick.run_id) == (next_at, f"schedule:often@{next_at.isoformat()}")
        assert await app.get(tick.run_id or "").result(timeout=20) == "often eu"


async def has_ticked(made: Schedule[Any]) -> bool:
    return bool(await made.history())


async def test_an_unchanged_declaration_changes_nothing_at_a_restart(
    deploy: Deploy, clock: ManualClock
) -> None:
    found: list[Any] = []
    for _ in range(3):
        clock.move(7.7)
        schedule(cron="30 2 * * *")(
            task(name="nightly", deadline=60)(code("nightly")),
        )
        async with deploy() as app:
            found.append(await app.schedules())
    assert found[0] == found[1] == found[2]


async def test_a_changed_declaration_applies_and_stays_paused(
    deploy: Deploy, clock: ManualClock
) -> None:
    schedule(cron="30 2 * * *")(task(name="nightly")(code("nightly")))
    async with deploy() as app:
        await app.get_schedule("nightly").pause()
    clock.move(1.0)
    schedule(cron="30 3 * * *")(task(name="nightly")(code("nightly")))
    async with deploy() as app:
        (found,) = await app.schedules()
    assert found.when == "cron '30 3 * * *' in UTC"
    assert found.paused
    assert (found.updated_at - found.created_at).total_seconds() == 1.0
    assert found.next_at is not None
    assert found.next_at.hour == 3


async def test_one_that_vanished_from_the_code_goes_on_and_is_reported(deploy: Deploy) -> None:
    schedule(cron="30 2 * * *")(task(name="nightly")(code("nightly")))
    async with deploy():
        pass
    task(name="nightly")(code("nightly"))
    with structlog.testing.capture_logs() as logged:
        async with deploy() as app:
            assert [one.id for one in await app.schedules()] == ["nightly"]
    (said,) = [one for one in logged if one["event"] == "schedule_not_in_code"]
    assert (said["schedule"], said["module"]) == ("nightly", CODE)
    assert "stepwell schedules delete nightly" in said["hint"]


async def test_one_of_other_code_is_not_reported(deploy: Deploy) -> None:
    schedule(cron="30 2 * * *")(task(name="nightly", queue="reports")(code("nightly")))
    task(name="other")(code("other", OTHER))
    async with deploy(queues=["reports"]):
        pass
    with structlog.testing.capture_logs() as logged:
        async with deploy(), deploy(include=OTHER):
            pass
    assert [one for one in logged if one["event"] == "schedule_not_in_code"] == []


async def test_a_worker_serves_though_its_schedule_is_refused(deploy: Deploy) -> None:
    other = task(name="other")(code("other"))
    async with deploy() as app:
        await app.schedule("nightly", other(), every=60)
    schedule(cron="30 2 * * *")(task(name="nightly")(code("nightly")))
    with structlog.testing.capture_logs() as logged:
        async with deploy() as app:
            assert await (await app.enqueue(other("us"))).result(timeout=20) == "other us"
            assert [one.module for one in await app.schedules()] == [None]
    (said,) = [one for one in logged if one["event"] == "schedule_refused"]
    assert "was made at run time" in said["error"]


async def test_an_app_does_not_take_over_what_code_declares(deploy: Deploy) -> None:
    nightly = task(name="nightly")(code("nightly"))
    schedule(cron="30 2 * * *")(nightly)
    async with deploy() as app:
        with pytest.raises(RequestRefused, match=f"is declared in the module {CODE}"):
            await app.schedule("nightly", nightly(), every=60)


async def test_two_schedules_of_one_id_are_refused_when_a_worker_starts(deploy: Deploy) -> None:
    schedule(cron="30 2 * * *", id="same")(task(name="one")(code("one")))
    schedule(cron="30 2 * * *", id="same")(task(name="two")(code("two")))
    with pytest.raises(DefinitionError, match="two schedules are called 'same': one of 'one' "):
        async with deploy():
            raise AssertionError("it must not serve")


async def test_a_run_in_place_starts_no_schedules(address: str, clock: ManualClock) -> None:
    nightly = task(name="nightly")(code("nightly"))
    schedule(cron="30 2 * * *")(nightly)
    how: Any = None if address.startswith("tcp:") else "process"
    async with Stepwell(address, include=[CODE], durability=how, clock=clock) as app:
        assert await app.run(nightly("us")) == "nightly us"
        assert await app.schedules() == []


# --- at run time ---


async def test_what_was_started_in_a_pause_is_not_made_up_for(
    deploy: Deploy, clock: ManualClock
) -> None:
    often = task(name="often")(code("often"))
    async with deploy() as app:
        made = await app.schedule("often", often(), every=60)
        await made.pause()
        assert (await made.info()).paused
        clock.move(600.0)
        await made.resume()
        info = await made.info()
        assert not info.paused
        assert info.next_at is not None
        assert 0 < info.next_at.timestamp() - clock.now() <= 60
        assert await made.history() == []


async def test_a_deleted_schedule_is_gone(deploy: Deploy) -> None:
    often = task(name="often")(code("often"))
    async with deploy() as app:
        made = await app.schedule("often", often(), every=60)
        run = await made.run_now()
        await made.delete()
        await made.delete()
        assert await app.schedules() == []
        for asked in (made.info, made.history, made.pause, made.resume, made.run_now):
            with pytest.raises(ScheduleNotFound, match="'often'"):
                await asked()
        assert await run.result(timeout=20) == "often eu"


async def test_runs_that_retention_deletes_leave_their_ticks(
    deploy: Deploy, clock: ManualClock
) -> None:
    often = task(name="often")(code("often"))
    async with deploy() as app:
        made = await app.schedule("often", often(), every=60)
        await (await made.run_now()).result(timeout=20)
        await (await app.enqueue(often())).result(timeout=20)
        assert await app.prune(keep=0) == 1
        (tick,) = await made.history()
        assert tick.run_id is not None
        assert tick.status is None


# --- what is refused ---

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({}, ValueError, "say when: cron=, every= or at="),
    ({"cron": "0 0 31 2 *"}, ValueError, "never comes"),
    ({"cron": "0 0 * * *", "every": 5}, ValueError, "cron= says when"),
    ({"cron": "0 0 * * *", "at": NOON}, ValueError, "cron= says when"),
    ({"cron": 5}, TypeError, "cron= takes a string, not 5"),
    ({"cron": "0 0 * * *", "tz": "Mars"}, ValueError, "is no time zone"),
    ({"cron": "0 0 * * *", "tz": UTC}, TypeError, "tz= takes a string"),
    ({"every": 60, "tz": "UTC"}, ValueError, "there is no cron="),
    ({"every": 0}, ValueError, "every= must be greater than 0"),
    ({"every": 0.01}, ValueError, "every 0.1 seconds at the most"),
    ({"every": 1e300}, ValueError, "every 1e+09 seconds (31 years) at the least, not every 1e+300"),
    ({"every": True}, TypeError, "every= takes seconds"),
    ({"every": float("nan")}, ValueError, "every= must be a finite span"),
    ({"at": datetime(2030, 1, 1)}, ValueError, "has no time zone"),  # noqa: DTZ001 - it is refused
    ({"every": 60, "overlap": "both"}, ValueError, "overlap= must be 'skip', 'queue' or 'allow'"),
    ({"every": 60, "missed": "all"}, TypeError, "missed= is 'skip', 'once', or a number"),
    ({"every": 60, "missed": 0, "overlap": "allow"}, ValueError, "missed= must be from 1 to 1000"),
    ({"every": 60, "missed": 5}, ValueError, 'it needs overlap="allow"'),
    ({"every": 60, "missed": True}, TypeError, "missed= is 'skip'"),
    ({"every": 60, "jitter": -1}, ValueError, "jitter= must be a finite span >= 0"),
    ({"every": 60, "jitter": 1e300}, ValueError, "jitter= must be below the 60 seconds"),
    ({"every": 60, "jitter": 60}, ValueError, "jitter= must be below the 60 seconds"),
    ({"cron": "0 0 * * *", "jitter": 86_401}, ValueError, "at most 86400 seconds (a day)"),
    ({"at": NOON, "jitter": 1e300}, ValueError, "at most 86400 seconds (a day), not 1e+300"),
]


@pytest.mark.parametrize(("options", "kind", "reason"), BAD)
async def test_what_cannot_be_is_refused_where_it_is_asked_for(
    deploy: Deploy, options: dict[str, Any], kind: type[Exception], reason: str
) -> None:
    often = task(name="often")(code("often"))
    with pytest.raises(DefinitionError) as refused:
        schedule(**options)(often)
    assert reason in str(refused.value)
    assert "None means" not in str(refused.value)
    assert str(refused.value).startswith("@schedule often: ")
    async with deploy() as app:
        with pytest.raises(kind) as again:
            await app.schedule("often", often(), **options)
        assert reason in str(again.value)
        assert await app.schedules() == []


@pytest.mark.parametrize(
    "options",
    [
        {"every": 60, "jitter": 59.9},
        {"every": timedelta(days=7), "jitter": timedelta(days=2)},
        {"every": 0.1, "jitter": 0},
        {"cron": "0 0 * * *", "jitter": timedelta(days=1)},
        {"at": NOON, "jitter": 86_400},
    ],
    ids=str,
)
async def test_jitter_below_the_distance_of_ticks_or_of_a_day_is_taken(
    deploy: Deploy, options: dict[str, Any]
) -> None:
    often = task(name="often")(code("often"))
    async with deploy() as app:
        made = await app.schedule("often", often(), **options)
        given = options["jitter"]
        expected = given.total_seconds() if isinstance(given, timedelta) else float(given)
        assert (await made.info()).jitter == expected


@pytest.mark.parametrize("id", ["", "x" * 101, "two\nlines", 5])
async def test_an_id_that_cannot_be_is_refused(deploy: Deploy, id: Any) -> None:
    often = task(name="often")(code("often"))
    with pytest.raises(DefinitionError, match="id= takes"):
        schedule(every=60, id=id)(often)
    async with deploy() as app:
        with pytest.raises((TypeError, ValueError), match="id= takes"):
            await app.schedule(id, often(), every=60)


@pytest.mark.parametrize("option", ["id", "delay", "at", "after"])
def test_what_each_run_has_of_its_own_cannot_be_in_the_call(option: str) -> None:
    values: dict[str, Any] = {"id": "x", "delay": 5, "at": NOON, "after": ["x"]}
    call = task(name="often")(code("often"))().with_options(**{option: values[option]})
    with pytest.raises(DefinitionError, match=f"the call has {option}="):
        schedule(every=60)(call)


def test_a_call_that_expires_at_one_moment_is_refused() -> None:
    call = task(name="often")(code("often"))().with_options(expires=NOON)
    with pytest.raises(DefinitionError, match="write the seconds in which each must have been"):
        schedule(every=60)(call)


def test_a_function_that_needs_arguments_is_refused_with_the_remedy() -> None:
    async def report(region: str) -> None: ...

    report.__module__ = CODE
    made: Any = task(name="report")(report)
    with pytest.raises(DefinitionError, match=r"schedule a call of it instead: .*\(report\(…\)\)"):
        schedule(every=60)(made)


def test_what_is_no_task_or_workflow_is_refused_with_the_remedy() -> None:
    made: Any = step(code("a_step"))
    with pytest.raises(DefinitionError, match="a step runs in a workflow; make it a task"):
        schedule(every=60)(made)
    plain: Any = code("plain")
    with pytest.raises(DefinitionError, match="put @schedule above @task or @workflow"):
        schedule(every=60)(plain)


def test_two_schedules_of_one_task_need_ids() -> None:
    often = task(name="often")(code("often"))
    schedule(every=60)(often)
    with pytest.raises(DefinitionError, match="give this one another id="):
        schedule(every=30)(often)
    schedule(every=30, id="more-often")(often)


async def test_what_is_no_call_is_refused(deploy: Deploy) -> None:
    often: Any = task(name="often")(code("often"))
    async with deploy() as app:
        with pytest.raises(TypeError, match="call it, often"):
            await app.schedule("often", often, every=60)
        with pytest.raises(TypeError, match="takes the id of a schedule"):
            app.get_schedule(None)  # type: ignore[arg-type]  # which is refused

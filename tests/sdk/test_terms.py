"""When a run starts, in which order, whose it is, and that it is the only one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell import (
    DefinitionError,
    DependencyFailed,
    IdConflict,
    Queue,
    QueueFull,
    RequestRefused,
    Run,
    RunCancelled,
    RunExpired,
    RunNotFound,
    Stepwell,
    task,
    workflow,
)

pytestmark = pytest.mark.anyio
MakeApp = Callable[[], Stepwell]


@dataclass(frozen=True)
class Mail:
    tenant: str
    text: str = ""


def tenant_of(mail: Mail) -> str:
    return mail.tenant


done: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


@task(key=tenant_of, priority=5)
async def send(mail: Mail) -> str:
    done.append(mail.text)
    return mail.text


@task
async def note(text: str) -> str:
    done.append(text)
    if text == "bad":
        raise ValueError(text)
    return text


@task(key=lambda number: number)
async def badly_keyed(number: Any) -> None: ...


@task(expires=0.02, queue="nowhere")
async def never() -> None: ...


@workflow(key=lambda tenant: tenant, priority=7)
async def onboard(tenant: str) -> str:
    return tenant


@workflow
async def waits_for_what_expires() -> str:
    try:
        await never()
    except RunExpired as expired:
        return f"expired: {expired.run_id}"
    return "it ran"


@workflow
async def waits_for_what_cannot_start() -> str:
    try:
        await never().with_options(delay=3600)
    except ValueError as refused:
        return str(refused)
    return "it ran"


@workflow
async def asks_too_much(name: str) -> str:
    options: dict[str, Any] = {"unique": "k"} if name == "unique" else {"after": ["x"]}
    try:
        await note("child").with_options(**options)
    except RequestRefused as refused:
        return str(refused)
    return "it ran"


@workflow
async def with_keys() -> list[str]:
    first = await send(Mail("a", "1"))
    second = await send(Mail("b", "2")).with_options(key="mine", priority=1)
    return [first, second]


@workflow
async def with_a_bad_key() -> str:
    try:
        await badly_keyed(7)
    except TypeError as error:
        return str(error)
    return "it ran"


# --- keys and priorities ---


async def test_a_key_is_made_of_the_arguments(app: Stepwell) -> None:
    async with app:
        run = await app.enqueue(send(Mail("acme")))
        by_name = await app.enqueue(send(mail=Mail("acme")))
        chosen = await app.enqueue(send(Mail("acme")), key="other", priority=1)
        started = await app.start(onboard("zeta"))
        infos = [await one.info() for one in (run, by_name, chosen, started)]
    assert [info.key for info in infos] == ["acme", "acme", "other", "zeta"]
    assert [info.priority for info in infos] == [5, 5, 1, 7]


@pytest.mark.parametrize("value", [7, None, "", "a\0b", "x" * 256])
async def test_what_cannot_be_a_key_is_refused_at_the_call(app: Stepwell, value: object) -> None:
    async with app:
        with pytest.raises((TypeError, ValueError), match=r"key= of task 'badly_keyed' \(.*\)"):
            await app.enqueue(badly_keyed(value))
        assert await app.runs() == []


async def test_children_have_keys_and_priorities_too(app: Stepwell) -> None:
    async with app, app.worker():
        run = await app.start(with_keys())
        assert await run.result() == ["1", "2"]
        children = (await run.history()).children
        assert [(one.key, one.priority) for one in children] == [("a", 5), ("mine", 1)]
        refused = await app.start(with_a_bad_key())
        assert "key= of task 'badly_keyed'" in await refused.result()


async def test_what_a_child_cannot_ask_for_is_raised_where_it_is_awaited(app: Stepwell) -> None:
    async with app, app.worker():
        for name in ("unique", "after"):
            run = await app.start(asks_too_much(name))
            said = await run.result()
            assert said.startswith(f"{name}= is for runs of their own, and note(…) is a child")


def test_what_is_no_key_function_is_refused_at_decoration() -> None:
    name: Any = "tenant"
    with pytest.raises(DefinitionError, match="key= takes a function of the arguments"):
        task(key=name)(tenant_of)


# --- expiry ---


async def test_what_is_not_started_in_time_raises_run_expired(app: Stepwell) -> None:
    soon = datetime.now(UTC) + timedelta(milliseconds=20)
    async with app:
        runs: list[Run[Any]] = [
            await app.enqueue(never()),
            await app.enqueue(note("a"), expires=0.02),
            await app.enqueue(note("b").with_options(expires=soon)),
            await app.start(onboard("c"), expires=timedelta(milliseconds=20)),
        ]
        for run in runs:
            with pytest.raises(RunExpired, match=run.id) as expired:
                await run.result(timeout=10)
            assert expired.value.run_id == run.id
            assert await run.status() == "expired"
        later = await app.enqueue(never().with_options(expires=1000))
        assert await later.status() == "ready"


async def test_a_child_that_expires_is_an_error_where_it_is_awaited(make_app: MakeApp) -> None:
    async with make_app() as app, app.worker():
        run = await app.start(waits_for_what_expires(), id="parent")
        assert await run.result() == "expired: parent/0"
    async with make_app() as app:
        (event,) = (await app.get("parent").history()).events
        assert (event.outcome, str(event.error)) == (
            "failed",
            "run 'parent/0' expired: it was not started in time, and never runs",
        )


TOMORROW = datetime.now(UTC) + timedelta(days=1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"delay": 10, "expires": 5}, "with delay=10 and expires=5 could never start"),
        ({"delay": 5, "expires": 5}, "with delay=5 and expires=5 could never start"),
        ({"at": TOMORROW, "expires": 60}, f"with at={TOMORROW.isoformat()} and expires=60 could"),
        ({"at": TOMORROW, "expires": TOMORROW}, f"and expires={TOMORROW} could never start"),
        ({"delay": timedelta(days=2), "expires": TOMORROW}, "with delay=172800 and expires=2"),
    ],
    ids=["seconds", "the same seconds", "a moment", "the same moment", "seconds and a moment"],
)
async def test_what_would_expire_before_it_may_start_is_refused_at_the_call(
    app: Stepwell, options: dict[str, Any], said: str
) -> None:
    async with app:
        calls = [note("1").with_options(**options)]
        for begin in (
            app.enqueue(note("1"), **options),
            app.start(onboard("1"), **options),
            app.enqueue_many([note("2"), *calls]),
            app.enqueue_many(calls, id="many"),
            app.run(calls[0]),
        ):
            with pytest.raises(ValueError, match="as it would expire before") as refused:
                await begin
            assert said in str(refused.value)
        assert await app.runs() == []


async def test_the_expiry_of_a_decorator_counts_and_a_call_may_put_it_off(app: Stepwell) -> None:
    async with app:
        with pytest.raises(ValueError, match=r"with delay=3600 and its decorator's expires=0\.02"):
            await app.enqueue(never(), delay=3600)
        assert await app.runs() == []
        later = await app.enqueue(never().with_options(delay=3600), expires=7200)
        assert await later.status() == "scheduled"


async def test_a_child_that_could_never_start_is_an_error_where_it_is_awaited(
    app: Stepwell,
) -> None:
    async with app, app.worker():
        run = await app.start(waits_for_what_cannot_start())
        assert (await run.result()).startswith("task 'never' with delay=3600 and its decorator's")
        assert len(await app.runs()) == 1


# --- unique keys ---


async def test_the_run_that_has_the_key_is_returned_with_its_status(app: Stepwell) -> None:
    async with app:
        first = await app.enqueue(note("1"), unique="k")
        assert (first.created, first.found) == (True, None)
        again = await app.enqueue(note("2"), unique="k", id="never-made")
        assert (again.id, again.created, again.found) == (first.id, False, "ready")
        assert (await app.enqueue(note("3"), unique="other")).created
        async with app.worker() as worker:
            await worker.drain()
        assert done == ["1", "3"]
        assert (await app.enqueue(note("4"), unique="k")).created


async def test_an_id_that_is_there_is_returned_with_its_status(app: Stepwell) -> None:
    async with app, app.worker():
        run = await app.enqueue(note("1"), id="7")
        assert (run.created, run.found) == (True, None)
        await run.result()
        again = await app.enqueue(note("1"), id="7")
        assert (again.created, again.found) == (False, "completed")
        with pytest.raises(IdConflict):
            await app.enqueue(note("2"), id="7")
        assert app.get("7").found is None


async def test_the_last_call_of_a_debounce_is_executed_once(app: Stepwell) -> None:
    async with app:
        first = await app.enqueue(note("0"), unique="k", replace=True, delay=0.02)
        for number in range(1, 5):
            run = await app.enqueue(note(str(number)), unique="k", replace=True, delay=0.02)
            assert (run.id, run.created) == (first.id, False)
        async with app.worker():
            assert await first.result(timeout=10) == "4"
    assert done == ["4"]


async def test_what_was_replaced_is_found_with_the_status_that_it_has_with_that(
    app: Stepwell,
) -> None:
    async with app:
        first = await app.enqueue(note("1"), unique="k")
        for delay, status in ((3600.0, "scheduled"), (None, "ready")):
            again = await app.enqueue(note("2"), unique="k", replace=True, delay=delay)
            assert (again.id, again.created, again.found) == (first.id, False, status)
            assert await first.status() == status


async def test_the_first_call_of_a_throttle_is_executed_for_its_time(app: Stepwell) -> None:
    async with app, app.worker():
        first = await app.enqueue(note("0"), unique="k", unique_for=1000)
        await first.result()
        for number in range(1, 5):
            run = await app.enqueue(note(str(number)), unique="k", unique_for=1000)
            assert (run.id, run.created, run.found) == (first.id, False, "completed")
    assert done == ["0"]


async def test_a_workflow_run_may_be_the_only_one(app: Stepwell) -> None:
    async with app:
        first = await app.start(onboard("a"), unique="k", unique_while="pending")
        again = await app.start(onboard("b"), unique="k")
        assert (again.id, again.created) == (first.id, False)
        replaced = await app.start(onboard("c"), unique="k", replace=True)
        assert replaced.id == first.id
        async with app.worker():
            assert await first.result() == "c"


async def test_four_apps_that_start_one_id_get_one_run(make_app: MakeApp) -> None:
    apps = [make_app() for _ in range(4)]
    for app in apps:
        await app.__aenter__()
    try:
        starts = [app.enqueue(note("once"), id="k") for app in apps for _ in range(5)]
        runs = await asyncio.gather(*starts)
        assert [run.created for run in runs].count(True) == 1
        async with apps[0].worker():
            assert [await run.result() for run in runs] == ["once"] * 20
    finally:
        for app in apps:
            await app.__aexit__(None, None, None)
    assert done == ["once"]


# --- dependencies ---


async def test_a_run_starts_after_others(app: Stepwell) -> None:
    async with app:
        first = await app.enqueue(note("1"), delay=0.05)
        second = await app.enqueue(note("2"))
        last = await app.enqueue(note("3"), after=[first, second.id])
        assert (await last.info()).waiting == f"the end of {first.id}, {second.id}"
        async with app.worker():
            assert await last.result() == "3"
    assert (sorted(done), done[-1]) == (["1", "2", "3"], "3")


async def test_a_failed_one_fails_what_comes_after_it(app: Stepwell) -> None:
    async with app:
        bad = await app.enqueue(note("bad"))
        fails = await app.enqueue(note("2"), after=[bad])
        chained = await app.start(onboard("x"), after=[fails])
        starts = await app.enqueue(note("3"), after=[bad, fails], after_failed="start")
        async with app.worker():
            for run, cause in ((fails, bad), (chained, fails)):
                with pytest.raises(DependencyFailed, match=cause.id) as failed:
                    await run.result()
                assert failed.value.run_id == cause.id
            assert await starts.result() == "3"
        info = await fails.info()
        assert (info.status, info.error) == ("failed", f"DependencyFailed: {failed_text(bad.id)}")
    assert done == ["bad", "3"]


def failed_text(id: str) -> str:
    return str(DependencyFailed(id))


async def test_a_cancelled_or_expired_one_fails_it_too(app: Stepwell) -> None:
    async with app:
        expires = await app.enqueue(note("1"), expires=0.02)
        cancelled = await app.enqueue(note("2"), delay=1000)
        first = await app.enqueue(note("3"), after=[expires])
        second = await app.enqueue(note("4"), after=[cancelled])
        await cancelled.cancel()
        for run in (first, second):
            with pytest.raises(DependencyFailed):
                await run.result(timeout=10)
        with pytest.raises(RunCancelled):
            await cancelled.result()


async def test_what_is_not_there_cannot_be_waited_for(app: Stepwell) -> None:
    async with app:
        with pytest.raises(RunNotFound, match="'nobody'"):
            await app.enqueue(note("1"), after=["nobody"])
        assert await app.runs() == []


# --- full queues ---

narrow = Queue("narrow", max_length=2)


@task(queue=narrow)
async def squeeze(number: int) -> int:
    done.append(str(number))
    return number


async def test_a_full_queue_raises(app: Stepwell) -> None:
    async with app:
        for number in range(2):
            await app.enqueue(squeeze(number))
        with pytest.raises(QueueFull, match="'narrow' is full: 2 runs are ready") as full:
            await app.enqueue(squeeze(2))
        assert (full.value.queue, full.value.limit) == ("narrow", 2)
        with pytest.raises(QueueFull):
            await app.enqueue_many([squeeze(3)])
        with pytest.raises(QueueFull):
            await app.enqueue(squeeze(4), when_full="wait", wait_timeout=0.05)
        assert len(await app.runs()) == 2


async def test_a_full_queue_refuses_what_would_be_ready_later_too(app: Stepwell) -> None:
    async with app:
        first = await app.enqueue(squeeze(0), delay=1000)
        second, third = [await app.enqueue(squeeze(number)) for number in range(1, 3)]
        with pytest.raises(QueueFull):  # what waits is not counted, and is refused all the same
            await app.enqueue(squeeze(3), delay=1000)
        with pytest.raises(QueueFull):
            await app.enqueue(squeeze(4), after=[first])
        assert {run.id for run in await app.runs()} == {first.id, second.id, third.id}


async def test_who_waits_for_room_gets_in(app: Stepwell) -> None:
    async with app:
        for number in range(2):
            await app.enqueue(squeeze(number))
        waiting = asyncio.gather(
            app.enqueue(squeeze(2), when_full="wait"),
            app.enqueue_many([squeeze(3)], when_full="wait", wait_timeout=60),
        )
        async with app.worker(queues=["narrow"]):
            one, (other,) = await waiting
            assert (await one.result(), await other.result()) == (2, 3)


# --- what does not fit together ---


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"replace": True}, "replace= says more about unique="),
        ({"unique_for": 5}, "unique_for= says more about unique="),
        ({"unique_while": "pending"}, "unique_while= says more about unique="),
        ({"after_failed": "start"}, "after_failed= says more about after="),
        ({"unique": "k", "unique_for": 5, "unique_while": "pending"}, "give one of them"),
        ({"unique": "k", "unique_for": 5, "replace": True}, "the last one does"),
        ({"unique": "k", "unique_while": "ever"}, "'unended' or 'pending'"),
        ({"unique": 7}, "unique= takes a string"),
        ({"unique": ""}, "unique= takes 1 to 255 printable characters"),
        ({"key": "a\nb"}, "key= takes 1 to 255 printable characters"),
        ({"unique": "k", "unique_for": 0}, "unique_for= must be greater than 0 seconds, not 0"),
        ({"unique": "k", "replace": "yes"}, "replace= takes True or False"),
        ({"expires": 0}, "expires= must be greater than 0"),
        ({"expires": datetime(2030, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - the mistake
        ({"after": "run-1"}, "after= takes a list of handles or ids"),
        ({"after": [7]}, "after= takes handles or ids of runs, not 7"),
        ({"after": ["x"], "after_failed": "skip"}, "'fail' or 'start'"),
        ({"unknown": 1}, "unexpected keyword argument 'unknown': a run is started with id, queue"),
        ({"when_full": "drop"}, "when_full= must be 'raise' or 'wait'"),
        ({"wait_timeout": 5}, "wait_timeout= says more about when_full="),
    ],
    ids=str,
)
async def test_what_does_not_fit_is_refused_at_the_call(
    app: Stepwell, options: dict[str, Any], said: str
) -> None:
    async with app:
        for begin in (app.enqueue(note("1"), **options), app.start(onboard("1"), **options)):
            with pytest.raises((TypeError, ValueError)) as refused:
                await begin
            assert said in str(refused.value)
            assert "with_options()" not in str(refused.value)  # which nobody has called
            assert "None means" not in str(refused.value)  # that is for limits of decorators
        assert await app.runs() == []

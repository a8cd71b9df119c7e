"""Queues that are declared, set, paused, emptied and looked at."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell import (
    DefinitionError,
    Queue,
    QueueInfo,
    Rate,
    Retention,
    RunCancelled,
    RunNotFound,
    Stepwell,
    sleep,
    step,
    task,
    workflow,
)
from stepwell_queue.clock import utc

pytestmark = pytest.mark.anyio


def line_here() -> int:
    return sys._getframe(1).f_lineno


MakeApp = Callable[[], Stepwell]

mail, PLACE = Queue("mail", limit=2, rate=Rate(1000, per=1.0)), line_here()
begun: dict[str, asyncio.Event] = {}
let_end: dict[str, asyncio.Event] = {}


@task(queue=mail)
async def send(number: int) -> int:
    return number


@task(queue="plain")
async def note(text: str) -> str:
    return text


@task(queue="slow")
async def hold(name: str) -> str:
    begun[name].set()
    await let_end[name].wait()
    return name


@task(queue="plain")
async def fail() -> None:
    raise ValueError("no")


@step(queue="plain")
async def shout(text: str) -> str:
    return text.upper()


@workflow
async def nap() -> str:
    await sleep(0.05)
    return await shout("rested")


elsewhere = Queue("elsewhere", limit=7)


@workflow
async def detour() -> list[str]:
    return [
        await shout("chosen").with_options(queue=elsewhere),
        await note("chosen").with_options(queue=elsewhere),
    ]


@workflow(queue="plain")
async def parent() -> str:
    return await note("child")


def holding(*names: str) -> None:
    for name in names:
        begun[name], let_end[name] = asyncio.Event(), asyncio.Event()


# --- what may be declared ---


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"limit": 0}, "limit= must be from 1"),
        ({"limit": True}, "limit= takes a whole number"),
        ({"key_limit": -1}, "key_limit= must be from 1"),
        ({"max_length": 0.5}, "max_length= takes a whole number"),
        ({"rate": 5}, r"takes Rate\(count, per=seconds\), not 5"),
        ({"key_rate": "5/s"}, r"takes Rate\(count, per=seconds\)"),
        ({"ageing": 0}, "over 0 seconds"),
        ({"ageing": float("nan")}, "finite"),
        ({"retention": 60}, r"takes Retention\(age=…, count=…\), not 60"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_at_once(
    settings: dict[str, Any], says: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        Queue("mail", **settings)


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256, None, 7])
def test_a_name_that_cannot_be_one_is_refused(name: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="name="):
        Queue(name)


@pytest.mark.parametrize(
    "settings",
    [{"count": 0}, {"count": 1, "per": 0}, {"count": 1, "burst": 0}, {"count": 1, "per": "1m"}],
)
def test_a_rate_that_makes_no_sense_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        Rate(**settings)


def test_spans_may_be_timedeltas_and_a_burst_is_as_many_as_the_rate() -> None:
    assert Rate(100, per=timedelta(minutes=1)) == Rate(100, 60.0, burst=100)
    assert Queue("q", ageing=timedelta(minutes=1)) == Queue("q", ageing=60)


def test_a_queue_cannot_be_changed_and_is_the_same_wherever_it_is_declared() -> None:
    again = Queue("mail", limit=2, rate=Rate(1000, per=1.0))
    assert again == mail
    assert hash(again) == hash(mail)
    with pytest.raises(AttributeError):
        mail.limit = 3  # type: ignore[misc]  # it is frozen, which is what is tested


def test_a_decorator_refuses_what_is_no_queue() -> None:
    with pytest.raises(DefinitionError, match="queue= takes a name or a Queue, not 5"):
        task(queue=5, name="five")(lambda: None)  # type: ignore[call-overload]  # refused, which is tested


# --- declaring ---


async def settings_of(app: Stepwell, name: str) -> Queue:
    return (await app.queue(name).info()).settings


async def test_a_worker_declares_the_queues_that_it_serves(app: Stepwell) -> None:
    async with app:
        async with app.worker(queues=["default", elsewhere]):
            assert await settings_of(app, "elsewhere") == elsewhere
            assert await settings_of(app, "mail") == Queue("mail")
        async with app.worker(queues=[mail]):
            assert await settings_of(app, "mail") == mail


async def test_enqueueing_declares_the_queue(app: Stepwell) -> None:
    async with app:
        await app.enqueue(send(1))
        assert await settings_of(app, "mail") == mail
        chosen = Queue("chosen", key_limit=1)
        run = await app.enqueue(send(2), queue=chosen)
        assert (await run.info()).queue == "chosen"
        assert await settings_of(app, "chosen") == chosen
        other = Queue("other", ageing=5.0)
        await app.enqueue_many([send(3).with_options(queue=other)])
        assert await settings_of(app, "other") == other


async def test_a_child_declares_the_queue_that_is_chosen_for_it(app: Stepwell) -> None:
    async with app, app.worker(queues=["default", "elsewhere"]):
        run = await app.start(detour())
        assert await run.result() == ["CHOSEN", "chosen"]
        assert await settings_of(app, "elsewhere") == elsewhere


async def test_what_an_operator_changed_stays_until_the_declaration_changes(
    make_app: MakeApp,
) -> None:
    async with make_app() as app:
        await app.enqueue(send(1))
        await app.queue(mail).configure(limit=50)
    async with make_app() as app:
        await app.enqueue(send(2))
        async with app.worker(queues=["mail"]):
            pass
        assert (await settings_of(app, "mail")).limit == 50
        changed = Queue("mail", limit=3)
        await app.enqueue(send(3), queue=changed)
        assert await settings_of(app, "mail") == changed


async def test_two_declarations_that_differ_are_refused_when_a_worker_starts(
    app: Stepwell,
) -> None:
    twin, twin_line = Queue("mail", limit=3), line_here()
    async with app:
        with pytest.raises(DefinitionError) as refused:
            async with app.worker(queues=[twin]):
                pass
    said = str(refused.value)
    assert "queue 'mail' is declared in two ways" in said
    lines = [f"{__file__}:{line}" for line in (PLACE, twin_line)]
    assert all(line in said for line in lines)


async def test_equal_declarations_in_two_places_are_one(app: Stepwell) -> None:
    async with app, app.worker(queues=[Queue("mail", limit=2, rate=Rate(1000, per=1.0))]):
        run = await app.enqueue(send(5))
        assert await run.result() == 5


# --- pausing ---


async def test_a_paused_queue_begins_nothing_and_loses_nothing(make_app: MakeApp) -> None:
    async with make_app() as app:
        await app.queue("plain").pause(reason="the printer is out")
        plain = await app.enqueue(note("ready"))
        delayed = await app.enqueue(note("delayed"), delay=0.05)
        async with app.worker() as worker:
            napping = await app.start(nap())  # its step comes due in the paused queue
            await worker.drain()
    # The pause outlives the processes and their workers.
    async with make_app() as app, app.worker(queues=["default", "plain"]) as worker:
        info = await app.queue("plain").info()
        assert (info.paused, info.paused_until, info.pause_reason) == (
            True,
            None,
            "the printer is out",
        )
        async with asyncio.timeout(10):
            while (await app.queue("plain").info()).ready < 3:  # all of them have come due
                await worker.drain()
        runs = [await app.info(id) for id in (plain.id, delayed.id)]
        assert [run.started_at for run in runs] == [None, None]
        assert not (await app.info(napping.id)).ended
        await app.queue("plain").resume()
        assert await app.get(plain.id).result() == "ready"
        assert await app.get(delayed.id).result() == "delayed"
        assert await app.get(napping.id, nap).result() == "RESTED"
        assert not (await app.queue("plain").info()).paused


async def test_a_pause_with_an_end_is_over_by_itself(app: Stepwell) -> None:
    async with app, app.worker(queues=["plain"]) as worker:
        until = datetime.now(UTC) + timedelta(seconds=0.3)
        await app.queue("plain").pause(until)
        info = await app.queue("plain").info()
        assert info.paused_until == until
        run = await app.enqueue(note("later"))
        await worker.drain()
        assert await run.status() == "ready"
        assert await run.result(timeout=10) == "later"
        assert datetime.now(UTC) >= until
        assert not (await app.queue("plain").info()).paused


async def test_a_pause_needs_a_moment_with_a_zone(app: Stepwell) -> None:
    async with app:
        with pytest.raises(ValueError, match="time zone"):
            await app.queue("plain").pause(datetime(2030, 1, 1))  # noqa: DTZ001 - refused
        assert not (await app.queue("plain").info()).paused


async def test_a_pause_until_a_moment_that_has_passed_is_refused_and_changes_nothing(
    app: Stepwell,
) -> None:
    async with app:
        queue = app.queue("plain")
        past = datetime.now(UTC) - timedelta(seconds=1)
        with pytest.raises(ValueError, match=r"until=.* has passed, so queue 'plain' would not be"):
            await queue.pause(past)
        assert await app.queues() == []
        await queue.pause(reason="by hand")
        with pytest.raises(ValueError, match="has passed"):
            await queue.pause(past)
        info = await queue.info()
        assert (info.paused, info.paused_until, info.pause_reason) == (True, None, "by hand")


async def test_draining_waits_for_what_is_running_and_begins_nothing_more(app: Stepwell) -> None:
    holding("a", "b")
    async with app, app.worker(queues=["slow"]):
        first = await app.enqueue(hold("a"))
        await begun["a"].wait()
        await app.queue("slow").pause()  # so that it is known when
        second = await app.enqueue(hold("b"))
        draining = asyncio.create_task(app.queue("slow").drain(reason="a new release"))
        await app.queue("slow").info()
        assert not draining.done()
        let_end["a"].set()
        async with asyncio.timeout(10):
            await draining
        assert await first.status() == "completed"
        assert await second.status() == "ready"
        assert (await app.queue("slow").info()).pause_reason == "a new release"


async def test_draining_gives_up_and_leaves_the_queue_paused(app: Stepwell) -> None:
    holding("a")
    async with app, app.worker(queues=["slow"]):
        run = await app.enqueue(hold("a"))
        await begun["a"].wait()
        with pytest.raises(TimeoutError, match="queue 'slow' is paused, but still has runs"):
            await app.queue("slow").drain(timeout=0.05)
        assert (await app.queue("slow").info()).paused
        let_end["a"].set()
        assert await run.result() == "a"
        await app.queue("slow").drain(timeout=10)


async def test_draining_an_idle_queue_is_over_at_once(app: Stepwell) -> None:
    async with app:
        await app.queue("unused").drain(timeout=10)
        assert (await app.queue("unused").info()).paused


# --- purging ---


async def test_purging_cancels_what_nobody_has_begun(app: Stepwell) -> None:
    holding("a")
    async with app:
        async with app.worker(queues=["slow"], concurrency=1):
            running = await app.enqueue(hold("a"))
            await begun["a"].wait()
            waiting = [await app.enqueue(hold("a")) for _ in range(3)]
            later = await app.enqueue(hold("a"), delay=3600.0)
            other = await app.enqueue(note("elsewhere"))
            assert await app.queue("slow").purge(reason="a mistake", confirm=True) == 4
            assert await app.queue("slow").purge(confirm=True) == 0
            let_end["a"].set()
            assert await running.result() == "a"
        for run in (*waiting, later):
            with pytest.raises(RunCancelled, match="a mistake"):
                await run.result()
        assert await other.status() == "ready"


@pytest.mark.parametrize("options", [{}, {"confirm": False}, {"confirm": 1}], ids=str)
async def test_purging_without_confirmation_is_refused_and_changes_nothing(
    app: Stepwell, options: dict[str, Any]
) -> None:
    async with app:
        run = await app.enqueue(note("stays"))
        with pytest.raises(ValueError, match="all runs of queue 'plain' .*: give confirm=True"):
            await app.queue("plain").purge(**options)
        assert await run.status() == "ready"


async def test_purging_takes_more_than_one_pass_if_it_must(app: Stepwell) -> None:
    async with app:
        await app.enqueue_many(note(str(number)) for number in range(2500))
        assert await app.queue("plain").purge(confirm=True) == 2500
        assert (await app.queue("plain").info()).ready == 0


async def test_purging_leaves_children_to_their_parents(app: Stepwell) -> None:
    async with app:
        async with app.worker(queues=["plain"]) as worker:
            run = await app.start(parent())
            await app.queue("plain").pause()
            await worker.drain()
        before = (await app.queue("plain").info()).ready
        await app.queue("plain").purge(confirm=True)
        if before:
            await app.queue("plain").resume()
            async with app.worker(queues=["plain"]):
                assert await run.result() == "child"


# --- changing at run time ---


async def test_only_what_is_named_is_changed(app: Stepwell) -> None:
    async with app:
        queue = app.queue("mail")
        await queue.configure(limit=5, rate=Rate(10, per=60.0), retention=Retention(age=60.0))
        await queue.configure(limit=None, ageing=timedelta(minutes=1))
        expected = Queue("mail", rate=Rate(10, 60.0), ageing=60.0, retention=Retention(age=60.0))
        assert (await queue.info()).settings == expected
        await queue.configure(retention=None, rate=None)
        assert (await queue.info()).settings == Queue("mail", ageing=60.0)


async def test_a_change_that_makes_no_sense_is_refused_and_changes_nothing(app: Stepwell) -> None:
    async with app:
        queue = app.queue("mail")
        await queue.configure(limit=5)
        with pytest.raises(ValueError, match="limit= must be from 1"):
            await queue.configure(limit=0, max_length=3)
        with pytest.raises(TypeError, match="has no setting 'limt'; there are: limit, key_limit"):
            await queue.configure(limt=3)  # type: ignore[call-arg]  # refused, which is tested
        with pytest.raises(TypeError, match="needs a setting to change"):
            await queue.configure()
        assert (await queue.info()).settings == Queue("mail", limit=5)


async def test_a_new_limit_holds_at_once(app: Stepwell) -> None:
    holding("a", "b")
    async with app, app.worker(queues=["slow"]) as worker:
        await app.queue("slow").configure(limit=1)
        runs = [await app.enqueue(hold(name)) for name in ("a", "b")]
        await begun["a"].wait()
        assert not begun["b"].is_set()
        await app.queue("slow").configure(limit=2)
        async with asyncio.timeout(10):
            await begun["b"].wait()
        let_end["a"].set()
        let_end["b"].set()
        assert [await run.result() for run in runs] == ["a", "b"]
        await worker.drain()


# --- looking ---


async def test_a_queue_is_shown_as_it_stands(app: Stepwell) -> None:
    holding("a")
    async with app, app.worker(queues=["plain", "slow"]):
        await app.enqueue(hold("a"))
        await begun["a"].wait()
        await (await app.enqueue(note("x"))).result()
        with pytest.raises(ValueError, match="no"):
            await (await app.enqueue(fail())).result()
        await app.enqueue(send(1))
        await app.enqueue(note("later"), delay=3600.0)
        found = {one.name: one for one in await app.queues()}
        slow, plain, mails = found["slow"], found["plain"], found["mail"]
        assert (slow.running, slow.counts["running"], slow.oldest_age) == (1, 1, None)
        assert mails.oldest_age is not None
        assert 0 <= mails.oldest_age < 60
        assert (mails.ready, mails.settings) == (1, mail)
        assert plain.counts["completed"] == 1
        assert plain.counts["failed"] == plain.dead_letters == 1
        assert plain.counts["scheduled"] == 1
        assert [one.window for one in plain.throughput] == [60.0, 300.0, 3600.0]
        assert [(one.ended, one.failed) for one in plain.throughput] == [
            (2.0, 1.0),
            (0.4, 0.2),
            (2 / 60, 1 / 60),
        ]
        assert await app.queue("plain").info() == plain
        let_end["a"].set()


async def test_a_queue_that_nobody_has_used_is_empty(app: Stepwell) -> None:
    async with app:
        info = await app.queue("nothing").info()
        assert isinstance(info, QueueInfo)
        assert (info.ready, info.running, info.oldest_age) == (0, 0, None)
        assert set(info.counts.values()) == {0}
        assert info.settings == Queue("nothing")
        assert [one.name for one in await app.queues()] == []


async def test_runs_are_found_by_their_times(app: Stepwell) -> None:
    async with app, app.worker(queues=["plain"]):
        first = await app.enqueue(note("first"))
        await first.result()
        between = utc(app.engine.store.clock.now())
        second = await app.enqueue(note("second"))
        await second.result()
        third = await app.enqueue(note("third"), delay=3600.0)

        async def ids(**filters: Any) -> list[str]:
            return [run.id for run in await app.runs(**filters)]

        assert await ids(created_before=between) == [first.id]
        assert await ids(created_after=between) == [third.id, second.id]
        assert await ids(ended_before=between) == [first.id]
        assert await ids(ended_after=between) == [second.id]
        assert await ids(created_after=between, queue=Queue("plain"), limit=1) == [third.id]
        rest = await ids(created_after=between, limit=1, after=third.id)
        assert rest == [second.id]
        with pytest.raises(ValueError, match="time zone"):
            await ids(created_after=datetime(2030, 1, 1))  # noqa: DTZ001 - refused


async def test_runs_are_found_by_their_key(app: Stepwell) -> None:
    async with app:
        keyed = [await app.enqueue(note(text), key="tenant") for text in ("a", "b")]
        await app.enqueue(note("c"), key="other")
        plain = await app.enqueue(note("d"))
        assert [run.id for run in await app.runs(key="tenant")] == [keyed[1].id, keyed[0].id]
        page = await app.runs(key="tenant", limit=1, after=keyed[1].id)
        assert [(run.id, run.key) for run in page] == [(keyed[0].id, "tenant")]
        assert (await plain.info()).key is None


# --- retention ---


async def test_the_result_of_a_deleted_run_is_not_found(app: Stepwell) -> None:
    async with app, app.worker(queues=["plain"]):
        run = await app.enqueue(note("short-lived"))
        await run.result()
        await app.enqueue(note("newest"), delay=3600.0)
        assert await app.prune(keep=0, queue="elsewhere") == 0
        assert await app.prune(keep=0, queue="plain") == 1
        with pytest.raises(RunNotFound, match=run.id):
            await run.result()

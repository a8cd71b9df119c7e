"""Unique keys: while a run has one, no other gets it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stepwell_queue import (
    Ask,
    CancelRun,
    Finish,
    Hold,
    IdConflict,
    Identity,
    Kind,
    NewRun,
    Start,
    Started,
    StartMany,
    Status,
    Terms,
)
from tests.store.fleet import peers
from tests.store.kit import TASK, WORKFLOW, Bench, open_bench

pytestmark = pytest.mark.anyio


def unique(
    bench: Bench, id: str, key: str = "k", identity: Identity = TASK, **fields: Any
) -> NewRun:
    terms = {name: fields.pop(name) for name in ("hold", "held_until", "replace") if name in fields}
    return bench.new(id, identity, terms=Terms(unique=key, **terms), **fields)


async def start(bench: Bench, id: str, **fields: Any) -> Started:
    return await bench.store.do(Start(unique(bench, id, **fields)))


async def end(bench: Bench, run: int, fence: int = 1) -> None:
    verb = Finish(run, fence, Status.COMPLETED, b"", bench.clock.now(), clean=True)
    await bench.store.do(verb)


async def args_of(bench: Bench, id: str) -> bytes:
    info = await bench.store.info(id)
    assert info is not None
    return info.args


async def test_while_a_run_has_the_key_it_is_answered(bench: Bench) -> None:
    first = await start(bench, "first")
    again = await start(bench, "second")
    assert (again.id, again.run, again.created) == ("first", first.run, False)
    assert again.status == Status.READY
    session = await bench.session()
    await bench.claim_one(session)
    running = await start(bench, "third")
    assert (running.id, running.created, running.status) == ("first", False, Status.RUNNING)
    assert await bench.store.info("second") is None


async def test_the_key_is_free_once_its_run_has_ended(bench: Bench) -> None:
    first = await start(bench, "first")
    await bench.claim_one(await bench.session())
    await end(bench, first.run)
    assert (await start(bench, "second")).created


async def test_of_concurrent_starts_one_makes_the_run(bench: Bench) -> None:
    answers = await asyncio.gather(*(start(bench, f"r{number}") for number in range(20)))
    assert [one.created for one in answers].count(True) == 1
    assert len({one.id for one in answers}) == 1


async def test_a_key_is_of_one_kind_and_name_across_versions_and_queues(bench: Bench) -> None:
    await start(bench, "first")
    assert not (await start(bench, "v2", identity=Identity(Kind.TASK, "mail", 2))).created
    assert not (await start(bench, "elsewhere", queue="other")).created
    assert (await start(bench, "workflow", identity=WORKFLOW)).created
    assert (await start(bench, "named", identity=Identity(Kind.TASK, "post", 1))).created
    assert (await start(bench, "key", key="other")).created


async def test_a_key_of_what_is_pending_is_free_at_the_first_claim(bench: Bench) -> None:
    await start(bench, "first", hold=Hold.PENDING)
    assert not (await start(bench, "second", hold=Hold.PENDING)).created
    session = await bench.session()
    await bench.claim_one(session)
    assert (await start(bench, "third", hold=Hold.PENDING)).created


async def test_a_key_for_a_time_is_taken_for_that_time_whatever_becomes_of_its_run(
    timed: Bench,
) -> None:
    until = timed.clock.now() + 60
    first = await start(timed, "first", hold=Hold.UNTIL, held_until=until)
    await timed.claim_one(await timed.session())
    await end(timed, first.run)
    clock: Any = timed.clock
    clock.move(59)
    throttled = await start(timed, "second", hold=Hold.UNTIL, held_until=until + 60)
    assert (throttled.id, throttled.created) == ("first", False)
    assert throttled.status == Status.COMPLETED
    clock.move(2)
    assert (await start(timed, "third", hold=Hold.UNTIL, held_until=until + 60)).created


async def test_the_same_id_is_looked_for_first(bench: Bench) -> None:
    verb = Start(unique(bench, "first"))
    started = await bench.store.do(verb)
    assert await bench.store.do(verb) == started
    with pytest.raises(IdConflict):
        await start(bench, "first", digest=b"sig." + b"other words.")


async def test_a_run_that_has_not_begun_gets_what_replaces_it(timed: Bench) -> None:
    now = timed.clock.now()
    await start(timed, "first", args=b"old", due=now + 5)
    for number in range(1, 4):
        pushed = await start(
            timed,
            f"again-{number}",
            replace=True,
            args=b"new %d" % number,
            priority=number,
            due=now + 10 * number,
            deadline=now + 100 + number,
            options=b"options",
            digest=b"sig." + b"new words...",
        )
        assert (pushed.id, pushed.created, pushed.status) == ("first", False, Status.SCHEDULED)
    info = await timed.store.info("first")
    assert info is not None
    assert (info.args, info.priority, info.due) == (b"new 3", 3, now + 30)
    assert (info.deadline, info.created) == (now + 103, now)
    clock: Any = timed.clock
    clock.move(29)
    session = await timed.session()
    assert (await timed.claim(session)).runs == []
    clock.move(2)
    claimed = await timed.claim_one(session)
    assert (claimed.args, claimed.options) == (b"new 3", b"options")


@pytest.mark.parametrize(
    ("before", "after"),
    [(bytes(5000), b"small"), (b"small", bytes(5000)), (bytes(5000), b"\1" * 6000)],
    ids=["smaller", "larger", "large"],
)
async def test_what_replaces_may_be_of_any_size(bench: Bench, before: bytes, after: bytes) -> None:
    await start(bench, "first", args=before)
    await start(bench, "second", args=after, replace=True)
    assert await args_of(bench, "first") == after
    assert (await bench.claim_one(await bench.session())).args == after


async def test_what_replaces_may_be_of_another_version_queue_and_key(bench: Bench) -> None:
    await start(bench, "first")
    other = Identity(Kind.TASK, "mail", 2)
    await start(bench, "second", identity=other, queue="other", replace=True)
    session = await bench.session(TASK, other, queues=["default", "other"])
    claimed = await bench.claim_one(session)
    assert (claimed.id, claimed.version, claimed.queue) == ("first", 2, "other")


async def test_what_would_replace_a_running_one_starts_once_that_has_ended(bench: Bench) -> None:
    first = await start(bench, "first", args=b"1")
    session = await bench.session()
    await bench.claim_one(session)
    second = await start(bench, "second", args=b"2", replace=True)
    assert (second.id, second.created, second.status) == ("second", True, Status.SCHEDULED)
    third = await start(bench, "third", args=b"3", replace=True)
    assert (third.id, third.created) == ("second", False)
    assert (await start(bench, "fourth")).id == "second"
    assert (await bench.claim(session)).runs == []
    await bench.store.do(Finish(first.run, 1, Status.FAILED, b"", bench.clock.now(), clean=True))
    claimed = await bench.claim_one(session)
    assert (claimed.id, claimed.args) == ("second", b"3")


async def test_no_two_runs_with_a_key_are_executed_at_once(bench: Bench) -> None:
    """The one that was to come after the running one is gone before it began."""
    first = await start(bench, "first")
    session = await bench.session()
    await bench.claim_one(session)
    await start(bench, "second", replace=True)
    await bench.store.do(CancelRun("second", "c1", b"", bench.clock.now()))
    third = await start(bench, "third", replace=True)
    assert (third.id, third.status) == ("third", Status.SCHEDULED)
    assert (await start(bench, "fourth")).id == "third"
    await end(bench, first.run)
    assert (await bench.claim_one(session)).id == "third"


async def test_a_crash_does_not_lose_the_key(bench: Bench) -> None:
    """The key belongs to the run: it is taken while the run is recovered, and free after it."""
    await start(bench, "first")
    session = await bench.session()
    await bench.claim_one(session)
    await session.close()
    assert (await start(bench, "second")).id == "first"
    again = await bench.claim_one(await bench.session())
    assert (again.id, again.fence) == ("first", 2)
    await end(bench, again.run, 2)
    assert (await start(bench, "third")).created


async def test_each_of_many_is_told_whose_run_it_got(bench: Bench) -> None:
    await start(bench, "first", key="a")
    rows = [unique(bench, f"m{number}", key) for number, key in enumerate("abba")]
    answers = await bench.store.do(StartMany([*rows, bench.new("plain")]))
    assert [(one.id, one.created) for one in answers] == [
        ("first", False),
        ("m1", True),
        ("m1", False),
        ("first", False),
        ("plain", True),
    ]


async def test_what_replaced_a_run_is_in_its_history_and_does_not_grow_without_end(
    bench: Bench,
) -> None:
    await start(bench, "first")
    verbs = [Start(unique(bench, f"r{number}", replace=True)) for number in range(120)]
    for verb in verbs:
        await bench.store.do(verb)
    history = await bench.store.history("first")
    assert history is not None
    assert {row.action for row in history.audit} == {"replace"}
    assert len(history.audit) == 100


async def test_a_replacement_said_again_after_its_run_began_makes_no_second_run(
    bench: Bench,
) -> None:
    first = await start(bench, "first")
    verb = Start(unique(bench, "second", replace=True, args=b"new"))
    await bench.store.do(verb)
    later = Start(unique(bench, "third", replace=True, args=b"newer"))
    await bench.store.do(later)
    await bench.store.do(verb)
    assert await args_of(bench, "first") == b"newer"
    await bench.claim_one(await bench.session())
    again = await bench.store.do(verb)
    assert (again.id, again.created, again.status) == ("first", False, Status.RUNNING)
    await end(bench, first.run)
    again = await bench.store.do(verb)
    assert (again.id, again.created, again.status) == ("first", False, Status.COMPLETED)


async def test_a_run_that_is_taken_up_again_has_its_key_again(bench: Bench) -> None:
    fields: dict[str, Any] = {"identity": WORKFLOW}
    session = await bench.session()
    for id in ("first", "second"):
        started = await start(bench, id, **fields)
        assert started.created
        await bench.claim_one(session)
        now = bench.clock.now()
        await bench.store.do(Finish(started.run, 1, Status.FAILED, b"", now, clean=True))
    await bench.store.do(Ask("first", "u1", "retry", "me", "", bench.clock.now()))
    assert (await start(bench, "third", **fields)).id == "first"


async def test_a_born_claimed_run_never_has_terms(bench: Bench) -> None:
    session = await bench.session()
    started = await bench.store.do(Start(unique(bench, "first"), session.worker))
    assert (started.created, started.claimed) == (True, None)
    assert (await bench.claim_one(session)).id == "first"


async def test_a_killed_worker_neither_loses_nor_freezes_the_key(path: Path) -> None:
    async with peers(path, 1, lease=600) as (dying,), asyncio.timeout(60):
        bench = await open_bench(path, lease=600)
        await start(bench, "first")
        await dying("session")
        ((run, *_),) = await dying("claim")
        assert (await start(bench, "second")).status == Status.RUNNING
        await dying.kill()
        session = await bench.session()
        recovered = await bench.claim_one(session)
        assert recovered.run == run
        assert (await start(bench, "third")).id == "first"
        await end(bench, run, recovered.fence)
        assert (await start(bench, "fourth")).created
        await bench.store.close()

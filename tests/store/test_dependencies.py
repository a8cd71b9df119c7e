"""Runs that wait for the ends of others."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from typing import Any

import pytest

from stepwell_queue import (
    Ask,
    CancelRun,
    Finish,
    RequestRefused,
    RunNotFound,
    Start,
    Started,
    StartMany,
    Status,
    Terms,
)
from stepwell_queue.contract import PurgeQueue
from tests.store.kit import TASK, Bench

pytestmark = pytest.mark.anyio


def after(*ids: str, anyhow: bool = False, **more: Any) -> Terms:
    failures = [] if anyhow else [f"{id} ended badly".encode() for id in ids]
    return Terms(after=ids, anyhow=anyhow, failures=failures, **more)


async def start(bench: Bench, id: str, *ids: str, **fields: Any) -> Started:
    anyhow = fields.pop("anyhow", False)
    return await bench.start(id, terms=after(*ids, anyhow=anyhow) if ids else None, **fields)


async def finish(bench: Bench, id: str, status: int = Status.COMPLETED, **fields: Any) -> None:
    run = await bench.claim_one(await bench.session(), limit=1)
    assert run.id == id
    await bench.store.do(
        Finish(run.run, run.fence, status, b"value", bench.clock.now(), clean=True, **fields)
    )


async def statuses(bench: Bench, *ids: str) -> list[str]:
    return [await bench.status(id) for id in ids]


async def value_of(bench: Bench, id: str) -> bytes:
    info = await bench.store.info(id)
    assert info is not None
    return info.value


async def test_a_run_starts_once_all_it_waits_for_have_ended(bench: Bench) -> None:
    for id in ("a", "b"):
        await start(bench, id)
    started = await start(bench, "c", "a", "b")
    assert started.status == Status.SCHEDULED
    info = await bench.store.info("c")
    assert info is not None
    assert (info.waiting, info.due) == ("the end of a, b", None)
    await finish(bench, "a")
    assert await bench.status("c") == "scheduled"
    await finish(bench, "b")
    assert await bench.status("c") == "ready"
    await finish(bench, "c")


@pytest.mark.parametrize("large", [False, True])
async def test_whoever_waits_is_told_however_the_end_is_written(bench: Bench, large: bool) -> None:
    session = await bench.session()
    for number in range(40):
        await start(bench, f"r{number}")
        await start(bench, f"after-{number}", f"r{number}", queue="other")
    runs = (await bench.claim(session, 40)).runs
    value, now = bytes(5000 if large else 5), bench.clock.now()
    ends = [Finish(run.run, 1, Status.COMPLETED, value, now, clean=True) for run in runs]
    await asyncio.gather(*map(bench.store.do, ends))
    await asyncio.gather(*map(bench.store.do, ends))  # said again
    assert await statuses(bench, *[f"after-{n}" for n in range(40)]) == ["ready"] * 40


async def test_those_that_had_ended_count(bench: Bench) -> None:
    await start(bench, "a")
    await finish(bench, "a")
    assert (await start(bench, "b", "a")).status == Status.READY
    await finish(bench, "b", Status.FAILED, attempts=1)
    failed = await start(bench, "c", "a", "b")
    assert failed.status == Status.FAILED
    assert await value_of(bench, "c") == b"b ended badly"
    assert (await start(bench, "d", "b", anyhow=True)).status == Status.READY
    assert (await bench.store.wait_ended("c")).value == b"b ended badly"


async def test_an_end_that_is_not_good_fails_the_whole_chain(bench: Bench) -> None:
    await start(bench, "0")
    for number in range(1, 2000):
        await start(bench, str(number), str(number - 1))
    waiting = asyncio.ensure_future(bench.store.wait_ended("1999"))
    await finish(bench, "0", Status.FAILED, attempts=1)
    ended = await waiting
    assert (ended.status, ended.value) == (Status.FAILED, b"1998 ended badly")
    assert await value_of(bench, "1") == b"0 ended badly"


async def test_a_run_may_start_however_the_others_end(bench: Bench) -> None:
    await start(bench, "a")
    await start(bench, "b")
    await start(bench, "c", "a", "b", anyhow=True)
    await finish(bench, "a", Status.FAILED)
    await bench.store.do(CancelRun("b", "u1", b"", bench.clock.now()))
    assert await bench.status("c") == "ready"


async def test_cancel_and_purge_end_what_is_waited_for(bench: Bench) -> None:
    await start(bench, "a", queue="other")
    await start(bench, "b", "a", queue="other")
    await start(bench, "c", "b")
    await bench.store.do(CancelRun("b", "u1", b"", bench.clock.now()))
    assert await statuses(bench, "a", "b", "c") == ["ready", "cancelled", "failed"]
    await start(bench, "d", "a", queue="other")
    await start(bench, "e", "d")
    await bench.store.do(PurgeQueue("other", 100, b"", bench.clock.now()))
    assert await statuses(bench, "a", "d", "e") == ["cancelled", "failed", "failed"]


async def test_a_purge_reaches_what_waits(bench: Bench) -> None:
    await start(bench, "a")
    await start(bench, "b", "a", queue="other")
    assert await bench.store.do(PurgeQueue("other", 100, b"", bench.clock.now())) == 1
    assert await statuses(bench, "a", "b") == ["ready", "cancelled"]
    await finish(bench, "a")


async def test_who_expires_is_not_waited_for_any_more_and_waits_no_more(timed: Bench) -> None:
    clock: Any = timed.clock
    soon = clock.now() + 10
    await timed.start("a", terms=Terms(expires=soon))
    await start(timed, "b", "a")
    await start(timed, "c")
    await timed.start("d", terms=after("c", expires=soon))
    clock.move(11)
    await timed.claim(await timed.session(TASK))
    assert await statuses(timed, "a", "b", "c", "d") == ["expired", "failed", "ready", "expired"]
    await finish(timed, "c")


async def test_not_before_its_time_either(timed: Bench) -> None:
    clock: Any = timed.clock
    await start(timed, "a")
    await start(timed, "b", "a", due=clock.now() + 10)
    await finish(timed, "a")
    info = await timed.store.info("b")
    assert info is not None
    assert (info.status_name, info.due) == ("scheduled", clock.now() + 10)
    clock.move(11)
    await finish(timed, "b")


async def test_what_is_not_there_is_refused_and_changes_nothing(bench: Bench) -> None:
    await start(bench, "a")
    for ids in (("a", "x"), ("b",)):
        with pytest.raises(RunNotFound):
            await start(bench, "b", *ids)
    rows = [bench.new("c"), bench.new("d", terms=after("c", "x"))]
    with pytest.raises(RunNotFound):
        await bench.store.do(StartMany(rows))
    assert [await bench.store.info(id) for id in "bcd"] == [None] * 3


async def test_in_one_transaction_a_run_may_wait_for_those_before_it(bench: Bench) -> None:
    rows = [bench.new("a"), bench.new("b", terms=after("a", "a")), bench.new("c", terms=after("b"))]
    answers = await bench.store.do(StartMany(rows))
    assert [one.status for one in answers] == [Status.READY, Status.SCHEDULED, Status.SCHEDULED]
    for id in "abc":
        await finish(bench, id)


async def test_a_failed_run_that_is_taken_up_again_has_nobody_waiting(bench: Bench) -> None:
    await start(bench, "a")
    await start(bench, "b", "a")
    await finish(bench, "a", Status.FAILED)
    await bench.store.do(Ask("a", "u1", "retry", "me", "", bench.clock.now()))
    await finish(bench, "a")
    assert await statuses(bench, "a", "b") == ["completed", "failed"]


async def test_a_run_that_failed_by_what_it_waited_for_can_be_taken_up(bench: Bench) -> None:
    await start(bench, "a")
    await start(bench, "b", "a")
    await start(bench, "c", "b", anyhow=True)
    await finish(bench, "a", Status.FAILED)
    await bench.store.do(CancelRun("c", "u2", b"", bench.clock.now()))
    await bench.store.do(Ask("b", "u1", "retry", "me", "", bench.clock.now()))
    await finish(bench, "b")
    assert await bench.status("b") == "completed"


async def test_pruning_leaves_alone_what_is_waited_for(bench: Bench) -> None:
    for id in ("a", "b"):
        await start(bench, id)
    await start(bench, "c", "a", "b")
    await finish(bench, "a")
    assert await bench.prune(keep=0) == 1
    assert await bench.status("c") == "scheduled"
    await finish(bench, "b")
    await finish(bench, "c")


async def test_a_start_said_again_waits_once(bench: Bench) -> None:
    await start(bench, "a")
    verb = Start(bench.new("b", terms=after("a")))
    assert await bench.store.do(verb) == await bench.store.do(verb)
    await finish(bench, "a")
    again = await bench.store.do(verb)
    assert (again.created, again.status) == (True, Status.READY)


async def test_a_run_never_waits_for_itself_by_being_replaced(bench: Bench) -> None:
    await bench.start("a", terms=Terms(unique="k"))
    await start(bench, "b", "a")
    await start(bench, "c", "b")
    before = await bench.store.history("a")
    for need in "abc":
        terms = after(need, unique="k", replace=True)
        with pytest.raises(RequestRefused, match="cannot wait for itself"):
            await bench.start("new", terms=terms)
    assert await bench.store.history("a") == before
    await start(bench, "d")
    await bench.start("new", terms=after("d", unique="k", replace=True))
    for id in "dabc":
        await finish(bench, id)


async def test_the_doctor_knows_of_dependencies(bench: Bench) -> None:
    await start(bench, "a")
    await start(bench, "b", "a")
    assert await bench.store.doctor() == []
    broken: Sequence[str] = (
        "UPDATE runs SET awaited = 0",
        "UPDATE dependencies SET needs = 1000",
        "DELETE FROM dependencies",
    )
    for sql in broken:
        await asyncio.to_thread(_execute, str(bench.path), sql)
        assert await bench.store.doctor() != []
    await bench.store.do(CancelRun("b", "u1", b"", bench.clock.now()))


def _execute(path: str, sql: str) -> None:
    db = sqlite3.connect(path)
    db.execute(sql)
    db.commit()
    db.close()

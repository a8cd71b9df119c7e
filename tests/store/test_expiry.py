"""Runs that expire: what has not been started in time never is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stepwell_queue import (
    Append,
    Finish,
    InboxKind,
    OpenOp,
    Reschedule,
    StartMany,
    Status,
    Terms,
)
from stepwell_queue.contract import PauseQueue
from tests.store.kit import TASK, Bench, ManualClock, open_bench

pytestmark = pytest.mark.anyio


def move(bench: Bench, seconds: float) -> None:
    clock: Any = bench.clock
    clock.move(seconds)


async def start(bench: Bench, id: str, within: float, **fields: Any) -> int:
    terms = Terms(expires=bench.clock.now() + within)
    return (await bench.start(id, terms=terms, **fields)).run


async def ended(bench: Bench, id: str) -> int:
    async with asyncio.timeout(10):
        return (await bench.store.wait_ended(id)).status


async def test_a_run_that_was_not_started_in_time_ends_without_a_worker(timed: Bench) -> None:
    await start(timed, "run", 10)
    waiting = asyncio.ensure_future(ended(timed, "run"))
    move(timed, 9)
    assert await timed.status("run") == "ready"
    move(timed, 2)
    assert await waiting == Status.EXPIRED
    info = await timed.store.info("run")
    assert info is not None
    assert (info.status_name, info.value, info.ended) == ("expired", b"", timed.clock.now())


async def test_an_expired_run_is_never_claimed(timed: Bench) -> None:
    session = await timed.session()
    await start(timed, "run", 10)
    await start(timed, "other", 20)
    move(timed, 11)
    assert [run.id for run in (await timed.claim(session)).runs] == ["other"]
    assert await ended(timed, "run") == Status.EXPIRED


async def test_what_has_been_started_in_time_goes_on(timed: Bench) -> None:
    session = await timed.session()
    run = await start(timed, "run", 10)
    await timed.claim_one(session)
    await timed.store.do(Reschedule(run, 1, timed.clock.now() + 15, attempts=1))
    move(timed, 11)
    assert await timed.status("run") == "scheduled"
    move(timed, 5)
    assert (await timed.claim_one(session)).fence == 2


async def test_a_run_that_was_cancelled_or_ended_does_not_expire(timed: Bench) -> None:
    run = await start(timed, "run", 10)
    await timed.claim_one(await timed.session())
    now = timed.clock.now()
    await timed.store.do(Finish(run, 1, Status.COMPLETED, b"value", now, clean=True))
    move(timed, 11)
    await start(timed, "next", 10)
    assert await timed.status("run") == "completed"


async def test_scheduled_and_paused_runs_expire_too(timed: Bench) -> None:
    session = await timed.session(queues=["default", "paused"])
    await timed.store.do(PauseQueue("paused", None))
    await start(timed, "paused", 10, queue="paused")
    await start(timed, "later", 10, due=timed.clock.now() + 1000)
    move(timed, 11)
    assert (await timed.claim(session)).runs == []
    assert [await ended(timed, id) for id in ("paused", "later")] == [Status.EXPIRED] * 2


async def test_a_run_whose_time_is_over_when_it_is_started_ends_at_once(timed: Bench) -> None:
    await start(timed, "run", -1)
    assert await ended(timed, "run") == Status.EXPIRED


async def test_the_parent_is_told(timed: Bench) -> None:
    session = await timed.session()
    parent = (await timed.claimed(session, "parent")).run
    terms = Terms(expires=timed.clock.now() + 10)
    child = timed.new("child", identity=TASK, terms=terms)
    op = OpenOp("0", "child", "mail", None)
    await timed.store.do(Append(parent, 1, children=[("0", child)], opened=[op]))
    await timed.park(parent, 1)
    move(timed, 11)
    claimed = await timed.claim_one(session)
    ((row,),) = [claimed.inbox]
    assert (row.kind, row.status, row.name) == (InboxKind.CHILD_ENDED, Status.EXPIRED, "child")
    assert row.value == b""


async def test_thousands_expire_at_once_and_none_of_them_is_claimed(timed: Bench) -> None:
    session = await timed.session()
    terms = Terms(expires=timed.clock.now() + 10)
    await timed.store.do(StartMany([timed.new(f"r{n}", terms=terms) for n in range(2500)]))
    await timed.start("other")
    move(timed, 11)
    claimed: list[str] = []
    more = True
    while more:
        result = await timed.claim(session)
        claimed += [run.id for run in result.runs]
        more = result.more
    assert claimed == ["other"]
    assert await ended(timed, "r2499") == Status.EXPIRED


async def test_who_waits_in_another_process_hears_of_it(path: Path, clock: ManualClock) -> None:
    maker = await open_bench(path, clock=clock)
    await start(maker, "run", 10)
    await maker.store.close()
    other = await open_bench(path, clock=clock)
    waiting = asyncio.ensure_future(ended(other, "run"))
    await other.store.info("run")  # so that it has begun to wait
    clock.move(11)
    assert await waiting == Status.EXPIRED
    await other.store.close()


async def test_a_worker_never_claims_what_another_process_let_expire(
    path: Path, clock: ManualClock
) -> None:
    first, second = [await open_bench(path, clock=clock) for _ in range(2)]
    session = await first.session()
    await first.claim(session)
    await start(second, "run", 10)
    clock.move(11)
    assert (await first.claim(session)).runs == []
    assert await ended(first, "run") == Status.EXPIRED
    for bench in (first, second):
        await bench.store.close()

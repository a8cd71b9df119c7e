"""What changes a great many runs is done in passes, and no crash in between leaves it half done."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stepwell_queue import (
    Append,
    Ask,
    CancelRun,
    Finish,
    RandomIds,
    RequestRefused,
    Start,
    StartMany,
    Status,
    Terms,
)
from stepwell_queue.contract import QueueSettings, SetQueue, Terminate
from stepwell_queue.sqlite import ageing, dependents, verbs_steer
from stepwell_queue.sqlite.store import SqliteStore, open_sqlite
from tests.store.kit import TASK, Bench, ManualClock

pytestmark = pytest.mark.anyio


async def opened(path: Path, clock: ManualClock) -> Bench:
    store: SqliteStore = await open_sqlite(
        path, durability="process", clock=clock, ids=RandomIds(clock), lease=15.0
    )
    return Bench(store, clock, path)


@pytest.mark.parametrize("crash", [False, True])
async def test_priorities_are_given_back_in_passes_between_which_work_goes_on(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, crash: bool
) -> None:
    monkeypatch.setattr(ageing, "AT_ONCE", 10)
    bench = await opened(path, clock)
    await bench.store.do(SetQueue("default", QueueSettings(ageing=1.0)))
    clock.move(100)
    old = [bench.new(f"old-{number:02}", identity=TASK, priority=number) for number in range(35)]
    await bench.store.do(StartMany(old))
    await bench.store.do(SetQueue("default", QueueSettings()))
    if crash:  # all that is known is in the file
        await bench.store.close()
        bench = await opened(path, clock)
    await bench.start("new", identity=TASK, priority=20)
    session = await bench.session()
    claimed: list[tuple[str, int]] = []
    while runs := (await bench.claim(session, 1)).runs:
        claimed.append((runs[0].id, runs[0].priority))
    expected = [(f"old-{number:02}", number) for number in reversed(range(35))]
    expected.insert(15, ("new", 20))
    assert claimed == expected
    await bench.store.close()


async def test_ageing_that_is_set_anew_meanwhile_holds_for_what_comes_later(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ageing, "AT_ONCE", 10)
    bench = await opened(path, clock)
    await bench.store.do(SetQueue("default", QueueSettings(ageing=1.0)))
    await bench.store.do(StartMany([bench.new(identity=TASK, priority=3) for _ in range(25)]))
    await bench.store.do(SetQueue("default", QueueSettings(ageing=10.0)))
    clock.move(30)
    await bench.start("late", identity=TASK, priority=5)
    claimed = (await bench.claim(await bench.session(), 100)).runs
    assert [run.id for run in claimed][-1] == "late"
    assert [run.priority for run in claimed] == [3] * 25 + [2]
    info = await bench.store.info("late")
    assert info is not None
    assert info.priority == 5
    await bench.store.close()


async def waiting(bench: Bench, count: int, **terms: Any) -> None:
    await bench.start("first", identity=TASK)
    after = Terms(after=["first"], **terms)
    many = [bench.new(f"then-{number}", identity=TASK, terms=after) for number in range(count)]
    await bench.store.do(StartMany(many))


@pytest.mark.parametrize("crash", [False, True])
async def test_those_who_wait_for_one_end_are_let_go_in_passes(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, crash: bool
) -> None:
    monkeypatch.setattr(dependents, "AT_ONCE", 10)
    bench = await opened(path, clock)
    await waiting(bench, 35)
    first = await bench.claim_one(await bench.session())
    await bench.store.do(Finish(first.run, 1, Status.COMPLETED, b"", clock.now()))
    assert await bench.store.doctor() == []
    if crash:
        await bench.store.close()
        bench = await opened(path, clock)
    session = await bench.session()
    claimed: set[str] = set()
    more = True
    while more:
        found = await bench.claim(session, 100)
        claimed.update(run.id for run in found.runs)
        more = found.more
    assert claimed == {f"then-{number}" for number in range(35)}
    assert await bench.store.doctor() == []
    await bench.store.close()


@pytest.mark.parametrize("size", [10, 2000])
async def test_those_who_fail_by_one_end_and_those_behind_them_fail_in_passes_without_a_worker(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(dependents, "AT_ONCE", 10)
    bench = await opened(path, clock)
    await waiting(bench, 35, failures=[b"f" * size])
    behind = [
        bench.new(f"behind-{number}", terms=Terms(after=[f"then-{number}"], failures=[b"behind"]))
        for number in range(35)
    ]
    await bench.store.do(StartMany(behind))
    await bench.store.do(CancelRun("first", "u", b"", clock.now()))
    assert await bench.store.doctor() == []
    for number in range(35):
        ended = await bench.store.wait_ended(f"then-{number}")
        assert (ended.status, ended.value) == (Status.FAILED, b"f" * size)
        ended = await bench.store.wait_ended(f"behind-{number}")
        assert (ended.status, ended.value) == (Status.FAILED, b"behind")
    assert await bench.store.doctor() == []
    await bench.store.close()


async def test_no_run_goes_on_while_its_end_is_told_so_that_nobody_new_hears_of_that_end(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dependents, "AT_ONCE", 10)
    bench = await opened(path, clock)
    await waiting(bench, 35, failures=[b"f"])
    session = await bench.session()
    run = await bench.claim_one(session)
    again = Ask("first", "u", "requeue", "", "", clock.now())
    end = Finish(run.run, run.fence, Status.FAILED, b"boom", clock.now())
    both = (bench.store.do(end), bench.store.do(again))  # in this order, in one transaction
    _, refused = await asyncio.gather(*both, return_exceptions=True)
    assert isinstance(refused, RequestRefused)
    assert "not all that wait for its end know it" in str(refused)
    await asyncio.gather(*(bench.store.wait_ended(f"then-{number}") for number in range(35)))
    assert await bench.store.do(again) == Status.READY
    await bench.store.do(Start(bench.new("late", terms=Terms(after=["first"], failures=[b"f"]))))
    await bench.claim_one(session)
    assert await bench.status("late") == "scheduled"
    assert await bench.store.doctor() == []
    await bench.store.close()


async def test_many_that_are_terminated_at_once_share_what_one_transaction_ends(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbs_steer, "MOST_TERMINATED", 4)
    bench = await opened(path, clock)
    session = await bench.session()
    for id in "abc":
        run = await bench.claimed(session, id)
        children = [(f"{n}", bench.new(f"{id}{n}")) for n in range(3)]
        await bench.store.do(Append(run.run, run.fence, children=children))
        assert len((await bench.claim(session)).runs) == 3
    verbs = [Terminate(id, "u", b"", clock.now()) for id in "abc"]
    more: list[list[bool]] = []
    while not more or any(more[-1]):
        answers = await asyncio.gather(*map(bench.store.do, verbs))
        more.append([answer.more for answer in answers])
    assert more == [[False, True, True], [False, False, True], [False, False, False]]
    assert await bench.store.doctor() == []
    await bench.store.close()

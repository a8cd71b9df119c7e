"""What is too large for one frame comes in several."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stepwell_queue import (
    Append,
    Claimed,
    ClaimResult,
    Finish,
    Reschedule,
    RunFilter,
    StaleFence,
    Start,
    StartMany,
    Status,
)
from stepwell_queue.tcp.protocol import PAGE
from stepwell_queue.tcp.server import Server
from tests.serving import serving
from tests.store.kit import Bench, Listener, open_bench

pytestmark = pytest.mark.anyio
VALUE = b"x" * 30_000
MANY = 40


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Taker(Listener):
    """Waits for runs that are claimed on its behalf."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: asyncio.Queue[Claimed] = asyncio.Queue()

    def on_claimed(self, result: ClaimResult) -> None:
        for claimed in result.runs:
            self.taken.put_nowait(claimed)

    async def take(self) -> Claimed:
        async with asyncio.timeout(10):
            return await self.taken.get()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path / "runs.db") as server:
        yield server


@pytest.fixture
async def bench(server: Server, tmp_path: Path) -> AsyncIterator[Bench]:
    bench = await open_bench(tmp_path / "runs.db", server=server)
    yield bench
    assert await bench.store.doctor() == []
    await bench.store.close()


async def long_run(bench: Bench) -> int:
    """A ready run whose journal takes several pages."""
    session = await bench.session()
    run = await bench.claimed(session, "long")
    for seq in range(MANY):
        await bench.store.do(Append(run.run, run.fence, [bench.record(seq, value=VALUE)]))
    await bench.store.do(Reschedule(run.run, run.fence, None))
    await session.close()
    return run.run


async def test_a_long_journal_comes_in_pages_and_the_run_as_a_whole(bench: Bench) -> None:
    assert MANY * len(VALUE) > 4 * PAGE
    run = await long_run(bench)
    taker = Taker()
    session = await bench.session(listener=taker)
    found = await bench.claim(session)
    assert found.runs == []
    claimed = await taker.take()
    assert (claimed.run, claimed.id, claimed.fence) == (run, "long", 2)
    assert [record.seq for record in claimed.journal] == list(range(MANY))
    assert {record.value for record in claimed.journal} == {VALUE}
    await bench.store.do(Finish(run, claimed.fence, Status.COMPLETED, b"", bench.clock.now()))


async def test_what_is_told_while_a_run_is_on_its_way_comes_with_it(bench: Bench) -> None:
    await long_run(bench)
    for number in range(30):
        await bench.signal("long", f"before-{number}", VALUE)
    taker = Taker()
    session = await bench.session(listener=taker)
    claiming = asyncio.ensure_future(bench.claim(session))
    await bench.signal("long", "meanwhile")
    await claiming
    claimed = await taker.take()
    told = [row.uid for row in claimed.inbox]
    assert told[:30] == [f"before-{number}" for number in range(30)]
    assert told.count("meanwhile") + [row.uid for row in taker.rows].count("meanwhile") == 1
    assert len(set(told)) == len(told)


async def test_runs_with_large_arguments_are_claimed_a_few_at_a_time(bench: Bench) -> None:
    args = b"a" * 3_000_000
    await bench.store.do(StartMany([bench.new(f"large-{n}", args=args) for n in range(10)]))
    session = await bench.session()
    taken: list[str] = []
    while len(taken) < 10:
        found = await bench.claim(session)
        assert sum(len(claimed.args) for claimed in found.runs) <= 9_000_000
        assert found.runs
        assert found.more or len(taken) + len(found.runs) == 10
        taken += [claimed.id for claimed in found.runs]
    assert sorted(taken) == sorted(f"large-{n}" for n in range(10))
    for info in await bench.store.list_runs(RunFilter()):
        assert (info.crashes, info.attempts) == (0, 0)


async def test_a_listing_of_large_runs_is_whole_and_in_order(bench: Bench) -> None:
    args = b"a" * 3_000_000
    for number in range(8):
        await bench.store.do(Start(bench.new(f"large-{number}", args=args)))
    for limit in (1, 5, 100):
        found = await bench.store.list_runs(RunFilter(limit=limit))
        wanted = [f"large-{number}" for number in reversed(range(8))][:limit]
        assert [info.id for info in found] == wanted


async def test_the_history_of_a_long_run_is_whole(bench: Bench) -> None:
    await long_run(bench)
    history = await bench.store.history("long")
    assert history is not None
    assert [record.seq for record in history.journal] == list(range(MANY))


async def test_places_that_were_offered_are_filled_as_work_becomes_ready(bench: Bench) -> None:
    taker = Taker()
    session = await bench.session(listener=taker)
    session.offer(2)
    for number in range(4):
        await bench.start(f"run-{number}")
    first, second = await taker.take(), await taker.take()
    assert [first.id, second.id] == ["run-0", "run-1"]
    assert [await bench.status(f"run-{number}") for number in range(4)] == [
        "running", "running", "ready", "ready",
    ]  # fmt: skip
    await bench.store.do(Finish(first.run, 1, Status.COMPLETED, b"", bench.clock.now()))
    assert (await taker.take()).id == "run-2"
    session.offer(0)
    await bench.park(second.run, 1)
    assert await bench.status("run-3") == "ready"
    assert not taker.taken.qsize()


async def test_a_claim_beside_what_is_being_claimed_for_a_worker_does_not_fill_its_places_twice(
    bench: Bench,
) -> None:
    taker = Taker()
    session = await bench.session(listener=taker)
    session.offer(2)
    first = asyncio.ensure_future(bench.start("run-0"))  # which is pushed
    claiming = asyncio.ensure_future(bench.claim(session, limit=2))
    for number in range(1, 6):
        await bench.start(f"run-{number}")
    await first
    taken = [claimed.id for claimed in (await claiming).runs]
    while len(taken) < 2:
        taken.append((await taker.take()).id)
    statuses = [await bench.status(f"run-{number}") for number in range(6)]
    assert statuses.count("running") == 2
    assert taker.taken.empty()


async def test_a_run_that_was_lost_leaves_its_place_to_another(bench: Bench) -> None:
    taker = Taker()
    session = await bench.session(listener=taker)
    session.offer(1)
    await bench.start("run-0")
    first = await taker.take()
    await bench.start("run-1")
    with pytest.raises(StaleFence):
        await bench.store.do(Append(first.run, 7, [bench.record(0)]))
    with pytest.raises(StaleFence):
        await bench.store.do(Append(99, 1, [bench.record(0)]))
    assert (await taker.take()).id == "run-1"


async def test_work_goes_to_the_worker_that_has_least(bench: Bench) -> None:
    takers = Taker(), Taker(), Taker()
    for taker in takers:
        (await bench.session(listener=taker)).offer(10)
    for number in range(9):
        await bench.start(f"run-{number}")
    for taker in takers:
        for _ in range(3):
            await taker.take()


async def test_much_work_is_shared_among_the_workers(bench: Bench) -> None:
    takers = Taker(), Taker(), Taker()
    for taker in takers:
        (await bench.session(listener=taker)).offer(200)
    await bench.store.do(StartMany([bench.new(f"run-{number}") for number in range(300)]))
    for taker in takers:
        for _ in range(80):
            await taker.take()

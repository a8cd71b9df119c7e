"""Disks that are full or broken, locks that are taken, logs that cannot be reset."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell_queue import (
    Append,
    Finish,
    RandomIds,
    RunFilter,
    Start,
    StartMany,
    Status,
    StoreUnavailable,
    SystemClock,
)
from stepwell_queue.sqlite import group
from stepwell_queue.sqlite.store import open_sqlite
from tests.store.faulty import Faults, busy, io_error
from tests.store.kit import Bench, open_bench

pytestmark = pytest.mark.anyio


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture(params=["full", "process"])
async def broken(
    request: pytest.FixtureRequest, path: Path, faults: Faults
) -> AsyncIterator[Bench]:
    """A store whose writing connection fails when it is told to."""
    clock = SystemClock()
    store = await open_sqlite(
        path,
        durability=request.param,
        clock=clock,
        ids=RandomIds(clock),
        lease=15.0,
        factory=faults.connect,
    )
    bench = Bench(store, clock, path)
    yield bench
    assert await store.doctor() == []
    await store.close()
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


@pytest.mark.parametrize("statement", range(5))
@pytest.mark.parametrize("fault", [busy, io_error])
async def test_a_clients_verb_fails_as_a_whole_and_the_next_one_works(
    broken: Bench, faults: Faults, statement: int, fault: Callable[[], sqlite3.Error]
) -> None:
    runs = StartMany([broken.new("a", args=bytes(5000)), broken.new("b")])
    faults.arm(statement, fault)
    if statement == 0 and fault is busy:
        await broken.store.do(runs)  # the lock is waited for
    else:
        with pytest.raises(StoreUnavailable, match=r"locked|I/O"):
            await broken.store.do(runs)
        assert await broken.store.info("a") is None
        assert await broken.store.info("b") is None
        await broken.store.do(runs)
    assert await broken.status("b") == "ready"


@pytest.mark.parametrize("statement", range(3))
@pytest.mark.parametrize("also_rollback", [False, True])
async def test_what_a_worker_says_is_kept_and_said_again_in_order(
    broken: Bench,
    faults: Faults,
    statement: int,
    also_rollback: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = await broken.claimed(await broken.session(), "run")
    opened = faults.opened
    faults.arm(statement, io_error, times=4, also_rollback=also_rollback)
    with caplog.at_level(logging.WARNING, "stepwell.store"):
        said = [
            broken.store.do(Append(run.run, 1, [broken.record(0)])),
            broken.store.do(Append(run.run, 1, [broken.record(1)])),
            broken.store.do(Finish(run.run, 1, Status.COMPLETED, b"v", broken.clock.now())),
        ]
        async with asyncio.timeout(30):
            assert await asyncio.gather(*said) == [None, None, None]
    history = await broken.store.history("run")
    assert history is not None
    assert [record.seq for record in history.journal] == [0, 1]
    assert history.run.status == Status.COMPLETED
    lines = [record.message for record in caplog.records]
    assert len([line for line in lines if "cannot be written" in line]) == 1
    assert len([line for line in lines if "can be written again" in line]) == 1
    assert (faults.opened > opened) == (also_rollback and statement > 0)


@pytest.mark.parametrize("statement", range(1, 6))
async def test_a_signal_and_the_wake_up_are_stored_together_or_not_at_all(
    broken: Bench, faults: Faults, statement: int
) -> None:
    run = await broken.claimed(await broken.session(), "run")
    await broken.park(run.run, 1)
    faults.arm(statement, io_error)
    try:
        await broken.signal("run", "u")
    except StoreUnavailable:
        history = await broken.store.history("run")
        assert history is not None
        assert (history.run.status_name, len(history.inbox)) == ("parked", 0)
        await broken.signal("run", "u")
    history = await broken.store.history("run")
    assert history is not None
    assert (history.run.status_name, len(history.inbox)) == ("ready", 1)


@pytest.mark.parametrize("statement", range(1, 8))
async def test_the_end_of_a_child_and_the_news_of_it_are_stored_together(
    broken: Bench, faults: Faults, statement: int
) -> None:
    session = await broken.session()
    parent = await broken.claimed(session, "parent")
    child = broken.new("child")
    await broken.store.do(Append(parent.run, 1, children=[("0", child)]))
    run = await broken.claim_one(session)
    await broken.park(parent.run, 1)
    faults.arm(statement, io_error)
    finish = Finish(run.run, 1, Status.FAILED, b"e" * 2000, broken.clock.now(), parent=parent.run)
    async with asyncio.timeout(30):
        await broken.store.do(finish)
    assert await broken.status("child") == "failed"
    again = await broken.claim_one(session)
    assert [(row.name, row.value) for row in again.inbox] == [("child", b"e" * 2000)]


async def test_clients_hear_of_an_outage_while_workers_wait_it_out(
    broken: Bench, faults: Faults
) -> None:
    run = await broken.claimed(await broken.session(), "run")
    faults.arm(1, io_error, times=3)
    kept = asyncio.ensure_future(broken.store.do(Append(run.run, 1, [broken.record(0)])))
    with pytest.raises(StoreUnavailable) as caught:
        await broken.start("refused")
    assert isinstance(caught.value.__cause__, Exception)
    async with asyncio.timeout(30):
        await kept
    assert await broken.store.info("refused") is None


async def test_what_waits_for_the_disk_is_bounded_and_workers_come_first(
    broken: Bench, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group, "MAX_WAITING", 1_000_000)
    run = await broken.claimed(await broken.session(), "run")
    faults.arm(0, io_error, times=2)
    starts = [asyncio.create_task(broken.start(args=bytes(100_000))) for _ in range(20)]
    await asyncio.sleep(0)
    kept = broken.store.do(Append(run.run, 1, [broken.record(0)]))
    answers = await asyncio.gather(*starts, return_exceptions=True)
    refused = [answer for answer in answers if "the limit is 1000000" in str(answer)]
    assert 5 <= len(refused) <= 15
    async with asyncio.timeout(30):
        await kept
    await broken.start("after")


async def test_closing_during_an_outage_refuses_what_is_left(path: Path, faults: Faults) -> None:
    clock = SystemClock()
    store = await open_sqlite(
        path,
        durability="full",
        clock=clock,
        ids=RandomIds(clock),
        lease=15.0,
        factory=faults.connect,
    )
    bench = Bench(store, clock, path)
    run = await bench.claimed(await bench.session(), "run")
    faults.arm(0, io_error, times=1000)
    kept = asyncio.ensure_future(store.do(Append(run.run, 1, [bench.record(0)])))
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await store.close()
        with pytest.raises(StoreUnavailable):
            await kept
    bench = await open_bench(path)
    again = await bench.claim_one(await bench.session())
    assert (again.id, again.crashes) == ("run", 1)
    await bench.store.close()


@pytest.fixture(params=["full", "process"])
async def small(request: pytest.FixtureRequest, path: Path) -> AsyncIterator[tuple[Bench, Any]]:
    """A store on a disk of a few pages, and how to set their number."""
    connections: list[sqlite3.Connection] = []

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connections.append(sqlite3.connect(*arguments, **options))
        return connections[-1]

    clock = SystemClock()
    store = await open_sqlite(
        path,
        durability=request.param,
        clock=clock,
        ids=RandomIds(clock),
        lease=15.0,
        factory=connect,
    )

    def resize(pages: int) -> None:
        connections[-1].execute(f"PRAGMA max_page_count = {pages}")

    yield Bench(store, clock, path), resize
    await store.close()
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


@pytest.mark.blocking  # the disk is resized by a statement
async def test_a_full_disk_stops_work_and_room_lets_it_go_on(
    small: tuple[Bench, Any], caplog: pytest.LogCaptureFixture
) -> None:
    bench, resize = small
    run = await bench.claimed(await bench.session(), "run")
    resize(1)
    large = bench.record(0, value=bytes(1_000_000))
    with caplog.at_level(logging.WARNING, "stepwell.store"):
        kept = asyncio.ensure_future(bench.store.do(Append(run.run, 1, [large])))
        starts = [bench.start(f"r{number}", args=bytes(1_000_000)) for number in range(20)]
        for answer in await asyncio.gather(*starts, return_exceptions=True):
            assert isinstance(answer, StoreUnavailable)
            assert "full" in str(answer)
        assert not kept.done()
        resize(1_000_000)
        async with asyncio.timeout(30):
            await kept
    assert len([line for line in caplog.messages if "cannot be written" in line]) <= 2
    history = await bench.store.history("run")
    assert history is not None
    assert list(history.journal) == [large]
    await bench.start("after", args=bytes(1_000_000))
    assert await bench.store.doctor() == []


async def test_the_log_stays_short_under_load(path: Path) -> None:
    bench = await open_bench(path, durability="process")
    run = await bench.claimed(await bench.session(), "run")
    largest = 0
    for number in range(300):
        record = bench.record(number, value=bytes(1_000_000))
        await bench.store.do(Append(run.run, 1, [record]))
        largest = max(largest, await _size(path))
    assert largest < 128 * 1024 * 1024
    await bench.store.close()


async def test_a_log_that_is_synced_is_begun_anew_long_before_it_is_long(path: Path) -> None:
    bench = await open_bench(path, durability="full")
    run = await bench.claimed(await bench.session(), "run")
    for number in range(600):
        await bench.store.do(Append(run.run, 1, [bench.record(number, value=bytes(100_000))]))
    assert await _size(path) < 32 * 1024 * 1024  # of 60 that were written
    async with asyncio.timeout(3):
        assert await bench.store.doctor() == []  # which reads no values
    await bench.store.close()


async def _size(path: Path) -> int:
    return (await asyncio.to_thread(path.with_name("runs.db-wal").stat)).st_size


@pytest.mark.blocking  # the foreign reader is plain sqlite3
async def test_a_foreign_reader_delays_but_does_not_stop_the_log_from_shrinking(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = await open_bench(path, durability="process")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM runs").fetchone()
    run = await bench.claimed(await bench.session(), "run")
    seq = 0

    async def write(count: int) -> None:
        nonlocal seq
        for _ in range(count):
            await bench.store.do(Append(run.run, 1, [bench.record(seq, value=bytes(1_000_000))]))
            seq += 1

    await write(90)
    assert await _size(path) > 64 * 1024 * 1024
    assert any("read transaction open" in line for line in caplog.messages)
    reader.execute("COMMIT")
    reader.close()
    await write(100)
    assert await _size(path) < 128 * 1024 * 1024
    await bench.store.close()


async def test_listing_holds_no_snapshot_between_pages(path: Path) -> None:
    bench = await open_bench(path, durability="process")
    await bench.store.do(StartMany([bench.new() for _ in range(100)]))
    page = await bench.store.list_runs(RunFilter(limit=10))
    for _ in range(20):
        await bench.store.do(Start(bench.new(args=bytes(1_000_000))))
        page = await bench.store.list_runs(RunFilter(limit=10, after=page[-1].run)) or page
    async with asyncio.timeout(10):
        while await asyncio.to_thread(_checkpoint, path):
            await bench.store.info("run-1")  # the store's own checkpoint is on its way
    await bench.store.close()


def _checkpoint(path: Path) -> int:
    """1 if somebody reads an old snapshot, so that the log cannot be reset."""
    db = sqlite3.connect(path)
    blocked: int = db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()[0]
    db.close()
    return blocked

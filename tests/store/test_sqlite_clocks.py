"""Clocks that jump, leases that do not care, and how still an idle store is."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from stepwell_queue import Append, OpenOp, Start
from tests.store.kit import Bench, Listener, ManualClock, open_bench

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("jump", [-1e9, 3600.0, 1e9])
async def test_a_jump_of_the_clock_costs_nobody_his_claim(path: Path, jump: float) -> None:
    clock = ManualClock(2e9)
    holder, other = await open_bench(path, clock=clock), await open_bench(path, clock=clock)
    run = await holder.claimed(await holder.session(), "run")
    clock.move(jump)
    session = await other.session()  # which sweeps
    assert (await other.claim(session)).runs == []
    await holder.store.do(Append(run.run, 1, [holder.record(0)]))
    await holder.store.close()
    await other.store.close()


async def test_a_clock_that_goes_back_delays_timers_but_loses_none(
    timed: Bench, clock: ManualClock
) -> None:
    listener = Listener()
    session = await timed.session(listener=listener)
    await timed.start("r", due=clock.now() + 10)
    clock.move(-100)
    assert (await timed.claim(session)).runs == []
    listener.ready.clear()
    clock.move(110)
    await listener.wait_ready()
    assert (await timed.claim_one(session)).id == "r"


@pytest.mark.parametrize("due", [0.0, -1e300, 1e300, 9e18])
async def test_absurd_times_neither_wedge_nor_flood(
    timed: Bench, clock: ManualClock, due: float
) -> None:
    session = await timed.session()
    started = await timed.start("r", due=due)
    found = await timed.claim(session)
    assert [run.id for run in found.runs] == (["r"] if due <= clock.now() else [])
    assert started.created


async def test_leases_of_another_boot_have_ended(path: Path) -> None:
    bench = await open_bench(path)
    await bench.claimed(await bench.session(), "run")
    other = await open_bench(path)
    await asyncio.to_thread(_reboot, path)
    run = await other.claim_one(await other.session())
    assert (run.id, run.crashes) == ("run", 1)
    await bench.store.close()
    await other.store.close()


def _reboot(path: Path) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("UPDATE workers SET boot = 'the boot before'")
    db.close()


async def test_a_lease_that_ran_out_but_was_not_taken_still_writes(path: Path) -> None:
    bench = await open_bench(path)
    run = await bench.claimed(await bench.session(), "run")
    await asyncio.to_thread(_expire, path)
    await bench.store.do(Append(run.run, 1, [bench.record(0)]))
    await bench.store.close()


def _expire(path: Path) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("UPDATE workers SET until = 0")
    db.close()


async def test_an_idle_workers_lease_is_renewed_by_its_next_claim(path: Path) -> None:
    worker, other = await open_bench(path), await open_bench(path)
    session = await worker.session()
    await asyncio.to_thread(_expire, path)
    worker.store._context.sessions[session.worker].until = 0.0  # type: ignore[attr-defined] # as after an idle hour
    await worker.claim(session)
    born = await worker.store.do(Start(worker.new("born"), session.worker))
    assert born.claimed is not None or (await worker.claim(session)).runs
    assert (await other.claim(await other.session())).runs == []
    assert await worker.status("born") == "running"
    await worker.store.close()
    await other.store.close()


async def test_a_worker_that_was_given_up_for_dead_is_registered_again(path: Path) -> None:
    bench = await open_bench(path)
    session = await bench.session()
    await asyncio.to_thread(_forget, path)
    bench.store._context.sessions[session.worker].until = 0.0  # type: ignore[attr-defined] # as after an idle hour
    await bench.claimed(session, "run")
    assert [worker.worker for worker in await bench.store.workers()] == [session.worker]
    assert await bench.store.doctor() == []
    await bench.store.close()


def _forget(path: Path) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("DELETE FROM workers")
    db.close()


async def test_an_idle_store_does_nothing(path: Path) -> None:
    bench = await open_bench(path)
    session = await bench.session()
    run = await bench.claimed(session, "run")
    due = bench.clock.now() + 3600
    await bench.park(run.run, 1, due, [OpenOp("0", "sleep", "", due)])
    commits = bench.store._group.commits  # type: ignore[attr-defined] # nothing public counts them
    iterations = 0
    loop = asyncio.get_running_loop()
    run_once = loop._run_once  # type: ignore[attr-defined] # one call = one awakening

    def counted() -> None:
        nonlocal iterations
        iterations += 1
        run_once()

    loop._run_once = counted  # type: ignore[attr-defined] # see above
    await asyncio.sleep(1.0)
    del loop._run_once  # type: ignore[attr-defined] # see above
    assert iterations <= 3
    assert bench.store._group.commits == commits  # type: ignore[attr-defined] # see above
    await bench.store.close()

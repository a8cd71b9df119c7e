"""Several processes on one file: wake-ups, deaths, lost claims."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from stepwell_queue import Start
from stepwell_queue.sqlite.presence import folder_of
from tests.conftest import Scale
from tests.store.fleet import RemotePeer, peers
from tests.store.kit import open_bench

pytestmark = [pytest.mark.anyio, pytest.mark.blocking]  # starting processes blocks


async def claim_when_ready(peer: RemotePeer) -> list[list[Any]]:
    """Claim after each hint, since a hint may come without work, until there is some."""
    while True:
        found: list[list[Any]] = await peer("claim")
        if found:
            return found
        await peer("await_ready")


async def test_work_signals_and_ends_reach_other_processes_by_push(path: Path) -> None:
    async with peers(path, 2) as (worker, client), asyncio.timeout(60):
        await worker("session")
        await worker("claim")
        await client("start", id="run")
        await worker("await_ready")
        ((run, _, fence, _),) = await worker("claim")
        await client("signal", id="run", uid="u1")
        assert await worker("await_inbox") == ["u1"]
        await client("begin_wait", id="run")
        await worker("finish", run=run, fence=fence, value="result")
        assert await client("end_wait", id="run") == "result"


async def test_a_worker_of_another_process_loses_what_is_terminated(path: Path) -> None:
    async with peers(path, 2) as (worker, client), asyncio.timeout(60):
        await worker("session")
        await client("start", id="run")
        ((run, _, fence, _),) = await claim_when_ready(worker)
        assert not await client("terminate", id="run")
        assert await worker("await_lost") == [run]
        assert await worker("finish", run=run, fence=fence, value="late") != "ok"
        assert await client("status", id="run") == "terminated"


async def test_pushes_that_get_lost_are_made_up_for(path: Path) -> None:
    async with peers(path, 2) as (worker, client), asyncio.timeout(60):
        await worker("session")
        await worker("claim")
        await client("workers")  # so that its store is open, too
        _remove_sockets(path)
        await client("start", id="run")
        await worker("await_ready")
        ((run, _, fence, _),) = await worker("claim")
        await client("signal", id="run", uid="u1")
        assert await worker("await_inbox") == ["u1"]
        await client("begin_wait", id="run")
        await worker("finish", run=run, fence=fence, value="result")
        assert await client("end_wait", id="run") == "result"


def _remove_sockets(path: Path) -> None:
    sockets = list(folder_of(path).glob("*.sock"))
    assert len(sockets) == 2
    for socket in sockets:
        socket.unlink()


async def test_runs_of_a_killed_process_are_handed_over_at_once(path: Path) -> None:
    async with peers(path, 2, lease=600) as (dying, heir), asyncio.timeout(60):
        for peer in (dying, heir):
            await peer("session")
        await dying("start", id="progressed")
        await dying("start", id="fruitless")
        claimed = {id: run for run, id, _, _ in await dying("claim")}
        await dying("append", run=claimed["progressed"], fence=1, seq=0)
        await heir("forget_ready")
        await dying.kill()
        found = await claim_when_ready(heir)
        assert [run[1:] for run in found] == [["progressed", 3, 0], ["fruitless", 3, 1]]
        assert [alive for _, alive, _ in await heir("workers")] == [True]
        assert await heir("doctor") == []


async def test_nothing_is_lost_by_a_kill_right_after_its_claim(path: Path, scale: Scale) -> None:
    count = scale(3, 100)
    for number in range(count):
        async with peers(path, 1) as (dying,), asyncio.timeout(60):
            await dying("session")
            await dying("start", id=f"{number}", priority=number)
            ((_, id, _, _),) = await dying("claim", limit=1)
            assert id == f"{number}"
            await dying.kill()
    bench = await open_bench(path)
    found = await bench.claim(await bench.session(), count + 1)
    assert [(run.id, run.crashes) for run in found.runs] == [
        (f"{number}", 1) for number in reversed(range(count))
    ]
    assert await bench.store.doctor() == []
    await bench.store.close()


async def test_a_new_process_takes_over_what_the_last_one_left(path: Path) -> None:
    async with peers(path, 1, lease=600) as (dying,), asyncio.timeout(60):
        await dying("session")
        await dying("start", id="run")
        await dying("claim")
        await dying.kill()
    bench = await open_bench(path, lease=600)
    run = await bench.claim_one(await bench.session())
    assert (run.id, run.fence, run.crashes) == ("run", 3, 1)
    assert await bench.store.doctor() == []
    await bench.store.close()


async def test_a_poison_run_is_claimed_alone_after_its_second_crash(path: Path) -> None:
    for crash in range(2):
        async with peers(path, 1) as (dying,), asyncio.timeout(60):
            await dying("session")
            if not crash:
                await dying("start", id="poison")
            assert len(await dying("claim")) == 1
            await dying.kill()
    bench = await open_bench(path)
    session = await bench.session()
    info = await bench.store.info("poison")
    assert info is not None
    assert (info.status_name, info.crashes) == ("scheduled", 2)
    assert info.due is not None
    assert 0 < info.due - bench.clock.now() <= 4
    await bench.store.close()
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("UPDATE runs SET due = 1")  # its back-off is over
    db.close()
    bench = await open_bench(path)
    session = await bench.session()
    await bench.start("healthy")
    busy = await bench.claim(session)
    assert [run.id for run in busy.runs] == ["healthy"]
    assert busy.alone_waiting
    idle = await bench.claim(session, idle=True)
    assert [(run.id, run.crashes) for run in idle.runs] == [("poison", 2)]
    await bench.start("neighbour")
    born = await bench.store.do(Start(bench.new("born"), session.worker))
    assert born.claimed is None
    assert (await bench.claim(session)).runs == []
    poison = idle.runs[0]
    await bench.park(poison.run, poison.fence)
    assert [run.id for run in (await bench.claim(session)).runs] == ["neighbour", "born"]
    await bench.store.close()


async def test_a_stopped_process_loses_its_runs_and_can_write_nothing(path: Path) -> None:
    async with peers(path, 2, lease=1.5) as (stopped, heir), asyncio.timeout(60):
        for peer in (stopped, heir):
            await peer("session")
        await stopped("start", id="run")
        ((run, _, _, _),) = await stopped("claim")
        await stopped("append", run=run, fence=1, seq=0)
        await heir("forget_ready")
        stopped.stop()
        ((_, _, fence, crashes),) = await claim_when_ready(heir)
        assert (fence, crashes) == (3, 0)
        await heir("finish", run=run, fence=3, value="heir")
        stopped.go_on()
        assert await stopped("append", run=run, fence=1, seq=1) == "stale"
        assert await stopped("finish", run=run, fence=1, value="stopped") == "stale"
        assert await stopped("await_lost") == [run]
        assert await heir("wait_ended", id="run") == "heir"
        assert await heir("doctor") == []


async def test_a_long_step_keeps_its_claim_while_the_loop_is_blocked(path: Path) -> None:
    async with peers(path, 1, lease=0.6) as (other,), asyncio.timeout(60):
        await other("session")
        bench = await open_bench(path, lease=0.6)
        run = await bench.claimed(await bench.session(), "run")
        time.sleep(3)  # noqa: ASYNC251  a step that blocks the loop for five leases
        assert await other("claim") == []
        assert await other("append", run=run.run, fence=1, seq=0) == "ok"
        assert await bench.status("run") == "running"
        await bench.store.close()


async def test_a_timer_outlives_the_process_that_set_it(path: Path) -> None:
    async with peers(path, 2) as (dying, heir), asyncio.timeout(60):
        for peer in (dying, heir):
            await peer("session")
        await dying("start", id="sleeper")
        ((run, _, _, _),) = await dying("claim")
        await dying("park", run=run, fence=1, after=1.5)
        await heir("forget_ready")
        await dying.kill()
        assert await claim_when_ready(heir) == [[run, "sleeper", 2, 0]]


async def test_closing_a_process_hands_its_runs_on_at_once(path: Path) -> None:
    async with peers(path, 2, lease=600) as (leaving, staying), asyncio.timeout(60):
        for peer in (leaving, staying):
            await peer("session")
        await leaving("start", id="run")
        await leaving("claim")
        await staying("forget_ready")
        await leaving("close")
        assert [run[1:] for run in await claim_when_ready(staying)] == [["run", 2, 0]]


async def test_no_run_is_claimed_by_two_processes(path: Path, scale: Scale) -> None:
    count = scale(200, 2000)
    async with peers(path, 3) as fleet, asyncio.timeout(120):
        for peer in fleet:
            await peer("session")
        for number in range(count):
            await fleet[0]("start", id=f"r{number}")
        found: list[int] = []
        while len(found) < count:
            for peer in fleet:
                await peer.say("claim", limit=7)
            for peer in fleet:
                found += [run for run, _, _, _ in await peer.hear()]
        assert len(set(found)) == count


@pytest.mark.parametrize("durability", ["full", "process"])
async def test_many_processes_write_without_an_error(
    path: Path, durability: Any, scale: Scale
) -> None:
    lives = scale(40, 1000)
    async with peers(path, 8, durability=durability) as fleet, asyncio.timeout(300):
        for peer in fleet:
            await peer("session")
        for peer in fleet:
            await peer.say("write", lives=lives, records=3)
        for peer in fleet:
            assert await peer.hear() == lives
        assert await fleet[0]("doctor") == []
    db = sqlite3.connect(path)
    assert db.execute("SELECT count(*) FROM runs WHERE status = 10").fetchone() == (8 * lives,)
    assert db.execute("SELECT count(*) FROM journal").fetchone() == (8 * lives * 3,)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


async def test_killing_a_writer_again_and_again_loses_nothing(path: Path, scale: Scale) -> None:
    for _ in range(scale(3, 30)):
        async with peers(path, 2) as (dying, living), asyncio.timeout(60):
            for peer in (dying, living):
                await peer("session")
            await dying.say("write", lives=10_000, records=2)
            await living("write", lives=20, records=2)
            await dying.kill()
            assert await living("doctor") == []
    bench = await open_bench(path)
    await bench.session()
    assert await bench.store.doctor() == []
    await bench.store.close()

"""Workers that come in over the network: their sessions outlive connections and servers."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stepwell_queue import (
    Append,
    Claimed,
    Finish,
    Park,
    Record,
    Reschedule,
    Session,
    Settle,
    StaleFence,
    Start,
    Status,
    StoreRefused,
    Verb,
)
from stepwell_queue.sqlite.presence import folder_of
from tests.store.faulty import Faults, io_error
from tests.store.fleet import peers
from tests.store.kit import TASK, WORKFLOW, Bench, Listener, open_bench
from tests.store.remote_kit import Station, open_station

pytestmark = pytest.mark.anyio


@pytest.fixture
async def station(path: Path) -> AsyncIterator[Station]:
    station = await open_station(path)
    yield station
    assert await station.store.doctor() == []
    await station.store.close()


async def test_a_second_server_on_the_file_is_refused(path: Path) -> None:
    first, second = await open_station(path), await open_station(path, adopt=False)
    with pytest.raises(StoreRefused, match=rf"process {os.getpid()} serves this file"):
        await second.sessions.adopt()
    await first.store.close()
    await second.sessions.adopt()
    await second.store.close()
    assert await asyncio.to_thread(_files_beside, path) == []


def _files_beside(path: Path) -> list[str]:
    """What is in the runtime folder; looking makes it, and leaving removes it."""
    folder = folder_of(path)
    names = [file.name for file in folder.iterdir()]
    folder.rmdir()
    return names


async def test_a_remote_worker_that_comes_back_within_its_lease_keeps_its_runs(
    station: Station,
) -> None:
    guest = await station.remote()
    await station.start("run")
    (run,) = await station.claim_as(guest)
    station.sessions.detach("key")
    again = await station.remote(holds={run.run: run.fence})
    assert (again.worker, again.lost_at_open) == (guest.worker, [])
    await station.store.do(Append(run.run, run.fence, [station.record(0)]))
    assert await station.status("run") == "running"


async def test_what_a_lost_answer_claimed_is_released_without_a_crash(station: Station) -> None:
    guest = await station.remote()
    for id in ("kept", "unheard"):
        await station.start(id)
    kept, unheard = await station.claim_as(guest)
    again = await station.remote(holds={kept.run: kept.fence})
    assert again.lost_at_open == []
    assert await station.status("unheard") == "ready"
    (run,) = await station.claim_as(again)
    assert (run.run, run.fence, run.crashes) == (unheard.run, 2, 0)


async def test_a_worker_is_told_what_it_holds_no_longer(station: Station) -> None:
    guest = await station.remote()
    for id in ("held", "older", "taken"):
        await station.start(id)
    held, older, taken = await station.claim_as(guest)
    await station.store.do(Reschedule(taken.run, 1, None))
    other = await station.claim_one(await station.session())
    assert other.id == "taken"
    holds = {held.run: 1, older.run: 0, taken.run: 1, 999: 1}
    again = await station.remote(holds=holds)
    assert again.lost_at_open == [older.run, taken.run, 999]
    assert await station.status("older") == "ready"


async def test_what_it_has_given_up_itself_is_no_loss(station: Station) -> None:
    """Its worker has not heard the answer, says it again, and hears it then."""
    guest = await station.remote()
    for id in ("ended", "parked", "later"):
        await station.start(id)
    ended, parked, later = await station.claim_as(guest)
    verbs: list[Verb[Any]] = [
        Finish(ended.run, 1, Status.COMPLETED, b"", station.clock.now()),
        Park(parked.run, 1, None, "go"),
        Reschedule(later.run, 1, None),
    ]
    for verb in verbs:
        await station.store.do(verb)
    again = await station.remote(holds={ended.run: 1, parked.run: 1, later.run: 1})
    assert again.lost_at_open == []
    for verb in verbs:
        assert not await station.store.do(verb)


async def test_an_unknown_worker_holds_nothing(station: Station) -> None:
    guest = await station.remote(holds={7: 1})
    assert guest.lost_at_open == [7]
    (worker,) = await station.store.workers()
    assert (worker.host, worker.pid, worker.alive) == ("far-away", 4711, True)


async def test_messages_of_the_time_without_a_connection_are_told(station: Station) -> None:
    guest = await station.remote()
    await station.start("run")
    (run,) = await station.claim_as(guest)
    await station.signal("run", "before")
    station.sessions.detach("key")
    await station.signal("run", "meanwhile")
    again = await station.remote(holds={run.run: 1})
    async with asyncio.timeout(10):
        await again.told.wait()
    assert [row.uid for row in again.rows] == ["before", "meanwhile"]
    await again.wait_ready()
    await station.signal("run", "after")
    assert [row.uid for row in again.rows] == ["before", "meanwhile", "after"]
    assert [row.uid for row in guest.rows] == ["before"]


async def test_the_newer_of_two_connections_has_the_session(station: Station) -> None:
    older, newer = await asyncio.gather(station.remote(), station.remote())
    assert older.worker == newer.worker
    older.ready.clear()
    newer.ready.clear()
    await station.start("run")
    assert newer.ready.is_set()
    assert not older.ready.is_set()


async def test_a_connection_that_breaks_while_it_opens_hears_nothing(station: Station) -> None:
    opening = asyncio.create_task(station.remote())
    await asyncio.sleep(0)
    station.sessions.detach("key")
    guest = await opening
    await station.start("run")
    assert not guest.ready.is_set()
    assert station.sessions.beat("key")


async def test_a_worker_that_comes_back_with_other_code_gets_other_work(station: Station) -> None:
    guest = await station.remote(serves=[TASK])
    await station.start("run")
    assert await station.claim_as(guest) == []
    again = await station.remote(serves=[TASK, WORKFLOW])
    (run,) = await station.claim_as(again)
    await station.store.do(Settle(run.run, run.fence, Status.STUCK, b""))
    await station.remote(serves=[TASK, WORKFLOW])
    assert await station.status("run") == "stuck"
    await station.remote(serves=[WORKFLOW])
    assert await station.status("run") == "ready"
    (worker,) = await station.store.workers()
    assert worker.names == ["checkout"]


async def test_a_worker_that_comes_back_with_other_limits_is_held_to_them(station: Station) -> None:
    guest = await station.remote(limits={"another": 1})
    for number in range(3):
        await station.start(f"run-{number}")
    (one,) = await station.claim_as(guest, 1)
    held = {one.run: one.fence}
    assert await station.claim_as(await station.remote(holds=held, limits={"default": 1})) == []
    wider = await station.remote(holds=held, limits={"default": 2})
    (two,) = await station.claim_as(wider)
    held[two.run] = two.fence
    assert len(await station.claim_as(await station.remote(holds=held))) == 1


async def test_a_closed_session_hands_back_without_a_crash(station: Station) -> None:
    guest = await station.remote()
    await station.start("run")
    await station.claim_as(guest)
    await station.sessions.close("key")
    assert not station.sessions.beat("key")
    assert await station.store.workers() == []
    run = await station.claim_one(await station.session())
    assert (run.id, run.crashes) == ("run", 0)


async def test_a_session_that_is_closed_while_it_is_attached_is_gone(station: Station) -> None:
    await station.remote()
    opening = asyncio.create_task(station.remote())
    await asyncio.sleep(0)
    await station.sessions.close("key")
    await opening
    assert not station.sessions.beat("key")
    assert await station.store.workers() == []


async def test_a_worker_that_is_not_heard_of_loses_its_runs_to_a_crash(path: Path) -> None:
    station = await open_station(path, lease=0.3)
    guest, idle = await station.remote(), await station.remote("idle")
    await station.start("run")
    await station.start("progressed")
    run, progressed = await station.claim_as(guest)
    await station.store.do(Append(progressed.run, 1, [station.record(0)]))
    await station.lapse(guest)
    await station.lapse(idle)
    assert not station.sessions.beat("key")
    assert await station.store.workers() == []
    verbs: list[Verb[Any]] = [
        Append(run.run, 1, [station.record(0)]),
        Append(run.run, 1, children=[("0", station.new("child"))]),
        Park(run.run, 1, None, "go"),
        Reschedule(run.run, 1, None, attempts=1),
        Settle(run.run, 1, Status.HELD, b""),
        Finish(run.run, 1, Status.COMPLETED, b"", station.clock.now()),
    ]
    for verb in verbs:
        with pytest.raises(StaleFence):  # although nobody has claimed it yet
            await station.store.do(verb)
    again = await station.remote(holds={run.run: 1})
    assert again.lost_at_open == [run.run]
    assert again.worker not in (guest.worker, idle.worker)
    found = await station.claim_as(again)
    assert [(one.id, one.crashes) for one in found] == [("run", 1), ("progressed", 0)]
    await station.store.close()


@pytest.mark.blocking  # it is what the test is about
async def test_a_server_that_was_stopped_itself_reads_beats_before_it_gives_up(path: Path) -> None:
    station = await open_station(path, lease=0.3)
    await station.remote()
    time.sleep(0.6)  # noqa: ASYNC251  as if the machine had been suspended
    for _ in range(3):
        await asyncio.sleep(0)  # what was due meanwhile happens
    assert station.sessions.beat("key")
    await station.store.close()


async def test_a_worker_that_comes_back_as_it_lapses_is_a_new_one(station: Station) -> None:
    guest = await station.remote()
    await station.start("run")
    (run,) = await station.claim_as(guest)
    sessions = station.sessions
    session = sessions._sessions["key"]  # pyright: ignore[reportPrivateUsage]
    session.state.heard = -1e9  # as after a lease of silence
    sessions._look_at = time.monotonic()  # pyright: ignore[reportPrivateUsage]
    sessions._look()  # pyright: ignore[reportPrivateUsage]
    again = await station.remote(holds={run.run: 1})
    assert again.worker != guest.worker
    assert again.lost_at_open == [run.run]
    assert not guest.lapsed.is_set()
    assert sessions.beat("key")


async def test_beats_keep_a_session(path: Path) -> None:
    station = await open_station(path, lease=0.3)
    guest = await station.remote()
    await station.start("run")
    await station.claim_as(guest)
    with station.beating("key"):
        for _ in range(2):
            await station.lapse(await station.remote("silent"))
    assert not guest.lapsed.is_set()
    assert await station.status("run") == "running"
    await station.store.close()


async def test_the_beat_of_the_server_says_nothing_for_a_silent_worker(path: Path) -> None:
    station = await open_station(path, lease=0.3)
    silent = await station.remote("silent")
    await station.start("run")
    await station.claim_as(silent)
    session = await station.session()
    await station.start("other")
    await station.claim(session)  # has the process beat
    await station.lapse(silent)
    assert await station.status("run") == "ready"
    assert await station.status("other") == "running"
    await station.store.close()


async def test_a_worker_lives_through_a_restart_of_its_server(path: Path) -> None:
    first = await open_station(path)
    guest = await first.remote()
    await first.start("run")
    (run,) = await first.claim_as(guest)
    await first.store.close()

    second = await open_station(path)
    assert [worker.alive for worker in await second.store.workers()] == [True]
    assert await second.status("run") == "running"
    again = await second.remote(holds={run.run: 1})
    assert (again.worker, again.lost_at_open) == (guest.worker, [])
    await second.store.do(Append(run.run, 1, [second.record(0)]))
    await second.signal("run", "u1")
    assert [row.uid for row in again.rows] == ["u1"]
    assert await second.store.doctor() == []
    await second.store.close()


async def test_an_adopted_worker_that_does_not_come_back_lapses(path: Path) -> None:
    first = await open_station(path, lease=0.3)
    await first.start("run")
    await first.claim_as(await first.remote())
    await first.store.close()
    second = await open_station(path, lease=0.3)
    ears = Listener()
    local = await second.session(listener=ears)
    assert await second.status("run") == "running"
    await _claim_when_ready(second, local, ears)
    assert [worker.name for worker in await second.store.workers()] == ["worker"]
    await second.store.close()


async def _claim_when_ready(bench: Bench, session: Session, ears: Listener) -> Claimed:
    """Claim after each hint, since a hint may come without work, until there is some."""
    while True:
        for run in (await bench.claim(session)).runs:
            return run
        await ears.wait_ready()


@pytest.mark.blocking  # starting processes blocks
async def test_workers_of_a_killed_server_keep_their_leases(path: Path) -> None:
    async with peers(path, 1, lease=2.0) as (server,), asyncio.timeout(60):
        worker = await server("serve")
        await server("start", id="run")
        ((run, _),) = await server("claim_remote", worker=worker)
        heir = await open_bench(path, lease=2.0)
        ears = Listener()
        session = await heir.session(listener=ears)
        await server.kill()
        await heir.session()  # which sweeps
        assert await heir.status("run") == "running"
        assert [one.alive for one in await heir.store.workers()] == [True, True, True]
        claimed = await _claim_when_ready(heir, session, ears)
        assert (claimed.run, claimed.crashes) == (run, 1)
        assert len(await heir.store.workers()) == 2
        assert await heir.store.doctor() == []
        await heir.store.close()


@pytest.mark.blocking  # starting processes blocks
async def test_the_next_server_goes_on_with_the_workers_of_a_killed_one(path: Path) -> None:
    async with peers(path, 1, lease=600) as (server,), asyncio.timeout(60):
        worker = await server("serve")
        await server("start", id="run")
        ((run, fence),) = await server("claim_remote", worker=worker)
        second = await open_station(path, adopt=False)
        with pytest.raises(StoreRefused, match=f"process {server.process.pid} serves"):
            await second.sessions.adopt()
        await server.kill()
        await second.sessions.adopt()
        again = await second.remote(holds={run: fence})
        assert (again.worker, again.lost_at_open) == (worker, [])
        await second.store.close()
    assert _files_beside(path) == []


@pytest.mark.blocking  # starting processes blocks
async def test_a_stopped_server_learns_what_its_workers_have_lost(path: Path) -> None:
    async with peers(path, 1, lease=1.5) as (server,), asyncio.timeout(60):
        worker = await server("serve", beating=True)
        await server("start", id="run")
        ((run, fence),) = await server("claim_remote", worker=worker)
        heir = await open_bench(path, lease=1.5)
        ears = Listener()
        session = await heir.session(listener=ears)
        server.stop()
        await _claim_when_ready(heir, session, ears)
        server.go_on()
        assert await server("await_lost") == [run]
        assert await server("append", run=run, fence=fence, seq=0) == "stale"
        assert await heir.store.doctor() == []
        await heir.store.close()


async def test_an_idle_worker_of_a_living_server_is_alive(path: Path, station: Station) -> None:
    await station.remote()
    other = await open_bench(path)
    await asyncio.to_thread(_change, path, "UPDATE workers SET until = 0")
    await other.session()  # which sweeps
    assert [worker.alive for worker in await other.store.workers()] == [True, True]
    assert await _has_code(other)
    await other.store.close()


async def _has_code(bench: Bench) -> bool:
    await bench.start("run", identity=TASK)
    info = await bench.store.info("run")
    assert info is not None
    return info.has_code


async def test_another_boot_ends_the_leases_of_remote_workers(path: Path) -> None:
    first = await open_station(path)
    await first.start("run")
    await first.claim_as(await first.remote())
    await first.store.close()
    await asyncio.to_thread(_change, path, "UPDATE workers SET boot = 'the boot before'")
    bench = await open_bench(path)
    assert [worker.alive for worker in await bench.store.workers()] == [False]
    run = await bench.claim_one(await bench.session())
    assert (run.id, run.crashes) == ("run", 1)
    await bench.store.close()


async def test_a_server_adopts_what_was_served_before_the_machine_restarted(path: Path) -> None:
    first = await open_station(path)
    await first.start("run")
    guest = await first.remote()
    (run,) = await first.claim_as(guest)
    await first.store.close()
    await asyncio.to_thread(_change, path, "UPDATE workers SET boot = 'the boot before', until = 0")
    second = await open_station(path)
    again = await second.remote(holds={run.run: 1})
    assert (again.worker, again.lost_at_open) == (guest.worker, [])
    await second.store.close()


def _change(path: Path, sql: str) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(sql)
    db.close()


async def test_an_outage_of_the_disk_keeps_nobody_from_lapsing(path: Path) -> None:
    faults = Faults()
    station = await open_station(path, lease=0.3, factory=faults.connect)
    guest = await station.remote()
    await station.start("run")
    await station.claim_as(guest)
    faults.arm(0, io_error, times=3)
    await station.lapse(guest)
    assert await station.status("run") == "ready"
    await station.store.close()


async def test_what_is_answered_together_is_told_once(station: Station) -> None:
    told: list[int] = []
    answers: list[object] = []
    station.served.answered = lambda: told.append(len(answers))
    for number in range(3):
        station.store.submit(Start(station.new(f"r{number}")), answers.append)
    station.store.flush()
    await station.store.info("r0")
    station.served.answered = None
    assert told == [3]


@pytest.mark.parametrize("size", [1, 25, 10_000])
async def test_a_journal_is_read_in_pages(station: Station, size: int) -> None:
    run = await station.claimed(await station.session(), "run")
    records = [station.record(seq, value=bytes(10)) for seq in range(7)]
    await station.store.do(Append(run.run, 1, records))
    found: list[Record] = []
    more = True
    while more:
        page, more = await station.served.journal_page(run.run, len(found), size)
        assert len(page) == {1: 1, 25: min(3, 7 - len(found)), 10_000: 7}[size]
        found += page
    assert found == records
    assert await station.served.journal_page(run.run, 7, size) == ([], False)


async def test_an_inbox_is_read_in_pages(station: Station) -> None:
    run = await station.claimed(await station.session(), "run")
    for number in range(5):
        await station.signal("run", f"u{number}", bytes(10))
    (first, *_), more = await station.served.inbox_page(run.run, 0, 1)
    assert more
    await station.store.do(Append(run.run, 1, [station.record(0)], absorbed=[first.id]))
    second, more = await station.served.inbox_page(run.run, 0, 15)
    assert ([row.uid for row in second], more) == (["u1", "u2"], True)
    rest, more = await station.served.inbox_page(run.run, second[-1].id, 10_000)
    assert ([row.uid for row in rest], more) == (["u3", "u4"], False)

"""Processes stopped and killed while steps are in the middle of their work."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from stepwell import Run, Stepwell
from tests.conftest import Scale
from tests.crash import client, flows
from tests.crash.acknowledged import broken_promises
from tests.crash.cluster import Cluster
from tests.crash.gate import Gate
from tests.crash.reconcile import contradictions, read_all

pytestmark = [pytest.mark.anyio, pytest.mark.blocking]  # starting processes blocks

LEASE = 0.8
PATIENCE = 60.0
RESULT = ["a", "b", "c"]


@asynccontextmanager
async def clustered(
    folder: Path, workers: int, stopped: set[int]
) -> AsyncGenerator[tuple[Cluster, Stepwell, Gate]]:
    """Play with a cluster; then all has ended, and only what `stopped` had begun was begun anew."""
    with Cluster(folder, workers, LEASE) as cluster:
        cluster.everybody_is_connected()
        async with (
            asyncio.timeout(PATIENCE),
            Stepwell(cluster.server.address) as app,
            Gate() as gate,
        ):
            yield cluster, app, gate
        cluster.end()
    histories, findings = await read_all(cluster.file)
    assert [*findings, *contradictions(histories, cluster.effects.all(), stopped)] == []
    assert histories


async def start(app: Stepwell, gate: Gate, *names: str) -> list[Run[list[str]]]:
    return [await app.start(flows.held(gate.port), id=name) for name in names]


async def results(runs: list[Run[list[str]]]) -> list[list[str]]:
    return await asyncio.gather(*(run.result() for run in runs))


async def test_a_worker_that_was_stopped_beyond_its_lease_has_lost_its_runs_and_writes_nothing(
    tmp_path: Path,
) -> None:
    stopped: set[int] = set()
    async with clustered(tmp_path, 1, stopped) as (cluster, app, gate):
        (sleeper,) = cluster.workers
        runs = await start(app, gate, "0 ends meanwhile", "1 is cut off")
        ended, cut_off = await gate.next(2)
        stopped.add(sleeper.pid)
        sleeper.send(signal.SIGSTOP)
        other = await asyncio.to_thread(cluster.start_worker)
        for visit in await gate.next(2):
            assert visit.pid == other.pid
            await visit.end("b")
        assert await results(runs) == [RESULT, RESULT]
        await ended.end("written too late")
        sleeper.send(signal.SIGCONT)
        await ended.gone()
        await cut_off.gone()
        other.send(signal.SIGTERM)
        assert await asyncio.to_thread(other.wait) == 0
        later = await start(app, gate, "later")
        (visit,) = await gate.next(1)
        assert visit.pid == sleeper.pid
        await visit.end("b")
        assert await results([*runs, *later]) == [RESULT, RESULT, RESULT]


async def test_a_server_that_was_stopped_beyond_the_lease_takes_no_worker_for_dead(
    tmp_path: Path, scale: Scale
) -> None:
    async with clustered(tmp_path, 2, set()) as (cluster, app, gate):
        runs = await start(app, gate, "0 ends meanwhile", "1 ends later")
        meanwhile, later = await gate.next(2)
        before = await app.workers()
        cluster.server.send(signal.SIGSTOP)
        await meanwhile.end("b")
        starting = asyncio.create_task(start(app, gate, "2 started meanwhile"))
        await asyncio.sleep(scale(2, 30) * LEASE)  # that this time passes is what is tested
        cluster.server.send(signal.SIGCONT)
        runs += await starting
        (new,) = await gate.next(1)
        assert new.run == "2 started meanwhile"
        await asyncio.sleep(LEASE * 1.5)  # likewise: a worker taken for dead would be so by now
        await new.end("b")
        await later.end("b")
        assert await results(runs) == [RESULT, RESULT, RESULT]
        after = await app.workers()
        assert {one.worker for one in after} == {one.worker for one in before}


async def test_a_step_is_executed_once_when_the_server_is_killed_in_the_middle_of_it(
    tmp_path: Path,
) -> None:
    async with clustered(tmp_path, 2, set()) as (cluster, app, gate):
        runs = await start(app, gate, "0 ends meanwhile", "1 ends later")
        meanwhile, later = await gate.next(2)
        cluster.server.kill()
        await meanwhile.end("b")
        await asyncio.sleep(LEASE * 1.2)  # that this time passes is what is tested
        await asyncio.to_thread(cluster.server.start)
        assert await runs[0].result() == RESULT
        await asyncio.sleep(LEASE * 1.5)  # likewise: the next server has to hear of the worker
        await later.end("b")
        assert await results(runs) == [RESULT, RESULT]


@pytest.mark.soak
async def test_a_worker_that_slept_while_the_server_was_killed_finds_that_it_has_lost_its_runs(
    tmp_path: Path,
) -> None:
    stopped: set[int] = set()
    async with clustered(tmp_path, 1, stopped) as (cluster, app, gate):
        (sleeper,) = cluster.workers
        runs = await start(app, gate, "0 ends meanwhile", "1 is cut off")
        ended, cut_off = await gate.next(2)
        stopped.add(sleeper.pid)
        sleeper.send(signal.SIGSTOP)
        cluster.server.kill()
        await asyncio.to_thread(cluster.server.start)
        await asyncio.to_thread(cluster.start_worker)
        for visit in await gate.next(2):
            await visit.end("b")
        assert await results(runs) == [RESULT, RESULT]
        await ended.end("written too late")
        sleeper.send(signal.SIGCONT)
        await ended.gone()
        await cut_off.gone()


@pytest.mark.soak
async def test_a_worker_on_the_file_takes_over_from_a_server_that_was_stopped_beyond_the_lease(
    tmp_path: Path,
) -> None:
    stopped: set[int] = set()
    async with clustered(tmp_path, 1, stopped) as (cluster, app, gate):
        runs = await start(app, gate, "0 ends meanwhile", "1 is cut off")
        ended, cut_off = await gate.next(2)
        stopped.add(cluster.workers[0].pid)
        other = await asyncio.to_thread(cluster.start_worker, cluster.file)
        cluster.server.send(signal.SIGSTOP)
        await ended.end("written too late")
        for visit in await gate.next(2):
            assert visit.pid == other.pid
            await visit.end("b")
        cluster.server.send(signal.SIGCONT)
        await cut_off.gone()
        assert await results(runs) == [RESULT, RESULT]


def test_a_server_that_is_stopped_in_order_under_load_loses_and_repeats_nothing(
    tmp_path: Path, scale: Scale
) -> None:
    runs = scale(50, 1080)
    with Cluster(tmp_path, 2, LEASE) as cluster:
        customer = cluster.start_client(runs, "in order")
        for moment in range(runs // 2, runs * 2, runs * 3 // scale(2, 12)):
            cluster.wait_for_effects(moment)
            cluster.everybody_is_connected()
            cluster.server.send(signal.SIGTERM)
            assert cluster.server.wait() == 0
            cluster.server.start()
        assert customer.wait() == 0
        cluster.end()
    histories, findings = asyncio.run(read_all(cluster.file))
    problems = [*findings, *contradictions(histories, cluster.effects.all(), set())]
    problems += broken_promises(client.read(cluster.diary), histories, runs, 0)
    assert problems == []

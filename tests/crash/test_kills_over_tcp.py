"""Server, workers and client killed with SIGKILL under load: everything ends, once."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from random import Random

import pytest

from tests.conftest import Scale
from tests.crash import client
from tests.crash.acknowledged import broken_promises
from tests.crash.cluster import Cluster, Process
from tests.crash.expected import executors
from tests.crash.reconcile import contradictions, read_all

WORKERS = 3
LEASE = 1.0
VICTIMS = ("server", "worker", "client", "server and worker and client")
ROUNDS = 20 if os.environ.get("STEPWELL_SOAK") else 2


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_whoever_is_killed_nothing_acknowledged_is_lost_and_no_step_is_recorded_twice(
    seed: int, tmp_path: Path, scale: Scale
) -> None:
    rng = Random(seed)
    runs = scale(110, 1080)
    victims = rng.sample(VICTIMS * scale(1, 4), scale(3, 16))  # any three kill each kind
    with Cluster(tmp_path, WORKERS, LEASE) as cluster:
        customer = cluster.start_client(runs, str(seed), phases=len(victims) + 1)
        for victim, moment in zip(victims, moments(runs, len(victims), rng), strict=True):
            cluster.wait_for_effects(moment)
            kill(victim, cluster, customer)
            cluster.next_phase()
        assert customer.wait() == 0
        cluster.end()
    histories, findings = asyncio.run(read_all(cluster.file))
    effects, killed = cluster.effects.all(), cluster.killed_workers
    problems = [*findings, *contradictions(histories, effects, killed)]
    diary = client.read(cluster.diary)
    problems += broken_promises(diary, histories, runs, len(customer.killed))
    assert problems == [], f"seed {seed}, kills: {victims}"
    repeated = sum(len(processes) - 1 for processes in executors(effects).values())
    assert repeated, "no kill hit a step, so this round shows nothing"
    print(
        f"seed {seed}: {len(histories)} runs, {len(effects)} executions, {repeated} of them "
        f"repeated; killed {len(cluster.server.killed)} servers, {len(killed)} workers, "
        f"{len(customer.killed)} clients"
    )


def moments(runs: int, count: int, rng: Random) -> list[int]:
    """Choose a moment in each phase but the last, as a number of effects: two of a run are sure."""
    apart = runs * 2 // (count + 1)
    return [apart * phase + rng.randrange(apart // 4, apart) for phase in range(count)]


def kill(victim: str, cluster: Cluster, customer: Process) -> None:
    """Kill what `victim` names, all of it before any of it is started again."""
    kinds: dict[str, Process] = {
        "server": cluster.server,
        "worker": cluster.busy_worker(),
        "client": customer,
    }
    killed = [kinds[kind] for kind in victim.split(" and ")]
    for process in killed:
        process.kill()
    for process in killed:
        process.start()

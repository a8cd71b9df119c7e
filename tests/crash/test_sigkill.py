"""Workers killed with SIGKILL under load: everything ends, once, as if nobody had been killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from stepwell import Run, RunCancelled, Stepwell
from tests.conftest import Scale
from tests.crash import flows
from tests.crash.effects import Effects
from tests.crash.expected import RESULTS, executors
from tests.crash.fleet import Fleet
from tests.crash.reconcile import contradictions, read_all

LONGEST = 180.0
ROUNDS = 10 if os.environ.get("STEPWELL_SOAK") else 1


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_runs_under_sigkill_all_end_and_no_step_is_recorded_twice(
    workers: int, seed: int, tmp_path: Path, scale: Scale
) -> None:
    rng = Random(f"{workers} {seed}")
    file = tmp_path / "orders.db"
    effects = Effects(tmp_path / "effects")
    with Fleet(file, effects, workers, rng) as fleet:
        runs = scale(360, 1080)
        results = asyncio.run(_work(file, fleet, runs, kills=scale(6, 12), rng=rng))
        # One that was started only just now has no handler for SIGTERM yet.
        assert set(fleet.terminate()) <= {0, -signal.SIGTERM}
    histories, findings = asyncio.run(read_all(file))
    problems = [*_wrong_results(results), *findings]
    problems += contradictions(histories, effects.all(), fleet.killed)
    assert any(len(processes) > 1 for processes in executors(effects.all()).values()), (
        "no kill hit a step, so this round shows nothing"
    )
    assert problems == [], f"seed {seed}, {workers} workers, {len(fleet.killed)} kills"


async def _work(file: Path, fleet: Fleet, count: int, kills: int, rng: Random) -> dict[str, object]:
    async with Stepwell(file) as app, asyncio.timeout(LONGEST), asyncio.TaskGroup() as group:
        group.create_task(fleet.kill_at_random(kills, apart=count * 3 // (kills + 1)))
        results: dict[str, object] = {}
        for number, kind in enumerate(flows.mixed(count, rng)):
            run = await app.start(flows.KINDS[kind](number), id=f"{kind}-{number}")
            group.create_task(_tell(run, kind, rng.random() * 2.0))
            group.create_task(_outcome(run, results))
    return results


async def _tell(run: Run[Any], kind: str, delay: float) -> None:
    if kind in ("asking", "withdrawn"):
        await asyncio.sleep(delay)  # early or late: both must do
        if kind == "asking":
            await run.signal(flows.approved, "yes")
        else:
            await run.cancel()


async def _outcome(run: Run[Any], results: dict[str, object]) -> None:
    try:
        results[run.id] = await run.result()
    except (flows.Declined, RunCancelled) as error:
        results[run.id] = type(error)


def _wrong_results(results: dict[str, object]) -> Iterable[str]:
    for id, result in results.items():
        kind = id.partition("-")[0]
        ends = {"failing": flows.Declined, "withdrawn": RunCancelled}
        if result != (ends.get(kind) or RESULTS[kind]):
            yield f"{id} returned {result!r}"

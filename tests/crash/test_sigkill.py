"""Workers killed with SIGKILL under load: everything ends, once, as if nobody had been killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from stepwell import Run, RunCancelled, Stepwell
from stepwell_queue import (
    History,
    RandomIds,
    RecordKind,
    Rollback,
    RunFilter,
    SystemClock,
    open_store,
)
from tests.conftest import Scale
from tests.crash import flows
from tests.crash.expected import RESULTS, differences, executors, unexplained_repeats
from tests.crash.fleet import Fleet

KINDS = {
    "linear": flows.linear,
    "branching": flows.branching,
    "napping": flows.napping,
    "asking": flows.asking,
    "retrying": flows.retrying,
    "remote": flows.remote,
    "parent": flows.parent,
    "failing": flows.failing,
    "withdrawn": flows.withdrawn,
}
LONGEST = 180.0
ROUNDS = 10 if os.environ.get("STEPWELL_SOAK") else 1


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_runs_under_sigkill_all_end_and_no_step_is_recorded_twice(
    workers: int, seed: int, tmp_path: Path, scale: Scale
) -> None:
    rng = Random(f"{workers} {seed}")
    file = tmp_path / "orders.db"
    with Fleet(file, tmp_path / "effects", workers, rng) as fleet:
        runs = scale(360, 1080)
        results = asyncio.run(_work(file, fleet, runs, kills=scale(6, 12), rng=rng))
        # One that was started only just now has no handler for SIGTERM yet.
        assert set(fleet.terminate()) <= {0, -signal.SIGTERM}
    histories, findings = asyncio.run(_read_all(file))
    problems = [*_wrong_results(results), *findings, *_repeated(histories)]
    problems += _wrong_effects(fleet, histories)
    problems += unexplained_repeats(fleet.effects(), fleet.killed)
    assert any(len(processes) > 1 for processes in executors(fleet.effects()).values()), (
        "no kill hit a step, so this round shows nothing"
    )
    assert problems == [], f"seed {seed}, {workers} workers, {len(fleet.killed)} kills"


async def _work(file: Path, fleet: Fleet, count: int, kills: int, rng: Random) -> dict[str, object]:
    async with Stepwell(file) as app, asyncio.timeout(LONGEST), asyncio.TaskGroup() as group:
        names = rng.sample([*KINDS] * (count // len(KINDS)), count // len(KINDS) * len(KINDS))
        group.create_task(fleet.kill_at_random(kills, apart=count * 3 // (kills + 1)))
        results: dict[str, object] = {}
        for number, kind in enumerate(names):
            run = await app.start(KINDS[kind](number), id=f"{kind}-{number}")
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


async def _read_all(file: Path) -> tuple[list[History], list[str]]:
    clock = SystemClock()
    store = await open_store(file, clock=clock, ids=RandomIds(clock))
    try:
        findings = await store.doctor()
        histories: list[History] = []
        after: int | None = None
        while page := await store.list_runs(RunFilter(after=after, limit=500)):
            found = [await store.history(info.id) for info in page]
            histories += [history for history in found if history is not None]
            after = page[-1].run
        return histories, [str(finding) for finding in findings]
    finally:
        await store.close()


def _wrong_results(results: dict[str, object]) -> Iterable[str]:
    for id, result in results.items():
        kind = id.partition("-")[0]
        ends = {"failing": flows.Declined, "withdrawn": RunCancelled}
        if result != (ends.get(kind) or RESULTS[kind]):
            yield f"{id} returned {result!r}"


def _repeated(histories: list[History]) -> Iterable[str]:
    for history in histories:
        steps = Counter(
            record.path
            for record in history.journal
            if record.kind in (RecordKind.STEP_OK, RecordKind.STEP_FAILED)
        )
        yield from (f"{history.run.id}: {p} recorded {n} times" for p, n in steps.items() if n > 1)
        if [record.seq for record in history.journal] != list(range(len(history.journal))):
            yield f"{history.run.id}: the journal has a gap"
        if not history.run.status >= 10:
            yield f"{history.run.id} is {history.run.status_name}"
        if history.run.rollback == Rollback.INCOMPLETE:
            yield f"{history.run.id}: its rollback is incomplete"


def _wrong_effects(fleet: Fleet, histories: list[History]) -> Iterable[str]:
    by_run: defaultdict[str, list[flows.Effect]] = defaultdict(list)
    for effect in fleet.effects():
        by_run[effect.run].append(effect)
    for history in histories:
        kind = history.run.name
        for problem in differences(kind, by_run.pop(history.run.id, [])):
            yield f"{history.run.id} ({kind}): {problem}"
    yield from (f"effects of a run that nobody knows: {id}" for id in by_run)

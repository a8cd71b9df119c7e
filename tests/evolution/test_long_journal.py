"""A long journal is replayed, and its run resumed, at a cost that is proportional to it."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from bench import replay
from bench.replay import exported, go, long_run
from stepwell import Stepwell
from stepwell_queue import Identity, Kind, RandomIds, SystemClock
from stepwell_queue.contract import Ask, ImportRuns
from stepwell_queue.sqlite.store import open_sqlite
from tests.store.kit import Bench
from tests.store.test_plain_path import Statements

pytestmark = pytest.mark.anyio
LONG = 60.0


async def resumed(app: Stepwell, steps: int) -> int:
    """Resume such a run, and return how many bytes it took at most."""
    id = f"run-{steps}"
    await app.signal(id, go, 5)
    tracemalloc.start()
    try:
        await app.resume(id)
        assert await app.get(id).result(timeout=LONG) == steps + 5
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def test_a_run_with_ten_thousand_records_takes_ten_times_the_memory_of_one_with_a_tenth(
    tmp_path: Path,
) -> None:
    app = Stepwell(tmp_path / "runs.db", include=[replay], durability="process")
    async with app, app.worker():
        for steps in (100, 1000, 10_000):
            await app.import_runs(exported(steps))
        tried = [one async for one in app.replay(status="paused")]
        assert [(one.records, one.message) for one in tried] == [
            (10_000, ""), (1000, ""), (100, ""),
        ]  # fmt: skip
        await resumed(app, 100)  # what is made once
        small, large = await resumed(app, 1000), await resumed(app, 10_000)
        assert large < 12 * small
        assert len((await app.history("run-10000")).events) == 10_001


async def statements_of_a_claim(path: Path, steps: int) -> int:
    """Return how many statements the claim of a run with so many records takes."""
    heard, clock = Statements(), SystemClock()
    store = await open_sqlite(
        path, durability="process", clock=clock, ids=RandomIds(clock), lease=15.0,
        factory=heard.connect,
    )  # fmt: skip
    bench = Bench(store, clock, path)
    session = await bench.session(Identity(Kind.WORKFLOW, "long journal", 1))
    await store.do(ImportRuns([long_run(steps)], "i1", "", "", clock.now()))
    await store.do(Ask(f"run-{steps}", "r1", "resume", "", "", clock.now()))
    heard.heard.clear()
    claimed = await bench.claim_one(session)
    assert len(claimed.journal) == steps
    count = heard.heard.total()
    await store.close()
    return count


async def test_a_run_with_many_records_is_claimed_with_as_many_statements_as_one_with_few(
    tmp_path: Path,
) -> None:
    few = await statements_of_a_claim(tmp_path / "few.db", 10)
    many = await statements_of_a_claim(tmp_path / "many.db", 10_000)
    assert 0 < many == few < 20

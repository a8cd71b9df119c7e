"""What a run is addressed to has a number, which is remembered only as long as it is there."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from stepwell_queue import Append, IdConflict, Kind, Start, StartMany
from stepwell_queue.contract import Identity
from tests.store.kit import TASK, WORKFLOW, Bench, open_bench

pytestmark = pytest.mark.anyio

OTHER = Identity(Kind.TASK, "other", 1)


async def test_a_target_of_a_start_that_was_refused_is_made_again(bench: Bench) -> None:
    await bench.start("taken")
    conflict = bench.new("taken", TASK)
    with pytest.raises(IdConflict):
        await bench.store.do(StartMany([bench.new("first", OTHER), conflict]))
    await bench.start("second", identity=OTHER)
    session = await bench.session(OTHER)
    assert (await bench.claim_one(session)).id == "second"


async def test_a_target_of_children_that_were_refused_is_made_again(bench: Bench) -> None:
    await bench.start("taken")
    session = await bench.session()
    run = await bench.claim_one(session)
    children = [("0", bench.new("first", OTHER)), ("1", bench.new("taken", OTHER))]
    with pytest.raises(IdConflict):
        await bench.store.do(Append(run.run, run.fence, children=children))
    await bench.start("second", identity=OTHER)
    assert (await bench.claim_one(await bench.session(OTHER))).id == "second"


async def test_two_stores_give_a_target_one_number(path: Path) -> None:
    first, second = await open_bench(path), await open_bench(path)
    await first.start("a", identity=OTHER)
    await second.start("b", identity=OTHER)
    await second.start("c", identity=WORKFLOW)
    await first.start("d", identity=WORKFLOW)
    await first.store.close()
    await second.store.close()
    db = sqlite3.connect(path)
    assert db.execute("SELECT count(DISTINCT target), count(*) FROM runs").fetchone() == (2, 4)
    db.close()


async def test_more_targets_than_are_remembered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell_queue.sqlite.tx._MOST_TARGETS", 2)
    for _ in range(2):
        for queue in ("a", "b", "c"):
            await bench.store.do(Start(bench.new(queue=queue)))
    session = await bench.session(queues=("a", "b", "c"))
    claimed = (await bench.claim(session)).runs
    assert sorted(run.queue for run in claimed) == ["a", "a", "b", "b", "c", "c"]

"""Deleting what has ended."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from stepwell_queue import (
    Append,
    Finish,
    OpenOp,
    Prune,
    RunFilter,
    RunNotFound,
    Status,
)
from stepwell_queue.contract import (
    Ask,
    EndedFilter,
    EndedTree,
    FindPrunable,
    Keep,
    KeepNames,
    LeaseUpkeep,
    ListKept,
    NamedKeep,
)
from stepwell_queue.sqlite.verbs_prune import TABLES
from tests.store.kit import TASK, WORKFLOW, Bench, ManualClock, open_bench

pytestmark = pytest.mark.anyio


async def end(bench: Bench, id: str, at: float, *, value: bytes = b"") -> None:
    run = await bench.claimed(await bench.session(), id, args=b"a" * 2000)
    await bench.store.do(
        Append(run.run, 1, [bench.record(0)], opened=[OpenOp("1", "wait", "", None)])
    )
    await bench.signal(id, "u")
    await bench.store.do(Finish(run.run, 1, Status.COMPLETED, value, at))


async def left(bench: Bench) -> list[str]:
    runs = await bench.store.list_runs(RunFilter(limit=1000))
    return sorted(run.id for run in runs)


async def prune(
    bench: Bench, before: float | None = None, keep: int | None = None, limit: int = 100
) -> int:
    return await bench.prune(before, keep, limit=limit)


async def test_what_ended_before_a_time_goes_with_all_that_belongs_to_it(bench: Bench) -> None:
    for n in range(5):
        await end(bench, f"r{n}", float(n), value=b"v" * 5000)
    await bench.start("alive")
    assert await prune(bench, before=3.0) == 3
    assert await left(bench) == ["alive", "r3", "r4"]
    assert await prune(bench, before=3.0) == 0
    history = await bench.store.history("r3")
    assert history is not None
    assert len(history.journal) == 1
    assert await bench.store.history("r0") is None


async def test_all_but_the_newest_go(bench: Bench) -> None:
    for n in range(5):
        await end(bench, f"r{n}", float(n))
    assert await prune(bench, keep=2) == 3
    assert await left(bench) == ["r3", "r4"]
    assert await prune(bench, keep=9) == 0
    assert await prune(bench, keep=0) == 1


async def test_either_reason_is_enough(bench: Bench) -> None:
    for n in range(5):
        await end(bench, f"r{n}", float(n))
    assert await prune(bench, before=1.0, keep=2) == 3
    assert await prune(bench) == 0


async def test_a_pass_is_bounded_and_takes_the_oldest(bench: Bench) -> None:
    for n in range(5):
        await end(bench, f"r{n}", 10.0 - n)
    await bench.start("alive")
    assert await prune(bench, before=99.0, limit=2) == 2
    assert await left(bench) == ["alive", "r0", "r1", "r2"]
    assert await prune(bench, before=99.0, limit=0) == 0


async def test_trees_go_as_a_whole_and_only_when_all_of_it_has_ended(bench: Bench) -> None:
    session = await bench.session()
    parent = await bench.claimed(session, "parent")
    children = [("0", bench.new("a", identity=TASK)), ("1", bench.new("b", identity=TASK))]
    await bench.store.do(Append(parent.run, 1, children=children))
    a, b = (await bench.claim(session)).runs
    await bench.start("newest")
    await bench.store.do(Finish(a.run, 1, Status.COMPLETED, b"", 1.0, parent=parent.run))
    assert await prune(bench, before=99.0) == 0
    await bench.store.do(Finish(parent.run, 1, Status.COMPLETED, b"", 2.0))
    assert await prune(bench, before=99.0) == 0
    await bench.store.do(Finish(b.run, 1, Status.COMPLETED, b"", 3.0, parent=parent.run))
    assert await prune(bench, before=99.0, limit=1) == 3
    assert await left(bench) == ["newest"]


async def test_runs_that_must_stay_do_not_hide_those_that_can_go(bench: Bench) -> None:
    session = await bench.session()
    for n in range(20):
        parent = await bench.claimed(session, f"p{n}")
        later = bench.new(f"c{n}", identity=TASK, due=9e12)
        await bench.store.do(Append(parent.run, 1, children=[("", later)]))
        await bench.store.do(Finish(parent.run, 1, Status.COMPLETED, b"", float(n)))
    await end(bench, "old", 50.0)
    await bench.start("newest")
    assert await prune(bench, before=99.0, limit=5) == 1
    assert await bench.store.info("old") is None


async def test_the_number_of_a_deleted_run_is_not_given_out_again(bench: Bench) -> None:
    await end(bench, "first", 1.0)
    info = await bench.store.info("first")
    assert info is not None
    assert await prune(bench, before=99.0) == 0
    started = await bench.start("second")
    assert started.run > info.run
    assert await prune(bench, before=99.0) == 1


async def test_deleting_while_others_work(bench: Bench) -> None:
    for n in range(10):
        await end(bench, f"r{n}", float(n))
    await asyncio.gather(
        *(bench.start(f"s{n}") for n in range(10)), *(prune(bench, keep=3) for _ in range(3))
    )
    assert len(await left(bench)) == 13


async def test_waiting_in_another_process_ends_when_the_run_has_ended_and_is_deleted(
    bench: Bench, path: Path
) -> None:
    run = await bench.claimed(await bench.session(), "run")
    other = await open_bench(path)
    waiting = asyncio.ensure_future(other.store.wait_ended("run"))
    await other.start("newest")  # so that the wait has begun, and the run may go
    finish = Finish(run.run, run.fence, Status.COMPLETED, b"", bench.clock.now())
    tree = EndedTree(run.run, "run", finish.at, 1, run.fence)
    await asyncio.gather(bench.store.do(finish), bench.store.do(Prune([tree])))
    with pytest.raises(RunNotFound):
        async with asyncio.timeout(10):
            await waiting
    await other.store.close()


def of_ended_runs(path: Path) -> set[str]:
    """The tables that have a column for the number of a run."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        return {
            name
            for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            if any(column[1] == "run" for column in db.execute(f"PRAGMA table_info({name})"))
        }


async def test_no_table_keeps_rows_of_runs_that_are_deleted(bench: Bench, path: Path) -> None:
    await bench.start("run")
    # ticks say what became of a schedule, and dependencies are of runs that wait
    assert of_ended_runs(path) - {"ticks", "dependencies"} == set(TABLES)


async def found(bench: Bench, **which: Any) -> list[EndedTree]:
    now = bench.clock.now()
    trees = await bench.store.read(FindPrunable(EndedFilter(**which), None, now, 100))
    return list(trees)


async def test_names_and_statuses_choose_among_ended_runs(bench: Bench) -> None:
    session = await bench.session()
    for name, status in (("checkout", 10), ("checkout", 11), ("mail", 12)):
        identity = TASK if name == "mail" else WORKFLOW
        run = await bench.claimed(session, f"{name}-{status}", identity=identity)
        await bench.store.do(Finish(run.run, 1, status, b"", float(status)))
    await bench.start("newest")

    async def ids(**which: Any) -> list[str]:
        return [tree.id for tree in await found(bench, **which)]

    assert await ids(name="checkout") == ["checkout-10", "checkout-11"]
    assert await ids(but_names=["checkout"]) == ["mail-12"]
    assert await ids(statuses=[11, 12]) == ["checkout-11", "mail-12"]
    assert await ids(name="mail", statuses=[11]) == []
    assert await bench.prune(keep=1, statuses=[10, 11]) == 1
    assert await left(bench) == ["checkout-11", "mail-12", "newest"]


async def test_a_tree_that_is_not_as_it_was_found_stays(bench: Bench) -> None:
    run = await bench.claimed(await bench.session(), "run")
    await bench.store.do(Finish(run.run, 1, Status.FAILED, b"", 1.0))
    await bench.start("newest")
    trees = await found(bench)
    await bench.store.do(Ask("run", "u", "retry", "", "", bench.clock.now()))
    assert await bench.store.do(Prune(trees)) == 0
    again = (await bench.claim(await bench.session())).runs[0]
    await bench.store.do(Finish(again.run, again.fence, Status.FAILED, b"", 2.0))
    assert await bench.store.do(Prune(trees)) == 0  # what was archived is not what there is now
    trees = await found(bench)
    assert [await bench.store.do(Prune(trees)) for _ in range(2)] == [1, 1]  # said again
    assert await left(bench) == ["newest"]


async def test_what_is_said_of_names_is_kept_until_it_is_taken_back(bench: Bench) -> None:
    rule = NamedKeep("a", Keep(60.0), {11: Keep(None, 5)})
    await bench.store.do(KeepNames([NamedKeep("b", Keep()), rule]))
    assert await bench.store.read(ListKept()) == [rule, NamedKeep("b", Keep())]
    await bench.store.do(KeepNames([NamedKeep("a", Keep(1.0)), NamedKeep("b", None)]))
    assert await bench.store.read(ListKept()) == [NamedKeep("a", Keep(1.0))]


async def test_one_at_a_time_archives(timed: Bench, clock: ManualClock) -> None:
    async def asks(holder: str) -> bool:
        return await timed.store.do(LeaseUpkeep(holder, clock.now() + 60))

    assert [await asks(holder) for holder in ("a", "b", "a")] == [True, False, True]
    clock.move(60)
    assert [await asks(holder) for holder in ("b", "a")] == [True, False]

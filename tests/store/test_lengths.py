"""How many runs are ready in a queue with a longest length is known, and seldom counted."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from stepwell_queue import (
    Append,
    CancelRun,
    Claim,
    Finish,
    OpenOp,
    QueueFull,
    RandomIds,
    Reschedule,
    Start,
    StartMany,
    Status,
    SystemClock,
)
from stepwell_queue.contract import QueueSettings, SetQueue
from stepwell_queue.sqlite.store import open_sqlite
from tests.store.kit import TASK, Bench, ManualClock
from tests.store.test_plain_path import Statements

pytestmark = pytest.mark.anyio


async def bounded(bench: Bench, length: int, runs: int) -> None:
    await bench.store.do(SetQueue("default", QueueSettings(max_length=length)))
    await bench.store.do(
        StartMany([bench.new(f"r{number}", identity=TASK) for number in range(runs)])
    )


async def together(bench: Bench, *verbs: Any) -> list[Any]:
    """What each is answered, all in one transaction."""
    answers: list[Any] = []
    for verb in verbs[:-1]:
        bench.store.submit(verb, answers.append)
    try:
        last: Any = await bench.store.do(verbs[-1])
    except QueueFull as full:
        last = full
    return [*answers, last]


def start(bench: Bench, id: str) -> Start:
    return Start(bench.new(id, identity=TASK))


async def test_what_is_cancelled_makes_room_in_the_same_transaction(bench: Bench) -> None:
    await bounded(bench, 2, 2)
    cancel = CancelRun("r0", "u", b"", bench.clock.now())
    answers = await together(bench, start(bench, "no"), cancel, start(bench, "yes"))
    assert isinstance(answers[0], QueueFull)
    assert answers[-1].created


async def test_what_goes_back_and_children_take_room_in_the_same_transaction(bench: Bench) -> None:
    await bounded(bench, 3, 1)
    session = await bench.session()
    parent = await bench.claim_one(session)
    back = Reschedule(parent.run, 1, None)
    answers = await together(bench, start(bench, "a"), start(bench, "b"), back, start(bench, "no"))
    assert isinstance(answers[-1], QueueFull)
    parent = (await bench.claim(session, 2)).runs[-1]
    child = bench.new("child", identity=TASK)
    opened = [OpenOp("0", "child", "mail", None)]
    more = Append(parent.run, parent.fence, children=[("0", child)], opened=opened)
    answers = await together(bench, start(bench, "c"), more, start(bench, "no"))
    assert isinstance(answers[-1], QueueFull)


async def test_what_comes_due_takes_room(timed: Bench, clock: ManualClock) -> None:
    await bounded(timed, 2, 1)
    await timed.start("later", identity=TASK, due=clock.now() + 5)
    await timed.session()
    clock.move(6)
    claim = Claim((await timed.session()).worker, 0, {}, idle=False)
    answers = await together(timed, claim, start(timed, "no"))
    assert isinstance(answers[-1], QueueFull)


async def test_what_has_crashed_twice_takes_room(path: Path, bench: Bench) -> None:
    await bounded(bench, 1, 1)
    db = sqlite3.connect(path)
    with db:
        db.execute("UPDATE runs SET crashes = 2")
    db.close()
    with pytest.raises(QueueFull):
        await bench.start("no", identity=TASK)


async def test_what_other_processes_start_and_claim_counts(path: Path) -> None:
    clock = SystemClock()
    benches: list[Bench] = []
    for _ in range(2):
        store = await open_sqlite(
            path, durability="process", clock=clock, ids=RandomIds(clock), lease=15.0
        )
        benches.append(Bench(store, clock, path))
    one, other = benches
    await bounded(one, 3, 1)
    await other.start("b", identity=TASK)
    await one.start("c", identity=TASK)
    for bench in benches:
        with pytest.raises(QueueFull):
            await bench.start("no", identity=TASK)
    await other.claim(await other.session(), 2)
    await one.start("d", identity=TASK)
    await other.start("e", identity=TASK)
    for bench in benches:
        with pytest.raises(QueueFull):
            await bench.start("no", identity=TASK)
    for bench in benches:
        await bench.store.close()


@pytest.mark.parametrize("full", [False, True])
async def test_a_queue_is_not_counted_with_each_transaction(path: Path, full: bool) -> None:
    statements = Statements()
    clock = SystemClock()
    store = await open_sqlite(
        path, durability="process", clock=clock, ids=RandomIds(clock), lease=15.0,
        factory=statements.connect,
    )  # fmt: skip
    bench = Bench(store, clock, path)
    await bounded(bench, 20 if full else 100, 20)
    session = await bench.session()
    await bench.start("warm", identity=TASK, queue="other")
    statements.heard.clear()
    for number in range(10):
        runs = (await bench.claim(session, 2)).runs
        await bench.start(f"a{number}", identity=TASK)
        await bench.start(f"b{number}", identity=TASK)
        if full:
            with pytest.raises(QueueFull):
                await bench.start("no", identity=TASK)
        for run in runs:
            await store.do(Finish(run.run, 1, Status.COMPLETED, b"", clock.now(), clean=True))
    counts = [
        count for sql, count in statements.heard.items() if sql.startswith("SELECT count(*) FROM (")
    ]
    assert sum(counts) <= 1
    await store.close()

"""What may take long is not executed on the event loop."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from stepwell_queue import Prune, RandomIds, RunNotFound, StartMany, SystemClock, Terms
from stepwell_queue.contract import (
    Append,
    EndedTree,
    Fork,
    NewRun,
    PurgeDeadLetters,
    PurgeQueue,
    Requeue,
    RunSchedule,
    Terminate,
    Tick,
)
from stepwell_queue.contract.check import WEIGHTS
from stepwell_queue.sqlite.store import open_sqlite
from tests.store.kit import TASK, Bench

pytestmark = pytest.mark.anyio

IDS = [f"run-{number}" for number in range(600)]
NEW = NewRun("fork", TASK.kind, TASK.name, TASK.version, "default", b"", bytes(16), 1, 1.0)


@pytest.mark.parametrize(
    ("verb", "on_loop"),
    [
        (PurgeQueue("default", 1000, b"", 1.0), False),
        (Prune([EndedTree(9, "id", 1.0, 500, 0)]), False),
        (Requeue(IDS, "uid", "", "", 1.0), False),
        (PurgeDeadLetters(IDS), False),
        (Terminate("parent", "uid", b"", 1.0), False),
        (Fork("source", 600, NEW, "uid", 1.0), False),
        (Fork("source", 10, NEW, "uid", 1.0), True),
        (PurgeQueue("default", 10, b"", 1.0), True),
        (Prune([EndedTree(9, "id", 1.0, 10, 0)]), True),
        (Requeue(IDS[:10], "uid", "", "", 1.0), True),
        (PurgeDeadLetters(IDS[:10]), True),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_may_change_many_runs_leaves_the_loop_alone(
    path: Path, verb: Any, on_loop: bool
) -> None:
    threads: set[int] = set()

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = sqlite3.connect(*arguments, **options)
        db.set_trace_callback(lambda sql: threads.add(threading.get_ident()))
        return db

    clock = SystemClock()
    store = await open_sqlite(
        path, durability="process", clock=clock, ids=RandomIds(clock), lease=15.0, factory=connect
    )
    bench = Bench(store, clock, path)
    await store.do(StartMany([bench.new(identity=TASK)]))
    threads.clear()
    with suppress(RunNotFound):  # of those that are about one run
        await store.do(verb)
    assert (threads == {threading.get_ident()}) is on_loop
    await store.close()


def test_what_a_run_asks_for_is_weighed_wherever_it_is_started(tmp_path: Path) -> None:
    bench: Any = Bench(None, SystemClock(), tmp_path)  # type: ignore[arg-type]
    terms = Terms(after=["a", "b"], failures=[b"x" * 5000] * 2)
    light, heavy = bench.new("r"), bench.new("r", terms=terms)

    def weights(new: Any) -> list[int]:
        verbs = (
            Append(1, 1, children=[("0", new)]),
            Tick("id", b"", 1.0, 1.0, 2.0, new, "", 1.0),
            RunSchedule("id", new),
        )
        return [WEIGHTS[type(verb)](verb) for verb in verbs]

    assert all(b - a > 10_000 for a, b in zip(weights(light), weights(heavy), strict=True))

"""What is set for some runs and queues costs the others no statement and no commit."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stepwell_queue import Finish, Kind, RandomIds, Start, StartMany, Status, SystemClock
from stepwell_queue.contract import QueueSettings, SetQueue, Terms
from stepwell_queue.sqlite.store import SqliteStore, open_sqlite
from tests.store.kit import TASK, Bench

pytestmark = pytest.mark.anyio

JOBS = 96
AT_ONCE = 16
ROUNDS = JOBS // AT_ONCE


INSERT = "INSERT INTO runs (id, target, priority, nonce, created, updated, digest, options, args,"
BEGINNINGS = {
    f"{INSERT} status)": "insert",
    f"{INSERT} status, fence": "insert running",
    "SELECT last_insert_rowid()": "last number",
    "SELECT 1 FROM runs WHERE status = 1 AND crashes >= 2": "look for runs that crashed",
    "UPDATE runs SET status = 2, fence = fence + 1": "claim",
    "SELECT 1 FROM inbox WHERE absorbed = 0": "look for messages",
    "UPDATE runs SET status = v.column1": "finish several",
}


class Statements:
    """Counts what a store executes on its writing connection, by what it does."""

    def __init__(self) -> None:
        self.heard: Counter[str] = Counter()

    def connect(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = sqlite3.connect(*arguments, **options)
        db.set_trace_callback(self._note)
        return db

    def _note(self, sql: str) -> None:
        text = re.sub(r"\s+", " ", sql)
        for beginning, name in BEGINNINGS.items():
            if text.startswith(beginning):
                text = name
        self.heard[text] += 1


async def drained(path: Path, statements: Statements, *, beside: bool) -> Counter[str]:
    """Return what it takes to enqueue and drain plain tasks, and to start one for a worker."""
    clock = SystemClock()
    store: SqliteStore = await open_sqlite(
        path,
        durability="process",
        clock=clock,
        ids=RandomIds(clock),
        lease=15.0,
        factory=statements.connect,
    )
    bench = Bench(store, clock, path)
    if beside:  # another queue has all that can be set, and runs with keys
        every = QueueSettings(limit=1, key_limit=1, max_length=5, ageing=1.0)
        await store.do(SetQueue("other", every))
        await bench.start(queue="other", identity=TASK, terms=Terms(key="tenant"))
    session = await bench.session()
    warm = await bench.claimed(session, identity=TASK)
    await store.do(Finish(warm.run, warm.fence, Status.COMPLETED, b"", clock.now(), clean=True))
    statements.heard.clear()
    await store.do(StartMany([bench.new(identity=TASK) for _ in range(JOBS)]))
    for _ in range(ROUNDS):
        runs = (await bench.claim(session, AT_ONCE)).runs
        ends = [Finish(one.run, one.fence, Status.COMPLETED, b"", 1.0, clean=True) for one in runs]
        for end in ends[:-1]:
            store.submit(end, _ignore)
        await store.do(ends[-1])
    assert (await bench.claim(session, 1)).runs == []
    started = await store.do(Start(bench.new(identity=TASK), session.worker))
    assert started.claimed is not None
    assert started.claimed.kind == Kind.TASK
    heard = Counter(statements.heard)
    await store.close()
    return heard


def _ignore(answer: object) -> None: ...


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a queue with limits"])
async def test_a_plain_task_takes_these_statements_and_commits(path: Path, beside: bool) -> None:
    heard = await drained(path, Statements(), beside=beside)
    many = -(-JOBS // 50)  # rows of `insert_ready` in one statement
    single = JOBS - JOBS // 50 * 50
    claims = ROUNDS + 1
    assert heard == {
        "BEGIN IMMEDIATE": 1 + claims + ROUNDS + 1,
        "COMMIT": 1 + claims + ROUNDS + 1,
        "SAVEPOINT many": 1,
        "RELEASE many": 1,
        "insert": many - 1 + single,
        "last number": 1,
        "look for runs that crashed": claims,
        "claim": claims,
        "look for messages": ROUNDS,
        "finish several": ROUNDS,
        "insert running": 1,
    }

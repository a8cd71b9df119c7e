"""The doctor finds what breaks an invariant, and nothing else."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from stepwell_queue import Append, Finish, OpenOp, Settle, Status
from tests.store.kit import TASK, WORKFLOW, open_bench

pytestmark = pytest.mark.anyio


async def make_everything(path: Path) -> None:
    """Runs in every state, in a store that is closed afterwards."""
    bench = await open_bench(path)
    session = await bench.session()
    now = bench.clock.now()
    for id in ("done", "failed", "parked", "waiting", "stuck", "reopened"):
        run = await bench.claimed(session, id, args=b"a" * 2000)
        records = [bench.record(0), bench.record(1)]
        await bench.store.do(Append(run.run, 1, records))
        if id in ("done", "failed"):
            status = Status.COMPLETED if id == "done" else Status.FAILED
            await bench.store.do(Finish(run.run, 1, status, b"v" * 2000, now))
        elif id == "stuck":
            await bench.store.do(Settle(run.run, 1, Status.STUCK, b"why"))
        elif id == "waiting":
            child = bench.new("child", identity=TASK, due=9e12)
            await bench.store.do(Append(run.run, 1, children=[("2", child)]))
            await bench.park(run.run, 1)
        else:
            due = now + 1e6 if id == "parked" else None
            await bench.park(run.run, 1, due, [OpenOp("2", "sleep", "", due)])
    await bench.start("scheduled", due=9e12)
    await bench.start("ready")
    assert await bench.store.doctor() == []
    await bench.store.close()


async def test_a_store_with_runs_in_every_state_is_healthy(path: Path) -> None:
    await make_everything(path)


@pytest.mark.parametrize(
    ("rule", "id", "damage"),
    [
        ("claim", "ready", "UPDATE runs SET status = 2 WHERE id = 'ready'"),
        ("claim", "ready", "UPDATE runs SET worker = 7 WHERE id = 'ready'"),
        ("target", "ready", "UPDATE runs SET target = 99 WHERE id = 'ready'"),
        ("wake", "parked", "UPDATE runs SET due = NULL, waiting = '' WHERE id = 'parked'"),
        ("wake", "parked", "UPDATE runs SET due = NULL WHERE id = 'parked'"),
        ("wake", "scheduled", "UPDATE runs SET due = NULL WHERE id = 'scheduled'"),
        ("wake", "ready", "UPDATE runs SET due = 5 WHERE id = 'ready'"),
        (
            "inbox",
            "parked",
            (
                "INSERT INTO inbox (run, kind, uid, name, path, status, value, at)"
                " SELECT run, 0, 'u', 'go', '', 0, x'', 0 FROM runs WHERE id = 'parked'"
            ),
        ),
        (
            "child",
            "waiting",
            "UPDATE runs SET status = 10, due = NULL, ended = 1 WHERE id = 'child'",
        ),
        ("child", "child", "UPDATE runs SET parent = 999 WHERE id = 'child'"),
        ("journal", "done", "DELETE FROM journal WHERE run = 1 AND seq = 0"),
        ("journal", "done", "UPDATE journal SET path = '0' WHERE run = 1 AND seq = 1"),
        (
            "ended",
            "done",
            (
                "INSERT INTO open_ops (run, path, kind, name, attempt, value)"
                " VALUES (1, '0', 'wait', '', 0, x'')"
            ),
        ),
        ("ended", "done", "UPDATE runs SET ended = NULL WHERE id = 'done'"),
        ("orphans", "done", "DELETE FROM blobs WHERE run = 1 AND role = 0"),
        ("orphans", "done", "DELETE FROM blobs WHERE run = 1 AND role = 1"),
        ("gate", "ready", "UPDATE runs SET lane = 1 WHERE id = 'ready'"),
        (
            "gate",
            "ready",
            "INSERT INTO terms (run, expires) SELECT run, 9e12 FROM runs WHERE id = 'ready'",
        ),
        ("gate", None, "INSERT INTO queues (queue, paused) VALUES ('default', 1)"),
        ("orphans", None, "INSERT INTO terms (run, key) VALUES (999, 'a')"),
        ("orphans", None, "INSERT INTO blobs VALUES (999, 0, x'')"),
        ("orphans", None, "INSERT INTO failures VALUES (1, 999, 1, 0, 0, '', x'')"),
        ("orphans", None, "INSERT INTO reports VALUES (999, 1, 1, 0.5, '', 0, 0, 0)"),
        ("orphans", None, "INSERT INTO log_lines VALUES (1, 999, 0, '', '', '', 1, 0)"),
        (
            "orphans",
            None,
            (
                "INSERT INTO journal (run, seq, kind, path, name, value, at, attempt, started,"
                " digest, fence) VALUES (999, 0, 0, '0', '', x'', 0, 1, 0, 0, 1)"
            ),
        ),
    ],
)
async def test_each_broken_invariant_is_found(
    path: Path, rule: str, id: str | None, damage: str
) -> None:
    await make_everything(path)
    await asyncio.to_thread(execute, path, damage)
    bench = await open_bench(path)
    found = await bench.store.doctor()
    assert [(finding.rule, finding.run_id) for finding in found] == [(rule, id)]
    await bench.store.close()


def execute(path: Path, sql: str) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(sql)
    db.close()


async def test_the_same_step_may_be_recorded_again_after_a_reopen(path: Path) -> None:
    await make_everything(path)
    await asyncio.to_thread(
        execute, path, "UPDATE journal SET kind = 10, path = '' WHERE run = 1 AND seq = 1"
    )
    again = (
        "INSERT INTO journal (run, seq, kind, path, name, value, at, attempt, started, digest,"
        " fence) VALUES (1, 2, 0, '0', '', x'', 0, 1, 0, 0, 1)"
    )
    await asyncio.to_thread(execute, path, again)
    bench = await open_bench(path)
    assert await bench.store.doctor() == []
    await bench.store.close()


async def test_a_run_of_a_worker_that_is_gone_without_a_trace_is_swept(path: Path) -> None:
    await make_everything(path)
    orphan = "UPDATE runs SET status = 2, fence = 1, worker = 999 WHERE id = 'ready'"
    await asyncio.to_thread(execute, path, orphan)
    bench = await open_bench(path)
    found = await bench.claim(await bench.session(WORKFLOW))
    runs = {run.id: (run.fence, run.crashes) for run in found.runs}
    assert runs["ready"] == (3, 1)
    assert await bench.store.doctor() == []
    await bench.store.close()

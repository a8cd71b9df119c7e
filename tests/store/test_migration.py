"""A file that was made before there were queues to be set goes on with all that is in it."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from importlib import resources
from pathlib import Path

import pytest

from stepwell_queue import Claim, Finish, Kind, Status, Terms
from stepwell_queue.contract import QueueSettings, SetQueue
from stepwell_queue.sqlite.schema import APPLICATION_ID, migrations
from tests.store.kit import DIGEST, Bench, ManualClock, open_bench

pytestmark = pytest.mark.anyio

BEFORE_QUEUES = 2
NOW = 1_000_000.0
RUNS = (
    # id, status, fence, worker, priority, crashes, ended, due
    ("ended", Status.COMPLETED, 1, None, 0, 0, 5.0, None),
    ("failed", Status.FAILED, 3, None, 0, 0, 6.0, None),
    ("running", Status.RUNNING, 2, 7, 1, 0, None, None),
    ("ready", Status.READY, 0, None, 0, 0, None, None),
    ("urgent", Status.READY, 0, None, 9, 0, None, None),
    ("killer", Status.READY, 2, None, 0, 2, None, None),
    ("scheduled", Status.SCHEDULED, 0, None, 0, 0, None, NOW + 10),
    ("retried", Status.SCHEDULED, 1, None, 0, 0, None, NOW - 10),
    ("parked", Status.PARKED, 1, None, 0, 0, None, NOW + 20),
    ("stuck", Status.STUCK, 1, None, 0, 0, None, None),
)


# Of what is here, a line is never changed: a file that has run the script would differ from others.
SCRIPTS = {
    "0001_initial.sql": "7a3049f075ad6de3",
    "0002_remote_workers.sql": "f01d29ac9989ccf4",
    "0003_queues.sql": "a13628e806f7be5e",
    "0004_reports.sql": "b3601a0c187cb6b4",
    "0005_schedules.sql": "4a4bdfd609210c2b",
    "0006_worker_states.sql": "ed3825ddde814a0d",
    "0007_steering.sql": "23a69647717da852",
    "0008_notes.sql": "6bad60721cfd24f2",
    "0009_long_changes.sql": "0c0058bb102b47b7",
    "0010_retention.sql": "3208edee3c375d16",
}


def make_old_file(path: Path) -> None:
    db = sqlite3.connect(path)
    for script in migrations()[:BEFORE_QUEUES]:
        db.executescript(script)
    db.execute("INSERT INTO targets VALUES (1, 'default', ?, 'mail', 1)", (Kind.TASK,))
    db.execute(
        "INSERT INTO workers (worker, token, name, host, boot, pid, started, until, queues, serves)"
        " VALUES (7, '/nowhere/gone', 'old', 'host', 'boot', 1, 0, 0, '[\"default\"]', '[]')"
    )
    for number, (id, status, fence, worker, priority, crashes, ended, due) in enumerate(RUNS, 1):
        db.execute(
            "INSERT INTO runs (run, id, target, status, fence, worker, priority, crashes, nonce,"
            " created, updated, ended, due, waiting, digest, options, args)"
            " VALUES (?, ?, 1, ?, ?, ?, ?, ?, ?, 1, 1, ?, ?, 'a while', ?, x'', x'')",
            (
                number, id, int(status), fence, worker, priority, crashes, number, ended, due,
                DIGEST,
            ),
        )  # fmt: skip
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {BEFORE_QUEUES}")
    db.commit()
    db.close()


async def claimed(bench: Bench, worker: int, **options: bool) -> list[str]:
    """Claim and end all there is."""
    found = await bench.store.do(Claim(worker, 10, {}, **options))
    for run in found.runs:
        await bench.store.do(Finish(run.run, run.fence, Status.COMPLETED, b"", bench.clock.now()))
    return [run.id for run in found.runs]


async def test_runs_in_all_states_of_a_file_made_before_queues_go_on(
    path: Path, clock: ManualClock
) -> None:
    await asyncio.to_thread(make_old_file, path)
    bench = await open_bench(path, clock=clock)
    assert await bench.store.doctor() == []
    worker = (await bench.session()).worker  # the one that was running has gone
    assert await claimed(bench, worker, idle=True) == ["killer"]
    assert await claimed(bench, worker) == ["urgent", "running", "ready", "retried", "stuck"]
    clock.move(10)
    assert await claimed(bench, worker) == ["scheduled"]
    clock.move(10)
    assert await claimed(bench, worker) == ["parked"]
    assert [await bench.status(id) for id in ("ended", "failed")] == ["completed", "failed"]
    assert await bench.store.doctor() == []
    await bench.store.close()


async def test_what_is_set_for_a_queue_holds_for_runs_of_a_file_made_before_it(
    path: Path, clock: ManualClock
) -> None:
    await asyncio.to_thread(make_old_file, path)
    bench = await open_bench(path, clock=clock)
    await bench.store.do(SetQueue("default", QueueSettings(limit=2)))
    worker = (await bench.session()).worker
    assert await claimed(bench, worker) == ["urgent", "running"]
    await bench.start("keyed", terms=Terms(key="a", after=["ready"], anyhow=True))
    assert await claimed(bench, worker) == ["ready", "retried"]
    assert set(await claimed(bench, worker)) == {"stuck", "keyed"}
    assert await bench.store.doctor() == []
    await bench.store.close()


def test_a_script_that_files_have_run_is_never_changed_and_new_ones_come_last() -> None:
    folder = resources.files("stepwell_queue.sqlite").joinpath("migrations")
    scripts = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()[:16]
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    }
    assert scripts == SCRIPTS
    assert [int(name[:4]) for name in sorted(scripts)] == list(range(1, len(scripts) + 1))

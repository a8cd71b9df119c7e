"""A run that uses everything leaves nothing behind once it is deleted."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from stepwell import (
    Ask,
    Retry,
    Signal,
    Stepwell,
    continue_as_new,
    current_step,
    deadline,
    emit,
    patched,
    rollback_scope,
    set_value,
    start,
    step,
    task,
    wait_for_ask,
    wait_for_signal,
    workflow,
)
from stepwell_queue.sqlite import verbs_prune
from tests.behaviour.stage import LONG

pytestmark = pytest.mark.anyio
go = Signal("go", str)
approve = Ask("approve", str, str)
LARGE = "x" * 5000
OF_NO_RUN = {
    "targets", "queues", "buckets", "workers", "paused_names", "kept_names", "upkeep",
    "schedules", "ticks", "sqlite_sequence",
}  # fmt: skip
ROWS_OF_RUNS = set(verbs_prune.TABLES) - {"open_ops", "pauses"}
"""Of runs that have ended."""


@step
async def undo(what: str) -> None: ...


@step(compensate=undo)
async def reserve(what: str) -> str:
    emit("items", what)
    return what


@step(queue="far", retry=Retry(attempts=2, delay=0.0))
async def far(what: str) -> str:
    emit("items", what)
    current_step().log("here")
    if current_step().attempt == 1:
        raise OSError("not yet")
    return what


@task
async def mail(what: str) -> str:
    return what


@workflow
async def child(what: str) -> str:
    return await reserve(what)


@workflow
async def everything(what: str, generation: int = 0) -> str:
    set_value("generation", generation)
    emit("items", what)
    if not generation:
        await wait_for_signal(go)
        continue_as_new(everything(what, 1))
    async with deadline(3600.0):
        question = await wait_for_ask(approve)
        question.answer(LARGE)
    try:
        async with rollback_scope():
            await reserve(what)
            raise ValueError("no")
    except ValueError:
        await child(what)
    if patched("new"):
        await far(what)
    await start(mail(what))
    return what


async def test_no_table_keeps_a_row_of_a_run_that_used_everything(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with Stepwell(path, include=[__name__], durability="process") as app:
        async with app.worker(queues=["default", "far"]) as worker:
            run = await app.start(everything(LARGE), id="run", key="k", unique="u")
            after = await app.enqueue(mail("after"), id="after", after=[run])
            await worker.drain()
            await run.pause()
            await run.resume()
            await run.signal(go, LARGE)
            assert await run.ask(approve, LARGE, timeout=LONG) == LARGE
            assert await run.result(timeout=LONG) == LARGE
            await after.result(timeout=LONG)
            fork = await app.fork("run", from_step="far")
            assert await fork.result(timeout=LONG) == LARGE
            lines = [line async for line in app.export_runs("run")]
            cut = await app.start(everything(LARGE), id="cut")
            dropped = await app.start(everything(LARGE), id="dropped", delay=3600)
            await worker.drain()
            await cut.terminate()
            await dropped.pause()
            await dropped.cancel()
            await worker.drain()
        used = left_in(path)
        await app.enqueue(mail("newest"))  # which stays, so that no number comes again
        await app.prune(older_than=0)
        await app.import_runs(lines)
        await app.enqueue(mail("newest"))
        await app.prune(older_than=0)
        assert await app.doctor() == []
    assert used.keys() == ROWS_OF_RUNS
    assert left_in(path) == {"runs": 2}


def left_in(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as db:
        found = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        counts = {
            name: db.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]
            for (name,) in found
            if name not in OF_NO_RUN
        }
    return {name: count for name, count in counts.items() if count}

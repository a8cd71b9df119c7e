"""What runs say of themselves while they run, and what is kept of it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence

import pytest

from stepwell_queue import (
    Append,
    Finish,
    Identity,
    Kind,
    Park,
    Reschedule,
    RunNotFound,
    StaleFence,
    Status,
)
from stepwell_queue.contract import LogLine, LogRow, ProgressRow, ReadLog, ReadProgress, Report
from stepwell_queue.contract.reports import MOST_LINES, MOST_LOG_BYTES
from tests.store.kit import TASK, Bench

pytestmark = pytest.mark.anyio
STEP = Identity(Kind.STEP, "resize", 1)


def lines(*texts: str) -> list[LogLine]:
    return [LogLine(float(number), text) for number, text in enumerate(texts)]


async def log(bench: Bench, id: str = "run", after: int = 0, limit: int = MOST_LINES) -> list[str]:
    found: Sequence[LogRow] = await bench.store.read(ReadLog(id, after, limit))
    return [row.text for row in found]


async def progress(bench: Bench, id: str = "run") -> ProgressRow | None:
    return await bench.store.read(ReadProgress(id))


async def test_the_newest_progress_is_read_while_the_run_runs_and_afterwards(bench: Bench) -> None:
    run = (await bench.claimed(await bench.session(), "run", identity=TASK)).run
    assert await progress(bench) is None
    await bench.store.do(Report(run, 1, 1, 0.25, "quarter", 5.0))
    assert await progress(bench) == ProgressRow(0.25, "quarter", 5.0)
    await bench.store.do(Report(run, 1, 2, None, "", 0.0, lines("a line")))
    assert await progress(bench) == ProgressRow(0.25, "quarter", 5.0)
    await bench.store.do(Report(run, 1, 3, 1.0, "", 9.0))
    await bench.store.do(Finish(run, 1, Status.COMPLETED, b"", 10.0, clean=True))
    assert await progress(bench) == ProgressRow(1.0, "", 9.0)
    assert await log(bench) == ["a line"]


async def test_only_the_holder_of_a_run_reports(bench: Bench) -> None:
    session = await bench.session()
    run = (await bench.claimed(session, "run", identity=TASK)).run
    with pytest.raises(StaleFence):
        await bench.store.do(Report(run, 2, 1, 0.5, "", 1.0))
    await bench.store.do(Report(run, 1, 1, 0.5, "", 1.0, lines("first")))
    await bench.store.do(Reschedule(run, 1, None))
    late = Report(run, 1, 2, 0.9, "late", 2.0, lines("late"))
    with pytest.raises(StaleFence):
        await bench.store.do(late)
    again = await bench.claim_one(session)
    with pytest.raises(StaleFence):
        await bench.store.do(late)
    await bench.store.do(Report(run, again.fence, 1, 0.1, "anew", 3.0, lines("second")))
    assert await progress(bench) == ProgressRow(0.1, "anew", 3.0)
    assert await log(bench) == ["first", "second"]
    with pytest.raises(StaleFence):
        await bench.store.do(Report(99, 1, 1, 0.5, "", 1.0))


async def test_lines_are_read_in_pages_and_with_all_that_belongs_to_them(bench: Bench) -> None:
    run = (await bench.claimed(await bench.session(), "run", identity=TASK)).run
    line = LogLine(2.5, "hällo", '{"a":1}', "4.1", 3)
    await bench.store.do(Report(run, 1, 1, None, "", 0.0, [*lines("a", "b"), line]))
    (first, second), (third,) = (
        await bench.store.read(ReadLog("run", 0, 2)),
        await bench.store.read(ReadLog("run", 2, 2)),
    )
    assert [first.text, second.text] == ["a", "b"]
    assert third == LogRow(second.line + 1, 2.5, "hällo", '{"a":1}', "4.1", 3)
    assert await log(bench, after=third.line) == []


async def test_the_oldest_lines_go_when_there_are_too_many(bench: Bench) -> None:
    run = (await bench.claimed(await bench.session(), "run", identity=TASK)).run
    texts = [str(number) for number in range(3 * MOST_LINES)]
    for number in range(30):
        part = lines(*texts[number * 100 : (number + 1) * 100])
        await bench.store.do(Report(run, 1, number, None, "", 0.0, part))
    found = await log(bench)
    assert found == texts[-len(found) :]
    assert MOST_LINES * 0.9 <= len(found) <= MOST_LINES


async def test_the_oldest_lines_go_when_they_are_too_large(bench: Bench) -> None:
    run = (await bench.claimed(await bench.session(), "run", identity=TASK)).run
    texts = [f"{number}-" + "ü" * 4000 for number in range(100)]
    for number, text in enumerate(texts):
        await bench.store.do(Report(run, 1, number, None, "", 0.0, lines(text)))
    found = await log(bench)
    assert found == texts[-len(found) :]
    assert MOST_LOG_BYTES * 0.85 <= sum(len(text.encode()) for text in found) <= MOST_LOG_BYTES


async def test_a_workflow_shows_what_its_steps_with_a_queue_report(bench: Bench) -> None:
    session = await bench.session()
    parent = (await bench.claimed(session, "run")).run
    step = ("0", bench.new("run/0", identity=STEP, queue="far"))
    task = ("1", bench.new("task", identity=TASK, queue="far"))
    await bench.store.do(Append(parent, 1, children=[step, task]))
    await bench.store.do(Report(parent, 1, 1, 0.5, "own", 5.0, lines("own")))
    await bench.store.do(Park(parent, 1, None, "child"))
    far = await bench.session(STEP, TASK, queues=["far"])
    for run in (await bench.claim(far)).runs:
        report = Report(run.run, 1, 1, 0.7, run.id, 6.0, [LogLine(6.0, run.id, "", "0")])
        await bench.store.do(report)
    assert await progress(bench) == ProgressRow(0.7, "run/0", 6.0)
    assert await log(bench) == ["own", "run/0"]
    assert await log(bench, "task") == ["task"]


async def test_nobody_reports_nothing(bench: Bench) -> None:
    for read in (log, progress):
        with pytest.raises(RunNotFound):
            await read(bench, "nobody")
    await bench.start("run")
    assert (await progress(bench), await log(bench)) == (None, [])


async def test_a_report_of_too_many_lines_is_refused_at_once(bench: Bench) -> None:
    run = (await bench.claimed(await bench.session(), "run", identity=TASK)).run
    too_many = Report(run, 1, 1, None, "", 0.0, lines(*(["a"] * (MOST_LINES + 1))))
    with pytest.raises(ValueError, match="at most 1000 lines"):
        await bench.store.do(too_many)
    assert await log(bench) == []


async def test_a_plain_end_reads_and_writes_nothing_of_reports(bench: Bench) -> None:
    run = (await bench.claimed(await bench.session(), "run", identity=TASK)).run
    await bench.store.do(Finish(run, 1, Status.COMPLETED, b"", 10.0, clean=True))

    def count() -> list[int]:
        db = sqlite3.connect(bench.path)
        try:
            tables = ("failures", "reports", "log_lines")
            return [db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables]
        finally:
            db.close()

    assert await asyncio.to_thread(count) == [0, 0, 0]

"""A long journal is replayed, and its run resumed, at a cost that is proportional to it."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from stepwell import Signal, Stepwell, step, wait_for_signal, workflow
from stepwell_queue.contract import Kind, NewRun, Record, RecordKind, RunCopy, Status
from stepwell_runtime.codec import Codec
from stepwell_runtime.journals import lines
from stepwell_runtime.journals.writing import copy_lines
from stepwell_runtime.launch import pack_arguments

pytestmark = pytest.mark.anyio
LONG = 60.0
go = Signal("go", int)


@step
async def count(number: int) -> int:
    raise AssertionError("it is in the journal")


@workflow(name="long journal")
async def counts(steps: int) -> int:
    total = 0
    for number in range(steps):
        total += await count(number)
    value: int = await wait_for_signal(go)
    return total + value


def exported(steps: int) -> list[bytes]:
    """Return the lines of a file with a run that has executed so many steps, and waits."""
    codec = Codec()
    journal = [
        Record(at, int(RecordKind.STEP_OK), str(at), "count", codec.encode(1, "one"), 1000.0)
        for at in range(steps)
    ]
    args = pack_arguments(([codec.encode(steps, "the steps")], {}))
    id = f"run-{steps}"
    new = NewRun(id, int(Kind.WORKFLOW), "long journal", 1, "default", args, b"", 7, 1000.0)
    copy = RunCopy(
        new, int(Status.PARKED), 0, 0, 0, 0, 1, 0, 1000.0, None, "signal go", None, None, b"",
        journal, (), (), (),
    )  # fmt: skip
    heading, end = lines.Heading(lines.FORMAT), lines.End(1)
    return [lines.encode(heading), *copy_lines(copy, codec), lines.encode(end)]


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
    app = Stepwell(tmp_path / "runs.db", include=[__name__], durability="process")
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

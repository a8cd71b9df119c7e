"""The floor writes what the sample has written, in as many commits."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec
import pytest

from bench import floor, samples
from bench.spec import SCENARIOS, WORKLOADS, Floor, Measured
from tests.bench.conftest import Sampled

TABLES = {"runs": "run", "journal": "run, seq", "inbox": "id", "blobs": "run, role"}
# What only an engine keeps: when it last looked at a run, and who held it.
IGNORED = {"updated", "worker", "waiting", "started"}


def rows_of(file: Path, table: str, order: str) -> list[dict[str, object]]:
    db = sqlite3.connect(file)
    db.row_factory = sqlite3.Row
    try:
        found = db.execute(f"SELECT * FROM {table} ORDER BY {order}").fetchall()
    finally:
        db.close()
    ignored = IGNORED if table == "runs" else {"entry"}
    return [{key: row[key] for key in row.keys() if key not in ignored} for row in found]  # noqa: SIM118 - a sqlite3.Row iterates over its values


@pytest.mark.parametrize("name", [*SCENARIOS, *WORKLOADS])
def test_the_floor_ends_with_the_rows_of_the_sample(name: str, sampled: Sampled) -> None:
    spec, folder = sampled(name)
    found = samples.part("floor", spec, folder, Floor)
    measured = msgspec.json.decode((folder / "measured.json").read_bytes(), type=Measured)
    for table, order in TABLES.items():
        written = rows_of(folder / "floor.db", table, order)
        assert written == rows_of(folder / "sample.db", table, order)
    assert found.commits == min(measured.commits, found.rows)
    assert found.wall > 0


@pytest.mark.parametrize(("writes", "parts"), [(10, 3), (3, 10), (128, 128), (5, 1)])
def test_writes_are_cut_into_even_transactions(writes: int, parts: int) -> None:
    cut = floor.cut([("INSERT", (number,)) for number in range(writes)], parts)
    assert len(cut) == min(parts, writes)
    assert [row[0] for part in cut for _, row in part] == list(range(writes))
    assert max(map(len, cut)) - min(map(len, cut)) <= 1


def test_runs_write_in_step_as_many_at_a_time_as_are_executed() -> None:
    runs: list[list[floor.Write]] = [[("a", (run,)), ("b", (run,))] for run in range(3)]
    order = [(sql, row[0]) for sql, row in floor.in_step(runs, 2)]
    assert order == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("a", 2), ("b", 2)]

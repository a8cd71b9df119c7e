"""The floor: the rows of a sample written again with nothing around them, in as many commits.

What the floor leaves out is what an engine costs: encoding, fences and leases, group commit,
waking and resuming. It knows the tables only as far as it must to write a row in the states that
it went through.
"""

from __future__ import annotations

import itertools
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench import flows
from bench.spec import DRAINS, Floor, Measured, Spec
from stepwell_queue.contract import RecordKind, Status

Write = tuple[str, Sequence[Any]]

PARK: Final = "UPDATE runs SET status = 3, worker = NULL WHERE run = ?"
CLAIM: Final = "UPDATE runs SET status = 2, fence = fence + 1, worker = 1 WHERE run = ?"
ARGS, VALUE = 0, 1
"""The roles of blobs: arguments, results."""
ENDED: Final = "ended IS NOT NULL"
ABSORB: Final = "UPDATE inbox SET absorbed = 1 WHERE run = ?"
FINISH: Final = (
    "UPDATE runs SET status = ?, value = ?, ended = ?, updated = ?, rollback = ?, worker = NULL"
    " WHERE run = ? AND fence = ?"
)


class Sample:
    """The rows that a sample has left, but for those that only waited beside the measured ones."""

    def __init__(self, file: Path, spec: Spec) -> None:
        db = sqlite3.connect(file)
        db.row_factory = sqlite3.Row
        self.schema = [
            row[0]
            for row in db.execute(
                "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
            )
        ]
        whole = f"SELECT * FROM runs WHERE {ENDED if spec.name == 'pending' else 'TRUE'}"
        self.runs = db.execute(f"{whole} ORDER BY run").fetchall()
        self.journal = _by_run(db.execute("SELECT * FROM journal ORDER BY run, seq").fetchall())
        self.inbox = _by_run(db.execute("SELECT * FROM inbox ORDER BY id").fetchall())
        self.blobs = _by_run(db.execute("SELECT * FROM blobs").fetchall())
        db.close()

    def writes(self, run: sqlite3.Row, spec: Spec) -> list[Write]:
        """The measured writes of one run, in order."""
        if spec.name in ("enqueue", "enqueue-each"):
            return [self.insert(run, spec)]
        if not spec.is_workflow:
            return [(CLAIM, (run["run"],)), *self._blobs(run, VALUE), self._finish(run)]
        writes = [self.insert(run, spec)]
        if spec.workers:
            writes.append((CLAIM, (run["run"],)))
        for record in self.journal.get(run["run"], ()):
            if record["kind"] == RecordKind.SIGNAL:
                writes.append((PARK, (run["run"],)))
                writes += [
                    _insert("inbox", {**dict(row), "absorbed": 0}) for row in self.inbox[run["run"]]
                ]
                writes += [(CLAIM, (run["run"],)), (ABSORB, (run["run"],))]
            writes.append(_insert("journal", dict(record)))
        writes += [_insert("blobs", dict(row)) for row in self.blobs.get(run["run"], ())]
        return [*writes, self._finish(run)]

    def insert(self, run: sqlite3.Row, spec: Spec) -> Write:
        """The run as it was when it began."""
        first: dict[str, Any] = {"value": b"", "ended": None, "rollback": 0}
        if spec.is_workflow and not spec.workers:
            first |= {"status": Status.RUNNING, "fence": 1, "worker": 1}
        else:
            first |= {"status": Status.READY, "fence": 0, "worker": None, "started": None}
        return _insert("runs", {**dict(run), **first})

    def enqueued(self, run: sqlite3.Row, spec: Spec) -> list[Write]:
        """What was written of one run before the measured part."""
        return [self.insert(run, spec), *self._blobs(run, ARGS)]

    def _blobs(self, run: sqlite3.Row, role: int) -> list[Write]:
        rows = self.blobs.get(run["run"], ())
        return [_insert("blobs", dict(row)) for row in rows if row["role"] == role]

    def _finish(self, run: sqlite3.Row) -> Write:
        columns = ("status", "value", "ended", "updated", "rollback", "run", "fence")
        return FINISH, [run[column] for column in columns]


def _by_run(rows: list[sqlite3.Row]) -> dict[int, list[sqlite3.Row]]:
    return {
        run: list(its_rows) for run, its_rows in itertools.groupby(sorted(rows, key=_run), key=_run)
    }


def _run(row: sqlite3.Row) -> int:
    return int(row["run"])


# What a column is without being written; to bind it would cost more than to leave it out.
DEFAULTS: Final = {
    "fence": 0,
    "phase": 0,
    "rollback": 0,
    "attempts": 0,
    "crashes": 0,
    "generation": 0,
    "waiting": "",
    "value": b"",
}


def _insert(table: str, row: dict[str, Any]) -> Write:
    if table == "runs":
        row = {name: one for name, one in row.items() if one != DEFAULTS.get(name)}
    holes = ", ".join("?" * len(row))
    # sqlite3 binds a bytearray several times faster than bytes
    values = [bytearray(one) if isinstance(one, bytes) else one for one in row.values()]
    return f"INSERT INTO {table} ({', '.join(row)}) VALUES ({holes})", values


async def measure_floor(spec: Spec, sample_file: Path, file: Path, measured: Measured) -> Floor:
    """Write the rows of a sample into a new file, and run its functions bare."""
    sample = Sample(sample_file, spec)
    writes = in_step([sample.writes(run, spec) for run in sample.runs], spec.concurrency)
    transactions = cut(writes, measured.commits)
    db = sqlite3.connect(file, isolation_level=None, cached_statements=256)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(f"PRAGMA synchronous = {'FULL' if spec.durability == 'full' else 'NORMAL'}")
    for statement in sample.schema:
        db.execute(statement)
    if spec.name == "pending":
        copy_waiting(db, sample_file)
    if spec.name in (*DRAINS, "pending"):
        commit(db, [write for run in sample.runs for write in sample.enqueued(run, spec)])
    bare, numbers = flows.BARE[spec.name], iter(range(spec.executions))
    begun = time.perf_counter()
    for done, transaction in enumerate(transactions, 1):
        commit(db, transaction)
        share = spec.executions * done // len(transactions)
        share -= spec.executions * (done - 1) // len(transactions)
        for number in itertools.islice(numbers, share):
            await bare(flows.order_number(number))
    wall = time.perf_counter() - begun
    db.close()
    return Floor(wall, len(writes), len(transactions))


def copy_waiting(db: sqlite3.Connection, sample_file: Path) -> None:
    """Copy the runs of a sample that have not ended."""
    db.execute("ATTACH ? AS sample", (str(sample_file),))
    db.execute(f"INSERT INTO runs SELECT * FROM sample.runs WHERE NOT {ENDED}")
    db.execute("DETACH sample")


def in_step(runs: list[list[Write]], concurrency: int) -> list[Write]:
    """The writes in the order in which so many runs at a time, all equally fast, make them."""
    writes: list[Write] = []
    for first in range(0, len(runs), concurrency):
        for level in itertools.zip_longest(*runs[first : first + concurrency]):
            writes += [write for write in level if write is not None]
    return writes


def cut(writes: list[Write], parts: int) -> list[list[Write]]:
    """So many transactions of equal size; never an empty one."""
    parts = max(1, min(parts, len(writes)))
    bounds = [len(writes) * part // parts for part in range(parts + 1)]
    return [writes[first:last] for first, last in itertools.pairwise(bounds)]


def commit(db: sqlite3.Connection, writes: list[Write]) -> None:
    db.execute("BEGIN IMMEDIATE")
    for sql, rows in itertools.groupby(writes, key=lambda write: write[0]):
        db.executemany(sql, [row for _, row in rows])
    db.execute("COMMIT")

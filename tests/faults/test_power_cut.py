"""Power cuts while many runs are written: what was acknowledged, and what is left of it."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import Literal
from zlib import crc32

import msgspec
import pytest

from stepwell_queue import (
    History,
    RandomIds,
    RecordKind,
    RunFilter,
    Status,
    SystemClock,
    open_store,
)
from tests.conftest import Scale
from tests.faults.disk import Disk, Event, read_record
from tests.faults.recorder import build_recorder, start_recorded
from tests.faults.writer import Report

WRITER = Path(__file__).with_name("writer.py")
RUNS = 48
FILE = "orders.db"
Durability = Literal["full", "process"]


@dataclass
class Acknowledged:
    """What the writer was told is done, at some moment of the record."""

    reports: list[Report] = field(default_factory=list[Report])

    def missing_from(self, histories: dict[str, History]) -> list[str]:
        return [
            f"{report.verb} {report.id} {report.seq}"
            for report in self.reports
            if report.verb != "open" and not _holds(histories.get(report.id), report)
        ]


def _holds(history: History | None, report: Report) -> bool:
    if history is None:
        return False
    match report.verb:
        case "start":
            return crc32(history.run.args) == report.crc
        case "record":
            return report.seq < len(history.journal) and (
                crc32(history.journal[report.seq].value) == report.crc
            )
        case "signal":
            absorbed = any(record.kind == RecordKind.SIGNAL for record in history.journal)
            return absorbed or bool(history.inbox)
        case "finish":
            done = history.run.status == Status.COMPLETED
            return done and crc32(history.run.value) == report.crc
        case "cancel":
            return history.run.status == Status.CANCELLED
        case "open":
            return True


@dataclass
class Outcome:
    missing: list[str]
    damage: list[str]


def _record_a_life(tmp_path: Path, durability: Durability, rng: Random) -> list[Event]:
    """Let the writer work until SIGKILL, at a random report; return all it did to the disk."""
    folder = tmp_path / "disk"
    folder.mkdir()
    record = tmp_path / "record"
    library = build_recorder(tmp_path)
    arguments = (str(folder.resolve() / FILE), durability, str(RUNS))
    process = start_recorded(library, record, folder, WRITER, *arguments)
    overdue = threading.Timer(60, process.kill)
    overdue.start()
    assert process.stdout is not None
    with process.stdout as pipe:
        wanted = rng.randrange(RUNS * 4, RUNS * 6)
        told = list(islice(pipe, wanted))
        process.send_signal(signal.SIGKILL)
        told += pipe.readlines()
    process.wait()
    overdue.cancel()
    assert len(told) >= wanted, f"the writer stopped after {len(told)} reports"
    events = read_record(record)
    assert b"".join(told) == b"".join(event.data for event in events if event.op == "R")
    return events


def _cut_points(events: list[Event], count: int, rng: Random) -> set[int]:
    """Choose moments: after a report, while the log is moved into the file, and any other."""
    reports = [n for n, event in enumerate(events, 1) if event.op == "R"]
    moves = [n for n, event in enumerate(events, 1) if event.path.endswith(FILE)]
    chosen: set[int] = set()
    while len(chosen) < min(count, len(events)):
        among = rng.choice((reports, moves, range(1, len(events) + 1)))
        chosen.add(rng.choice(among))
    return chosen


def _outcomes(
    events: list[Event], cuts: set[int], image: Path, rng: Random
) -> Iterator[tuple[int, Outcome]]:
    disk = Disk()
    acknowledged = Acknowledged()
    for moment, event in enumerate(events, 1):
        disk.follow(event)
        if event.op == "R":
            acknowledged.reports.append(msgspec.json.decode(event.data, type=Report))
        if moment in cuts:
            path = _write_image(disk.cut_power(rng), image / str(moment))
            yield moment, _examine(path, acknowledged)


def _write_image(files: dict[str, bytes], folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, content in files.items():
        if not name.endswith("-shm"):
            (folder / Path(name).name).write_bytes(content)
    return folder / FILE


def _examine(path: Path, acknowledged: Acknowledged) -> Outcome:
    histories, damage = asyncio.run(_read_all(path))
    with sqlite3.connect(path) as connection:
        verdict = [row[0] for row in connection.execute("PRAGMA integrity_check")]
    connection.close()
    if verdict != ["ok"]:
        damage += verdict
    for id, history in histories.items():
        if [record.seq for record in history.journal] != list(range(len(history.journal))):
            damage.append(f"{id}: the journal has a gap")
    return Outcome(acknowledged.missing_from(histories), damage)


async def _read_all(path: Path) -> tuple[dict[str, History], list[str]]:
    clock = SystemClock()
    store = await open_store(path, clock=clock, ids=RandomIds(clock))
    try:
        runs = await store.list_runs(RunFilter(limit=1000))
        found = [await store.history(run.id) for run in runs]
        findings = await store.doctor()
    finally:
        await store.close()
    return {history.run.id: history for history in found if history}, list(map(str, findings))


@pytest.mark.parametrize("life", range(20 if os.environ.get("STEPWELL_SOAK") else 2))
def test_nothing_acknowledged_under_full_is_missing_after_a_power_cut(
    life: int, tmp_path: Path, scale: Scale
) -> None:
    rng = Random(life)
    events = _record_a_life(tmp_path, "full", rng)
    cuts = _cut_points(events, scale(40, 200), rng)
    for moment, outcome in _outcomes(events, cuts, tmp_path / "images", rng):
        assert outcome == Outcome([], []), f"life {life}, cut after event {moment}"


def test_acknowledged_writes_under_process_go_missing_yet_the_file_is_whole(
    tmp_path: Path, scale: Scale
) -> None:
    """So the harness can see a loss, or the test above would prove nothing."""
    rng = Random(1)
    events = _record_a_life(tmp_path, "process", rng)
    cuts = _cut_points(events, scale(30, 200), rng)
    outcomes = dict(_outcomes(events, cuts, tmp_path / "images", rng))
    assert any(outcome.missing for outcome in outcomes.values())
    assert {moment: outcome.damage for moment, outcome in outcomes.items() if outcome.damage} == {}

"""The model of the disk itself, and that the recorder sees what a process does."""

from __future__ import annotations

import signal
import sqlite3
from pathlib import Path
from random import Random

import pytest

from tests.faults.disk import SECTOR, Disk, Event, read_record
from tests.faults.recorder import build_recorder, start_recorded


def _disk(*events: Event) -> Disk:
    disk = Disk()
    for event in events:
        disk.follow(event)
    return disk


def _outcomes(disk: Disk, path: str) -> set[bytes | None]:
    return {disk.cut_power(Random(seed)).get(path) for seed in range(200)}


WRITTEN = Event("W", "/a", 0, b"x" * SECTOR * 2, inode=1)
SYNCED = Event("S", "/a", inode=1)


def test_what_was_synced_is_kept_whatever_the_luck() -> None:
    assert _outcomes(_disk(WRITTEN, SYNCED), "/a") == {WRITTEN.data}


def test_what_was_not_synced_is_kept_dropped_or_garbled_by_sector() -> None:
    over = Event("W", "/a", 0, b"y" * SECTOR * 2, inode=1)
    outcomes = _outcomes(_disk(WRITTEN, SYNCED, over), "/a")
    old, new = b"x" * SECTOR, b"y" * SECTOR
    assert {old + old, new + new, old + new, new + old} < outcomes
    assert any(left and left[:SECTOR] not in (old, new) for left in outcomes)


def test_bytes_beside_a_write_are_never_damaged() -> None:
    inside = Event("W", "/a", 100, b"y" * 10, inode=1)
    for left in _outcomes(_disk(WRITTEN, SYNCED, inside), "/a"):
        assert left is not None
        assert left[:100] + left[110:] == b"x" * (SECTOR * 2 - 10)


def test_a_file_that_was_never_synced_may_be_gone() -> None:
    assert {None, WRITTEN.data} < _outcomes(_disk(WRITTEN), "/a")


def test_an_unlinked_file_may_be_back_until_its_folder_was_synced() -> None:
    unlinked = Event("U", "/a")
    folder_synced = Event("D", "/")
    assert _outcomes(_disk(WRITTEN, SYNCED, unlinked), "/a") == {None, WRITTEN.data}
    assert _outcomes(_disk(WRITTEN, SYNCED, unlinked, folder_synced), "/a") == {None}


def test_a_cut_of_the_size_may_be_lost() -> None:
    cut = Event("T", "/a", 10, inode=1)
    assert _outcomes(_disk(WRITTEN, SYNCED, cut), "/a") == {WRITTEN.data, WRITTEN.data[:10]}


SCRIPT = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("CREATE TABLE t (x)")
connection.execute("PRAGMA journal_mode=WAL")
connection.execute(f"PRAGMA synchronous={sys.argv[2]}")
connection.execute("PRAGMA wal_autocheckpoint=20")
for x in range(100000):
    connection.execute("INSERT INTO t VALUES (?)", (x,))
    os.write(1, b"%d\\n" % x)
"""


def _record_sqlite(tmp_path: Path, synchronous: str) -> list[Event]:
    folder = tmp_path / "disk"
    folder.mkdir()
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    record = tmp_path / "record"
    library = build_recorder(tmp_path)
    database = str(folder / "t.db")
    process = start_recorded(library, record, folder, script, database, synchronous)
    assert process.stdout is not None
    with process.stdout as reports:
        for _ in range(100):
            assert reports.readline()
        process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    return read_record(record)


def test_the_recorder_sees_a_sync_before_every_report_of_a_commit(tmp_path: Path) -> None:
    reported = 0
    pending = False
    for event in _record_sqlite(tmp_path, "FULL"):
        if event.path.endswith("-wal"):
            pending = event.op == "W"
        elif event.op == "R":
            reported += 1
            assert not pending
    assert reported >= 100


@pytest.mark.parametrize(("synchronous", "loses"), [("FULL", False), ("NORMAL", True)])
def test_plain_sqlite_keeps_its_promise_on_this_disk(
    synchronous: str, loses: bool, tmp_path: Path
) -> None:
    """The base line: a loss that a store shows in the same harness is its own."""
    events = _record_sqlite(tmp_path, synchronous)
    rng = Random(5)
    cuts = {rng.randrange(len(events)) for _ in range(60)}
    disk, reported, lost = Disk(), 0, 0
    for moment, event in enumerate(events):
        disk.follow(event)
        reported += event.op == "R"
        if moment in cuts and reported:
            image = tmp_path / str(moment)
            image.mkdir()
            for name, content in disk.cut_power(rng).items():
                (image / Path(name).name).write_bytes(content)
            rows = _rows(image / "t.db")
            assert rows == list(range(len(rows)))
            lost += len(rows) < reported
    assert (lost > 0) is loses


def _rows(path: Path) -> list[int]:
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    rows = [x for (x,) in connection.execute("SELECT x FROM t ORDER BY rowid")]
    connection.close()
    return rows


def test_a_missing_compiler_is_a_failure_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "/nonexistent/cc")
    with pytest.raises(pytest.fail.Exception, match="need a C compiler: install one"):
        build_recorder(tmp_path)

"""The file: what is refused, how it is made, which plans its statements have."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from stepwell_queue import (
    Finish,
    RandomIds,
    Status,
    StoreRefused,
    StoreUnavailable,
    SystemClock,
    open_store,
)
from stepwell_queue.sqlite.schema import APPLICATION_ID, migrations, statements_of
from stepwell_queue.sqlite.statements import SQL
from tests.store.kit import open_bench

pytestmark = pytest.mark.anyio

MIGRATIONS = migrations()


async def open_at(url: str | Path, **options: Any) -> None:
    clock = SystemClock()
    store = await open_store(url, clock=clock, ids=RandomIds(clock), **options)
    await store.close()


async def test_addresses_that_name_the_same_file(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("runs.db", "sqlite:///runs.db", f"sqlite:///{tmp_path}/runs.db", Path("runs.db")):
        await open_at(url)
    assert {path.name for path in tmp_path.iterdir()} == {"runs.db", "runs.db-turn"}


@pytest.mark.parametrize("name", ["with space.db", "a#b?c%41.db", "ünï-💾.db", "x" * 200])
async def test_odd_file_names_work(tmp_path: Path, name: str) -> None:
    await open_at(tmp_path / name)
    assert (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        (":memory:", "nothing would survive"),
        ("sqlite:///:memory:", "nothing would survive"),
        ("", "name of a file"),
        ("sqlite://host/runs.db", "sqlite:////var"),
        ("postgresql://localhost/db", "not available in this version"),
        ("mysql://localhost/db", "unknown address"),
    ],
)
async def test_addresses_that_are_no_file_are_refused_with_the_reason(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        await open_at(url)


async def test_impossible_options_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    for options in ({"durability": "none"}, {"lease": 0}, {"lease": -1.0}, {"lease": float("nan")}):
        with pytest.raises(ValueError, match="durability|lease"):
            await open_at(tmp_path / "runs.db", **options)
    assert list(tmp_path.iterdir()) == []


async def test_a_database_of_another_program_is_refused_and_untouched(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE runs (x)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreRefused, match="another program"):
        await open_at(path)
    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_refused_and_untouched(path: Path) -> None:
    path.write_bytes(b"Dear diary, " * 1000)
    with pytest.raises(StoreRefused, match="not an SQLite database"):
        await open_at(path)
    assert path.read_bytes() == b"Dear diary, " * 1000


async def test_a_file_of_newer_code_is_refused(path: Path) -> None:
    await open_at(path)
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    db.close()
    with pytest.raises(StoreRefused, match="newer Stepwell"):
        await open_at(path)


async def test_a_missing_or_wrong_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match="folder of the database must exist"):
        await open_at(tmp_path / "nowhere" / "runs.db")
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(StoreRefused, match="folder"):
        await open_at(tmp_path / "folder.db")


async def test_a_runtime_folder_of_others_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        open_to_all = Path(short) / f"stepwell-{os.getuid()}"
        open_to_all.mkdir()
        open_to_all.chmod(0o777)
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        with pytest.raises(StoreRefused, match="of this user alone"):
            await open_at(tmp_path / "runs.db")


async def test_a_runtime_folder_too_long_for_sockets_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 100)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    await open_at(tmp_path / "runs.db")
    assert not long.exists()


def schema_of(db: sqlite3.Connection) -> list[tuple[str, ...]]:
    return db.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"
    ).fetchall()


async def test_the_schema_is_the_sum_of_the_migrations(path: Path) -> None:
    await open_at(path)
    made = sqlite3.connect(path)
    summed = sqlite3.connect(":memory:")
    for script in MIGRATIONS:
        for statement in statements_of(script):
            summed.execute(statement)
    assert schema_of(made) == schema_of(summed)
    assert made.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert made.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    made.close()
    summed.close()


async def test_a_file_of_each_former_version_is_brought_to_the_newest(tmp_path: Path) -> None:
    for version in range(len(MIGRATIONS)):
        path = tmp_path / f"v{version}.db"
        db = sqlite3.connect(path)
        for script in MIGRATIONS[:version]:
            db.executescript(script)
        if version:
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {version}")
        db.close()
        await open_at(path)
        db = sqlite3.connect(path)
        assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        db.close()


OPENER = """
import asyncio, sys
from stepwell_queue import RandomIds, SystemClock, open_store
async def main():
    clock = SystemClock()
    sys.stdin.readline()
    store = await open_store(sys.argv[1], clock=clock, ids=RandomIds(clock))
    assert await store.doctor() == []
    print("open", flush=True)
    sys.stdin.readline()
    await store.close()
asyncio.run(main())
"""


@pytest.mark.blocking
def test_many_processes_make_one_new_file_at_once(path: Path) -> None:
    command = [sys.executable, "-I", "-W", "error", "-c", OPENER, str(path)]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(20)
    ]
    try:
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "open\n"
        for child in children:
            child.communicate("end\n", timeout=60)
            assert child.returncode == 0
    finally:
        for child in children:
            child.kill()
            child.communicate()
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


TARGET = "SEARCH targets USING COVERING INDEX sqlite_autoindex_targets_1 (queue=? AND name=?"
SEEK = "SEARCH runs USING COVERING INDEX runs_ready (target=?)"
LEVEL = "SEARCH runs USING COVERING INDEX runs_ready (target=? AND priority<?)"
LANES = "SEARCH runs USING COVERING INDEX runs_lanes (target=? AND priority=? AND lane>?)"

# what is running, as many runs as one claim takes, and as many ends as are kept or go in one pass
SORTS_LITTLE = ("running_in_queue", "ready_in_lanes", "kept_since", "prunable")


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("append", ["SEARCH runs USING INTEGER PRIMARY KEY (rowid=?)"]),
        ("finish", ["SEARCH runs USING INTEGER PRIMARY KEY (rowid=?)"]),
        ("finish_some", ["SEARCH runs USING INTEGER PRIMARY KEY (rowid=?)"]),
        ("all_stand", ["SEARCH runs USING INDEX sqlite_autoindex_runs_1 (id=?)"]),
        ("wake_some", ["SEARCH runs USING INTEGER PRIMARY KEY (rowid=?)"]),
        ("finish_more", ["SEARCH runs USING INTEGER PRIMARY KEY (rowid=?)"]),
        ("park", ["SEARCH runs USING INTEGER PRIMARY KEY (rowid=?)"]),
        ("park_until", ["SEARCH runs USING INTEGER PRIMARY KEY (rowid=?)"]),
        ("find_target", [TARGET]),
        ("claim_seek", [SEEK]),
        ("claim_seek_alone", [SEEK.replace("runs_ready", "runs_alone")]),
        ("any_alone", ["SCAN runs USING COVERING INDEX runs_alone"]),
        ("ready_in_queue", ["SEARCH r USING COVERING INDEX runs_ready (target=?)"]),
        ("running_in_queue", ["SEARCH runs USING COVERING INDEX runs_held (worker>?)"]),
        ("next_priority", [LEVEL, LEVEL.replace("runs_ready", "runs_lanes")]),
        ("ready_without_key", [SEEK.replace(")", " AND priority=?)")]),
        ("ready_lanes", [LANES, LANES.replace("runs USING", "r USING")]),
        ("ready_in_lanes", [LANES.replace("runs USING", "o USING").replace("lane>", "lane=")]),
        ("empty_buckets", ["SEARCH buckets USING INDEX buckets_full (full>?)"]),
        ("buckets_of_keys", ["SEARCH buckets USING INDEX sqlite_autoindex_buckets_1 (queue=? AND"]),
        ("next_due", ["SEARCH runs USING COVERING INDEX runs_due (due>?)"]),
        ("inbox", ["SEARCH inbox USING INDEX inbox_waiting (run=?)"]),
        ("any_waiting", ["SCAN inbox USING INDEX inbox_waiting"]),
        ("hand_back", ["SEARCH runs USING COVERING INDEX runs_held (worker=?)"]),
        ("kept_since", ["SEARCH r USING COVERING INDEX runs_ended (target=? AND ended>?)"]),
        (
            "prunable",
            ["SEARCH o USING COVERING INDEX runs_ended (target=? AND ended>? AND ended<?)"],
        ),
        ("unclaimed_in_queue", ["SEARCH r USING INDEX runs_due (due>?)"]),
        ("any_keyed", ["SEARCH runs USING COVERING INDEX runs_lanes (target=?)"]),
        ("find_running", ["SEARCH runs USING INDEX runs_held (worker>?)"]),
        ("unended_below", ["SEARCH c USING INDEX runs_children (parent=?)"]),
        ("pause_waits", ["SEARCH inbox USING INDEX inbox_waiting (run=?)"]),
        ("forget_pause", ["SEARCH inbox USING INDEX inbox_waiting (run=?)"]),
        (
            "fork_journal",
            ["SEARCH journal USING INDEX sqlite_autoindex_journal_1 (run=? AND seq<?)"],
        ),
        (
            "fork_children",
            ["SEARCH journal USING INDEX sqlite_autoindex_journal_1 (run=? AND seq<?)"],
        ),
        (
            "last_offset",
            ["SEARCH stream_items USING COVERING INDEX sqlite_autoindex_stream_items_1"],
        ),
        ("note_emit", ["SEARCH runs USING INTEGER PRIMARY KEY (rowid=?)"]),
        ("remote_at", ["SEARCH r USING INDEX runs_children (parent=?)"]),
    ],
)
async def test_hot_statements_use_their_index(path: Path, name: str, plan: list[str]) -> None:
    await open_at(path)
    db = sqlite3.connect(path)
    rows = ", ".join([ROWS.get(name, "")] * 16)
    sql = SQL[name].format(rows=rows, statuses="", must_stay=SQL["must_stay"])
    plans = db.execute(f"EXPLAIN QUERY PLAN {sql}", (None,) * sql.count("?")).fetchall()
    steps = [row[3] for row in plans]
    db.close()
    for step in plan:
        assert any(found.startswith(step) for found in steps), steps
    if name not in SORTS_LITTLE:
        assert not any("TEMP B-TREE" in step for step in steps)


async def test_a_claim_reads_the_ready_index_and_sorts_no_backlog(path: Path) -> None:
    await open_at(path)
    db = sqlite3.connect(path)
    sql = SQL["claim"].format(seeks=SQL["claim_seek"])
    rows = db.execute(f"EXPLAIN QUERY PLAN {sql}", (None,) * sql.count("?")).fetchall()
    steps = [row[3] for row in rows]
    db.close()
    assert SEEK in steps
    # what is sorted are the heads of the seeks, never more than the limit of each
    assert not any(step == "SCAN runs" for step in steps)


ROWS = {
    "insert_ready": "(?, ?, ?, ?, ?, ?, ?, ?, ?, 1)",
    "append_some": SQL["append"].partition("VALUES ")[2],
    "finish_some": "(?, ?, ?, ?, ?)",
    "insert_some_with_terms": "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "insert_terms": "(?, ?, ?, ?, ?, ?, ?)",
    "tell_some": "(?, ?, ?, ?, ?, ?, ?, ?)",
}


async def test_every_statement_is_valid(path: Path) -> None:
    await open_at(path)
    db = sqlite3.connect(path)
    for name, sql in SQL.items():
        if name in ("info_columns", "must_stay"):  # parts of others
            continue
        whole = sql.format(
            seeks=SQL["claim_seek"],
            columns=SQL["info_columns"],
            conditions="1",
            rows=ROWS.get(name),
            statuses="",
            must_stay=SQL["must_stay"],
        )
        db.execute(f"EXPLAIN {whole}", (None,) * whole.count("?"))
    db.close()


def test_no_statement_numbers_its_parameters() -> None:
    """Python 3.12 takes them for named ones, and deprecates to give those their values in order."""
    assert [name for name, sql in SQL.items() if re.search(r"\?\d", sql)] == []


FORKER = """
import asyncio, os, sys, threading
from stepwell_queue import StoreUnavailable
from tests.store.kit import open_bench

loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()

def wait(work):
    return asyncio.run_coroutine_threadsafe(work, loop).result()

async def refused(bench, session):
    for use in (bench.start(), bench.claim(session), bench.store.info("run-1"),
                bench.store.wait_ended("run-1"), bench.session()):
        try:
            await use
        except StoreUnavailable as error:
            assert "fork" in str(error), error
        else:
            raise AssertionError("the child could use the store")
    await bench.store.close()

bench = wait(open_bench(sys.argv[1]))
session = wait(bench.session())
for round in range(int(sys.argv[2])):
    wait(bench.claimed(session))
    child = os.fork()
    if child == 0:
        asyncio.run(refused(bench, session))
        sys.exit()  # as any program ends: the interpreter is taken down
    wait(bench.start())
    wait(bench.claim(session))
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    wait(bench.claimed(session, f"after-{round}"))
assert wait(bench.store.doctor()) == []
assert len(wait(bench.store.workers())) == 1
wait(bench.store.close())
"""


@pytest.mark.blocking
def test_a_forked_child_is_refused_and_breaks_nothing(path: Path, scale: Any) -> None:
    root = Path(__file__).parents[2]
    code = f"import sys; sys.path.insert(0, {str(root)!r})\n{FORKER}"
    command = [sys.executable, "-I", "-c", code, str(path), str(scale(10, 200))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


async def test_closing_leaves_no_log_and_no_presence(path: Path) -> None:
    bench = await open_bench(path)
    token = Path(bench.store._context.token)  # type: ignore[attr-defined] # the file's name is internal
    assert token.with_suffix(".lock").exists()
    await bench.start()
    await bench.store.close()
    await bench.store.close()
    assert not path.with_name("runs.db-wal").exists()
    assert list(token.parent.glob(f"{token.name}*")) == []
    with pytest.raises(StoreUnavailable):
        await bench.start()


async def test_two_stores_of_one_process_share_a_file(path: Path) -> None:
    first, second = await open_bench(path), await open_bench(path)
    session = await second.session()
    await first.start("shared")
    async with asyncio.timeout(10):
        waiting = asyncio.ensure_future(first.store.wait_ended("shared"))
        run = await second.claim_one(session)
        await second.store.do(Finish(run.run, 1, Status.COMPLETED, b"", second.clock.now()))
        assert (await waiting).status == Status.COMPLETED
    await first.store.close()
    await second.store.close()

"""The ingestion of a real folder, interrupted, repeated and searched."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sysconfig
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.examples.running import ROOT, command, run

INGEST = "examples.ingest"
LIBRARY = Path(sysconfig.get_paths()["stdlib"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a part of the standard library that the test may change."""
    ignored = shutil.ignore_patterns("__pycache__")
    return Path(shutil.copytree(LIBRARY / "encodings", tmp_path / "texts", ignore=ignored))


def indexed(files: Path) -> int:
    try:
        with closing(sqlite3.connect(f"file:{files / 'index.db'}?mode=ro", uri=True)) as index:
            return int(index.execute("SELECT count(*) FROM files").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def test_every_file_is_indexed_and_found(tmp_path: Path, folder: Path) -> None:
    files = tmp_path / "files"
    total = len(list(folder.rglob("*.py")))
    done = run(INGEST, "--dir", files, "index", folder)
    assert done.returncode == 0, done.stderr
    assert f"{total} files, {total} of them new or changed" in done.stdout
    found = run(INGEST, "--dir", files, "search", "decode_generalized_number")
    assert found.returncode == 0
    assert "punycode.py" in found.stdout.splitlines()[0]
    assert run(INGEST, "--dir", files, "search", "xyzzyplugh").returncode == 1


def test_only_what_has_changed_is_indexed_again(tmp_path: Path, folder: Path) -> None:
    files = tmp_path / "files"
    run(INGEST, "--dir", files, "index", folder)
    total = indexed(files)
    (folder / "idna.py").write_text('"""Now about xyzzyplugh."""\n', "utf-8")
    (folder / "punycode.py").unlink()
    (folder / "foreign.txt").write_bytes(b"\xff\xfe\x00caf\xe9")
    done = run(INGEST, "--dir", files, "index", folder)
    assert f"{total} files, 1 of them new or changed" in done.stdout
    assert "not readable" in done.stdout
    assert "foreign.txt" in done.stdout
    assert indexed(files) == total - 1
    assert "idna.py" in run(INGEST, "--dir", files, "search", "xyzzyplugh").stdout


def test_an_ingestion_that_is_killed_goes_on_where_it_stopped(tmp_path: Path, folder: Path) -> None:
    files = tmp_path / "files"
    total = len(list(folder.rglob("*.py")))
    arguments = ("--dir", files, "index", folder)
    with subprocess.Popen(command(INGEST, arguments), cwd=ROOT, stdout=subprocess.PIPE) as process:
        while indexed(files) < 20:  # only the index tells how far another process is
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.002)
        process.kill()
    before = indexed(files)
    assert before < total
    done = run(INGEST, *arguments)
    assert done.returncode == 0, done.stderr
    assert f"going on with {before} files indexed before" in done.stdout
    assert f"{total} files" in done.stdout
    assert indexed(files) == total

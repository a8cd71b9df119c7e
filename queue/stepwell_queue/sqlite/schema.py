"""The file: whose it is, which schema it has, and bringing it to the newest."""

from __future__ import annotations

import sqlite3
from importlib import resources
from pathlib import Path
from typing import Final

from stepwell_queue.errors import StoreRefused
from stepwell_queue.sqlite.connection import Durability, connect

APPLICATION_ID: Final = 0x53574C31  # "SWL1"
_OLDEST_SQLITE: Final = (3, 37, 0)  # STRICT tables
_PATIENCE: Final = 30.0  # seconds to wait for another process that migrates


def migrations() -> list[str]:
    """The scripts, in order; the n-th brings a file to version n."""
    folder = resources.files("stepwell_queue.sqlite").joinpath("migrations")
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return [file.read_text("utf-8") for file in files]


def prepare(path: Path, durability: Durability) -> sqlite3.Connection:
    """Open the file, check that it can be used, and migrate it. Raises StoreRefused."""
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise StoreRefused(
            f"SQLite {sqlite3.sqlite_version} is too old: Stepwell needs 3.37 or newer"
        )
    try:
        db = connect(path, durability, wait=_PATIENCE)
        try:
            _check_owner(db, path)
            _write_ahead(db, path)
            _migrate(db, path)
        except BaseException:
            db.close()
            raise
    except sqlite3.DatabaseError as error:
        raise StoreRefused(_explain(error, path)) from error
    return db


def _check_owner(db: sqlite3.Connection, path: Path) -> int:
    """The schema version of the file; 0 = empty."""
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    owner = db.execute("PRAGMA application_id").fetchone()[0]
    tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if owner == 0 and version == 0 and tables == 0:
        return 0
    if owner != APPLICATION_ID:
        raise StoreRefused(
            f"{path} is a database of another program: give Stepwell a file of its own"
        )
    if version > len(migrations()):
        raise StoreRefused(
            f"{path} has schema version {version}, this code knows {len(migrations())}: "
            "it was written by a newer Stepwell; upgrade this one"
        )
    return version


def _write_ahead(db: sqlite3.Connection, path: Path) -> None:
    mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreRefused(
            f"{path}: the file system does not support SQLite's write-ahead log "
            "(shared memory is missing, as on network mounts): put the file on a local disk"
        )


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    scripts = migrations()
    if _check_owner(db, path) == len(scripts):
        return
    db.execute("BEGIN EXCLUSIVE")
    try:
        # read again: another process may have migrated it meanwhile
        for number in range(_check_owner(db, path), len(scripts)):
            for statement in statements_of(scripts[number]):
                db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {len(scripts)}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def statements_of(script: str) -> list[str]:
    """Split a script; `executescript` would commit behind our back."""
    statements: list[str] = []
    part = ""
    for line in script.splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            statements.append(part.strip())
            part = ""
    return statements


def _explain(error: sqlite3.DatabaseError, path: Path) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return f"{path} is not an SQLite database: give Stepwell a new file or one of its own"
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
        return (
            f"{path} cannot be opened for writing ({error}): the folder must exist, and both the "
            "folder and the file must be writable, since SQLite keeps -wal and -shm files beside it"
        )
    if code == sqlite3.SQLITE_BUSY:
        return f"{path} was locked by another program for too long ({error})"
    return f"{path} cannot be used: {error}; it must be on a local disk that supports shared memory"

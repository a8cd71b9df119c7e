"""What a killed process leaves behind: its files as they were after a COMMIT."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from stepwell_queue.sqlite.connection import Connect


class _Cursor(sqlite3.Cursor):
    def execute(self, sql: str, parameters: Any = (), /) -> Self:
        super().execute(sql, parameters)
        if sql == "COMMIT":
            assert isinstance(self.connection, _Connection)
            self.connection.committed()
        return self


class _Connection(sqlite3.Connection):
    committed: Callable[[], None]

    def cursor(self, factory: Any = None, /) -> Any:
        return super().cursor(_Cursor)


def watching(committed: Callable[[], None]) -> Connect:
    """Return a factory of connections that say first of all when they have committed."""

    def connect(path: Path, **options: Any) -> sqlite3.Connection:
        db = sqlite3.connect(path, factory=_Connection, **options)
        assert isinstance(db, _Connection)
        db.committed = committed
        return db

    return connect


def copy_database(source: Path, target: Path) -> None:
    for suffix in ("", "-wal"):
        file = Path(f"{source}{suffix}")
        if file.exists():
            shutil.copyfile(file, f"{target}{suffix}")


def leave_lock_of_the_dead(token: str) -> None:
    """Make the file of a lock that the kernel has let go of."""
    path = Path(f"{token}.lock")
    path.parent.mkdir(exist_ok=True)
    path.touch()


def remove_traces(token: str) -> None:
    """Remove a dead lock, and the runtime folder of a file that nobody will open again."""
    path = Path(f"{token}.lock")
    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # gone, or in use after all
        path.parent.rmdir()

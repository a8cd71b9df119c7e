"""Connections: how they are opened, and which pragmas they get."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Literal

Durability = Literal["full", "process"]
Connect = Callable[..., sqlite3.Connection]


def connect(
    path: Path, durability: Durability, *, wait: float = 0.0, factory: Connect = sqlite3.connect
) -> sqlite3.Connection:
    """Open a read-write connection; `wait` = seconds that a statement waits for a lock."""
    db = factory(
        path,
        timeout=wait,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    try:
        db.execute(f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}")
        db.execute("PRAGMA fullfsync = ON")  # macOS: fsync alone does not reach the platter
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute("PRAGMA journal_size_limit = 16777216")
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute("PRAGMA cache_size = -16384")
    except BaseException:
        db.close()
        raise
    return db

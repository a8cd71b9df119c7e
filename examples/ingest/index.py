"""The full-text index: one SQLite file with an FTS5 table."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SCHEMA = """
CREATE TABLE IF NOT EXISTS files (id INTEGER PRIMARY KEY, path TEXT UNIQUE, digest TEXT);
CREATE VIRTUAL TABLE IF NOT EXISTS texts USING fts5 (title, names, body);
"""
SEARCH = """
SELECT path, title, snippet(texts, -1, '[', ']', ' … ', 12)
FROM texts JOIN files ON files.id = texts.rowid
WHERE texts MATCH ? ORDER BY bm25(texts, 4.0, 8.0, 1.0) LIMIT ?
"""


@dataclass(frozen=True)
class Text:
    path: Path
    digest: str
    title: str
    names: str
    body: str


@dataclass(frozen=True)
class Hit:
    path: str
    title: str
    excerpt: str


class Index:
    """May be used from any thread."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, timeout=30.0, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.executescript(SCHEMA)
        self._lock = threading.Lock()

    def close(self) -> None:
        self._connection.close()

    def has(self, path: Path, digest: str) -> bool:
        with self._lock:
            found = self._connection.execute(
                "SELECT 1 FROM files WHERE path = ? AND digest = ?", (str(path), digest)
            )
            return found.fetchone() is not None

    def put(self, text: Text) -> None:
        """Add or replace a text, all or nothing."""
        with self._lock, self._connection as connection:
            (id,) = connection.execute(
                """INSERT INTO files (path, digest) VALUES (?, ?)
                   ON CONFLICT (path) DO UPDATE SET digest = excluded.digest RETURNING id""",
                (str(text.path), text.digest),
            ).fetchone()
            connection.execute("DELETE FROM texts WHERE rowid = ?", (id,))
            connection.execute(
                "INSERT INTO texts (rowid, title, names, body) VALUES (?, ?, ?, ?)",
                (id, text.title, text.names, text.body),
            )

    def forget(self, paths: Iterable[str]) -> None:
        with self._lock, self._connection as connection:
            for path in paths:
                connection.execute(
                    "DELETE FROM texts WHERE rowid = (SELECT id FROM files WHERE path = ?)", (path,)
                )
                connection.execute("DELETE FROM files WHERE path = ?", (path,))

    def paths(self) -> list[str]:
        with self._lock:
            return [path for (path,) in self._connection.execute("SELECT path FROM files")]

    def count(self) -> int:
        with self._lock:
            return int(self._connection.execute("SELECT count(*) FROM files").fetchone()[0])

    def search(self, words: str, limit: int) -> list[Hit]:
        """Return the best places that have all of the words."""
        query = " ".join('"' + word.replace('"', '""') + '"' for word in words.split())
        with self._lock:
            return [Hit(*row) for row in self._connection.execute(SEARCH, (query, limit))]

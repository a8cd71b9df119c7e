"""What is kept of attempts that did not end well: the first of a run and the last, not all."""

from __future__ import annotations

from typing import Final

from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import Tx

FIRST_KEPT: Final = 10
LAST_KEPT: Final = 50
LARGEST_ERROR: Final = 64 * 1024
"""Bytes; of an attempt with a larger one all else is kept. The run itself has its last error."""

_NOTE, _CRASH, _DROP = SQL["note_failure"], SQL["note_crash"], SQL["drop_failure"]


def note_failure(tx: Tx, run: int, fence: int, number: int, ended: float, error: bytes) -> None:
    """Note that the attempt of whoever has this claim has failed; without it, do nothing.

    It is said before what ends the claim, which tells who had it, and since when.
    """
    kept = error if len(error) <= LARGEST_ERROR else b""
    _insert(tx, run, _NOTE, (number, ended, kept, run, fence))


def note_crash(tx: Tx, run: int, fence: int) -> None:
    """Note that the worker of a task, or of a step with a queue, has died with it."""
    _insert(tx, run, _CRASH, (tx.now, run, fence))


def _insert(tx: Tx, run: int, sql: str, row: tuple[object, ...]) -> None:
    tx.execute(sql, row)
    if tx.cursor.rowcount == 1:
        tx.execute(_DROP, (run, FIRST_KEPT, run, FIRST_KEPT + LAST_KEPT))

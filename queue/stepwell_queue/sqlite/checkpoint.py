"""Keeping the write-ahead log short: PASSIVE beside the writers, RESTART between batches.

Where each commit is synced, it is kept very short: a log that starts again is written over, which a
disk syncs in half the time that it takes to make a file longer.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

_log = logging.getLogger("stepwell.store")

_PAGE: Final = 4096
_PASSIVE_AT: Final = 4 * 1024 * 1024
_SHORT: Final = 4 * 1024 * 1024
_LATER: Final = 16 * 1024 * 1024  # what the log grows before the next try, after one that failed
_LONG: Final = 64 * 1024 * 1024  # from here on, writers wait for readers to leave
_RESTART_WAIT: Final = 1.0  # seconds that they wait
_TOO_FAR: Final = 32 * 1024 * 1024  # beyond that, while a checkpoint is on its way


class Checkpointer:
    """Estimates the growth of the log from the verbs; each checkpoint corrects the estimate."""

    def __init__(
        self, connect: Callable[[float], sqlite3.Connection], executor: Executor, *, short: bool
    ) -> None:
        """`short`: begin the log anew as soon as it pays to write over it."""
        self._connect, self._executor = connect, executor
        self._db: sqlite3.Connection | None = None
        self._loop = asyncio.get_running_loop()
        self._verbs = self._bytes = 0
        self._looked_at = 0, 0
        self._per_verb = 3.0 * _PAGE  # bytes, beside its values
        self._grown = 0.0  # bytes, since the log was looked at
        self._pages = 0  # in the log, when last looked at
        self._running: asyncio.Future[tuple[int, int] | None] | None = None
        self._restart = False
        self._paused: Callable[[], None] | None = None
        self._restart_from = self._restart_at = _SHORT if short else _LONG
        self._warned = False

    def note(self, verbs: int, size: int) -> None:
        """So many verbs, with so many bytes of values, were committed."""
        self._verbs += verbs
        self._bytes += size
        self._grown = self._verbs * self._per_verb + self._bytes
        if self._grown >= _PASSIVE_AT and self._running is None:
            self._start("PASSIVE", 0.0, None)

    def pause(self, resume: Callable[[], None]) -> bool:
        """Whether writing stops until `resume` is called."""
        if self._running is not None:
            # the disk cannot move pages as fast as they are written
            if self._pages * _PAGE + self._grown < max(self._restart_from, _LONG) + _TOO_FAR:
                return False
            self._paused = resume
            return True
        if not self._restart:
            return False
        self._start_again(resume)
        return True

    def _start_again(self, resume: Callable[[], None]) -> None:
        self._restart = False
        wait = _RESTART_WAIT if self._pages * _PAGE >= _LONG else 0.0
        self._start("RESTART", wait, resume)

    def _start(self, mode: str, wait: float, resume: Callable[[], None] | None) -> None:
        self._looked_at = self._verbs, self._bytes
        self._running = self._loop.run_in_executor(self._executor, self._checkpoint, mode, wait)
        self._running.add_done_callback(lambda done: self._finished(done, resume))

    def _checkpoint(self, mode: str, wait: float) -> tuple[int, int] | None:
        """Pages in the log, and pages moved; None if it failed."""
        try:
            if self._db is None:
                self._db = self._connect(0.0)
            self._db.execute(f"PRAGMA busy_timeout = {int(wait * 1000)}")
            _, log, moved = self._db.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except sqlite3.Error as error:
            _log.warning("a checkpoint failed (%s); the log grows until one succeeds", error)
            return None
        return int(log), int(moved)

    def _finished(
        self,
        done: asyncio.Future[tuple[int, int] | None],
        resume: Callable[[], None] | None,
    ) -> None:
        self._running = None
        result = None if done.cancelled() else done.result()
        if result is not None:
            self._learn(*result, restarted=resume is not None)
        if self._paused is not None:
            resume, self._paused = self._paused, None
            self._start_again(resume)
        elif resume is not None:
            resume()

    def _learn(self, log: int, moved: int, restarted: bool) -> None:
        grown = log - self._pages if log >= self._pages else log
        verbs, size = self._looked_at
        if verbs and not restarted:
            seen = (grown - size / _PAGE) / verbs
            self._per_verb = (self._per_verb + min(max(seen, 0.02), 20.0) * _PAGE) / 2
        self._verbs -= verbs
        self._bytes -= size
        size = log * _PAGE
        if restarted and moved < log:
            self._restart_from = size + _LATER
            if size >= _LONG and not self._warned:
                self._warned = True
                _log.warning(
                    "the write-ahead log has %d MiB and cannot be reset: "
                    "somebody keeps a read transaction open",
                    size // 1024 // 1024,
                )
        elif restarted or log < self._pages:
            self._restart_from = self._restart_at
            self._warned = False
        # once everything is moved and read by nobody, the next writer starts the log again
        self._pages = 0 if restarted and moved == log else log
        self._restart = not restarted and size >= self._restart_from

    async def close(self) -> None:
        if self._running is not None:
            await asyncio.wait([self._running])
        if self._db is not None:
            await self._loop.run_in_executor(self._executor, self._db.close)
            self._db = None

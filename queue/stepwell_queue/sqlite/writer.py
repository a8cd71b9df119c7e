"""The writing connection: used inline or on its thread, and replaced when it is beyond repair."""

from __future__ import annotations

import contextlib
import queue
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

from stepwell_queue.sqlite.apply import Batch, Busy, Outage, apply
from stepwell_queue.sqlite.turn import Turn
from stepwell_queue.sqlite.tx import Context, Effects

Applied = tuple[list[Any], Effects]
_PATIENCE = 30.0  # seconds to wait for the write lock


class Writer:
    """One connection and one thread. Either the loop or the thread uses it, never both."""

    def __init__(
        self, connect: Callable[[], sqlite3.Connection], context: Context, turn: Turn
    ) -> None:
        self._connect, self._context, self._turn = connect, context, turn
        self._db: sqlite3.Connection | None = connect()
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def apply(self, batch: Batch) -> Applied:
        """Apply without waiting for the lock. Raises Busy, Outage."""
        db = self._db
        try:
            if db is None:
                db = self._db = self._connect()
            return apply(db, self._context, batch)
        except (Busy, Outage):
            self._drop_if_broken()
            raise
        except sqlite3.Error as error:  # opening, or rolling back, failed
            self._drop()
            raise Outage(str(error)) from error

    def apply_waiting(self, batch: Batch) -> Applied:
        """Apply in turn with other processes. Raises Outage."""
        give_up = time.monotonic() + _PATIENCE
        with self._turn.taken(not self._context.alone):
            while True:
                try:
                    return self.apply(batch)
                except Busy as error:
                    if time.monotonic() > give_up:
                        raise Outage(f"the write lock was not free for {_PATIENCE} s") from error
                    time.sleep(random.uniform(0.0005, 0.003))

    def _drop_if_broken(self) -> None:
        if self._db is not None and self._db.in_transaction:
            self._drop()

    def _drop(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(sqlite3.Error):  # it is given up either way
                db.close()

    def call(self, work: Callable[[], None]) -> None:
        """Have the thread do this."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="stepwell-writer", daemon=True)
            self._thread.start()
        self._work.put(work)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def stop(self) -> None:
        """End the thread and close the connection; blocks until both is done."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
        self._drop()

    @property
    def connection(self) -> sqlite3.Connection | None:
        return self._db

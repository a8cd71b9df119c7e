"""The heartbeat: a thread and a connection of its own, so that a blocked loop loses nothing."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sized

from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import Context, SessionState

_log = logging.getLogger("stepwell.store")
_BEAT = SQL["beat"]


class Beat:
    """Extends the leases of this process's workers, while anything is held."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        context: Context,
        held: Sized,
        swept: Callable[[SessionState], None],
    ) -> None:
        """`swept` is called, on the thread, when somebody handed over what a worker held."""
        self._connect, self._context, self._held, self._swept = connect, context, held, swept
        self._lock = threading.Condition()
        self._thread: threading.Thread | None = None
        self._db: sqlite3.Connection | None = None
        self._stopped = False
        self.active = False

    def wake(self) -> None:
        """Something is held now."""
        with self._lock:
            self.active = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="stepwell-beat", daemon=True)
                self._thread.start()
            self._lock.notify()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            self._lock.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        failing = False
        while self._wait():
            try:
                if self._db is None:
                    self._db = self._connect()
                self._beat(self._db)
                failing = False
            except sqlite3.Error as error:
                if not failing:
                    _log.error("the heartbeat cannot be written (%s); trying on", error)
                failing = True
                self._drop()
        self._drop()

    def _drop(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()

    def _wait(self) -> bool:
        """Wait for the next beat; False = stop."""
        with self._lock:
            self._lock.wait_for(lambda: self._stopped, self._context.lease / 3)
            if not self._held and not self._stopped:
                self.active = False
                self._lock.wait_for(lambda: self._stopped or self.active)
            return not self._stopped

    def _beat(self, db: sqlite3.Connection) -> None:
        found: list[tuple[SessionState, float, int]] = []
        db.execute("BEGIN IMMEDIATE")
        for session in list(self._context.sessions.values()):
            until = session.lease_end(time.monotonic(), self._context.lease)
            for (swept,) in db.execute(_BEAT, (until, session.worker)).fetchall():
                found.append((session, until, swept))
        db.execute("COMMIT")
        for session, until, swept in found:
            session.until = until
            if swept != session.swept:
                session.swept = swept
                self._swept(session)

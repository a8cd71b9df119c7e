"""A worker process under a supervisor: it stops when told to, or when the supervisor is gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading

from stepwell._app.shutdown import StopRequests
from stepwell_runtime.log import log

LINE = "STEPWELL_SUPERVISOR"
"""The environment variable that holds the number of the socket to the supervisor."""
READY, STOP, STOP_NOW = b"r", b"s", b"n"
LATE = 30.0
"""Seconds after the grace when a worker that has not ended is taken for hung."""


def supervisor_line() -> socket.socket | None:
    """Return the socket to the supervisor; None if this process has none. Call it once."""
    number = os.environ.pop(LINE, None)  # processes that steps start are not supervised
    if number is None:
        return None
    line = socket.socket(fileno=int(number))
    line.set_inheritable(False)
    return line


class Supervised:
    """Listens to the supervisor, in a thread: a blocked loop, too, must not outlive it for ever.

    Stop requests come over the socket and not as signals, because a service manager may send its
    signal to all processes of a group, and the same one passed on would count as the second. Of
    signals, the first one counts.
    """

    def __init__(self, line: socket.socket, grace: float) -> None:
        self._line, self._grace = line, grace
        self._serving: tuple[asyncio.AbstractEventLoop, StopRequests] | None = None
        self._limit: threading.Timer | None = None
        threading.Thread(target=self._listen, daemon=True, name="stepwell-supervisor").start()

    def serves(self, requests: StopRequests) -> None:
        """Report that this worker serves, and stop it by `requests` from now on."""
        requests.signals_insist = False
        self._serving = asyncio.get_running_loop(), requests
        with contextlib.suppress(OSError):  # it is gone, as the thread will notice
            self._line.send(READY)

    def _listen(self) -> None:
        while True:
            try:
                asked = self._line.recv(1)
            except OSError:  # reset: it died with something unread
                asked = b""
            if not asked and self._limit is None:
                log.warning("supervisor_gone", hint="this worker stops, too")
            self._stop(asked)
            if not asked:
                return

    def _stop(self, asked: bytes) -> None:
        if self._limit is None:
            self._limit = threading.Timer(self._grace + LATE, kill_hung)
            self._limit.daemon = True
            self._limit.start()
        if self._serving is None:  # it holds nothing yet
            os.kill(os.getpid(), signal.SIGTERM)
            return
        loop, requests = self._serving
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has stopped
            loop.call_soon_threadsafe(requests.insist if asked == STOP_NOW else requests.ask)


def kill_hung() -> None:
    log.error("worker_hung", hint="it has not stopped in time, and is killed")
    os.kill(os.getpid(), signal.SIGKILL)

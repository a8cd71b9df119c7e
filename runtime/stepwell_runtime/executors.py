"""Where the functions of attempts run: the loop, threads or child processes, within middleware."""

from __future__ import annotations

import threading

import anyio

from stepwell_runtime.middleware import Middleware
from stepwell_runtime.processes import Processes


class Executors:
    """What all attempts of a worker share.

    `abandoned`: how many threads go on with what nobody waits for any more. `lock`: held to say
    that a thread begins or ends with an attempt, and that an attempt is stopped.
    """

    __slots__ = ("abandoned", "lock", "middleware", "processes", "threads")

    def __init__(
        self, threads: int, processes: Processes, middleware: tuple[Middleware, ...] = ()
    ) -> None:
        self.threads = anyio.CapacityLimiter(threads)
        self.processes = processes
        self.middleware = middleware
        self.abandoned = 0
        self.lock = threading.Lock()

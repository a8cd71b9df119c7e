"""Lanes: a few long-lived tasks on which steps run one after another.

A task per step costs more than all else that is done for a short one. A lane runs a step up to its
first suspension, and where there is none takes the next one at once; when it does suspend, another
lane goes on with the queue. So there are as many lanes as steps that wait, plus one, and every step
still has a current task of its own while it runs. A lane that was cancelled retires with its step.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from stepwell_runtime.lag import clock
from stepwell_runtime.log import log

if TYPE_CHECKING:
    from stepwell_runtime.attempt import Attempt


MOST_IDLE = 64
LONGEST_TURN = 0.002
"""Seconds after which a lane that finds ever more short steps lets the rest of the loop run."""


class Lanes:
    """Runs attempts on the running loop.

    `flush` is called when the steps at hand have ended: it commits what they have left to be
    written, which may bring the next ones at once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, flush: Callable[[], None]) -> None:
        self._loop, self._flush = loop, flush
        self._queue: deque[Attempt] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._serving = False  # a lane is about to look into the queue
        self._closed = False

    def run(self, attempt: Attempt) -> None:
        self._queue.append(attempt)
        if not self._serving:
            self._wake()

    def suspended(self) -> None:
        """The lane that served the queue is about to wait for its step: let another one serve."""
        if self._queue:
            self._wake()
        else:
            self._serving = False

    def _wake(self) -> None:
        self._serving = True
        while self._idle:
            waiter = self._idle.pop()
            if not waiter.done():
                waiter.set_result(None)
                return
        task = self._loop.create_task(self._lane(), name="stepwell lane")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _lane(self) -> None:
        try:
            await self._serve()
        finally:
            # However it ends, by a cancel that a step has left behind or by a log that raises:
            # perhaps it had just been woken to serve.
            self.suspended()

    async def _serve(self) -> None:
        queue = self._queue
        task = asyncio.current_task()
        assert task is not None
        while True:
            began = clock()
            while queue:
                rest = None
                try:
                    rest = queue.popleft().run(task, self)
                    if rest is not None:
                        await rest
                except Exception:  # noqa: BLE001 - the other steps of the lane must go on
                    log.exception("attempt_broke")
                if task.cancelling():
                    return
                if not queue and rest is None:
                    # Where a step was awaited, others may end in this same turn of the loop: they
                    # shall be committed together. Here none can.
                    self._flush()
                    if not queue:
                        self._flush()  # what the last ends have left: the ends of their runs
                    elif clock() - began > LONGEST_TURN:
                        await asyncio.sleep(0)
                        began = clock()
            self._serving = False
            if self._closed or len(self._idle) >= MOST_IDLE:
                return
            waiter = self._loop.create_future()
            self._idle.append(waiter)
            await waiter

    def close(self) -> None:
        """Let idle lanes end; busy ones end with their step."""
        self._closed = True
        for waiter in self._idle:
            if not waiter.done():
                waiter.set_result(None)
        self._idle.clear()

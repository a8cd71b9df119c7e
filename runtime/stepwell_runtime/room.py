"""Waiting for room in a queue that is full."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from stepwell_queue.errors import QueueFull

T = TypeVar("T")
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0


async def when_there_is_room(work: Callable[[], Awaitable[T]], patience: float | None) -> T:
    """Do this again and again until it is not refused with QueueFull, and return its outcome.

    The pauses grow up to a second. `patience`: seconds after which it stays refused; None = never.
    """
    loop = asyncio.get_running_loop()
    until = None if patience is None else loop.time() + patience
    pause = _FIRST_PAUSE
    while True:
        try:
            return await work()
        except QueueFull:
            left = None if until is None else until - loop.time()
            if left is not None and left <= 0:
                raise
        await asyncio.sleep(pause if left is None else min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE)

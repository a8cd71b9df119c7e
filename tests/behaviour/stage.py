"""Where the steps of a test and the test itself meet: named events, and a list of what was done."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

LONG = 20.0  # seconds after which a test that waits for an event has failed


class Stage:
    """One per process; cleared for every test. Safe to use from the threads of plain steps."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.done: list[Any] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reached: dict[str, asyncio.Event] = {}
        self._released: dict[str, asyncio.Event] = {}
        self._opened: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def enter(self) -> None:
        """Say that this loop is the one on which the test waits."""
        self._loop = asyncio.get_running_loop()

    def note(self, what: Any) -> None:
        self.done.append(what)

    def count(self, what: Any) -> int:
        return self.done.count(what)

    def reach(self, name: str) -> None:
        """Tell the test that something has come to this point."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._event(self._reached, name).set)

    async def reached(self, name: str) -> None:
        """Wait until something has come to this point."""
        async with asyncio.timeout(LONG):
            await self._event(self._reached, name).wait()

    def was_reached(self, name: str) -> bool:
        return self._event(self._reached, name).is_set()

    async def hold(self, name: str) -> None:
        """Stay here until the test lets go."""
        self.reach(name)
        async with asyncio.timeout(LONG):
            await self._event(self._released, name).wait()

    def hold_thread(self, name: str) -> None:
        """Stay here, in a thread, until the test lets go."""
        self.reach(name)
        assert self._gate(name).wait(LONG)

    def release(self, name: str) -> None:
        self._event(self._released, name).set()
        self._gate(name).set()

    def _event(self, events: dict[str, asyncio.Event], name: str) -> asyncio.Event:
        with self._lock:
            return events.setdefault(name, asyncio.Event())

    def _gate(self, name: str) -> threading.Event:
        with self._lock:
            return self._opened.setdefault(name, threading.Event())


stage = Stage()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what only asking can tell, such as a status in the store."""
    async with asyncio.timeout(LONG):
        while not await condition():  # noqa: ASYNC110 - the store has no event for it
            await asyncio.sleep(0.001)

"""The warning that nobody serves a run whose result is awaited."""

from __future__ import annotations

import asyncio
import itertools

import structlog

from stepwell_queue.contract import Status, Store

log = structlog.get_logger("stepwell")

UNSERVED_AFTER = 5.0


class Unserved:
    """Looks, once each, at the runs that have been awaited for 5 s.

    One timer serves all of them.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._awaited: dict[int, tuple[str, float]] = {}  # oldest first
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._looks: set[asyncio.Task[None]] = set()

    def watch(self, id: str) -> int:
        """Return what to hand to `forget` when the result is there."""
        loop = asyncio.get_running_loop()
        number = next(self._numbers)
        self._awaited[number] = id, loop.time() + UNSERVED_AFTER
        if self._timer is None:
            self._timer = loop.call_later(UNSERVED_AFTER, self._look, loop)
        return number

    def forget(self, number: int) -> None:
        self._awaited.pop(number, None)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        while self._awaited:
            number, (id, due) = next(iter(self._awaited.items()))
            if due > now:
                self._timer = loop.call_at(due, self._look, loop)
                return
            del self._awaited[number]
            task = loop.create_task(self._warn(id))
            self._looks.add(task)
            task.add_done_callback(self._looks.discard)

    async def _warn(self, id: str) -> None:
        info = await self._store.info(id)
        if info is not None and not Status(info.status).terminal and not info.has_code:
            log.warning(
                "no_worker_for_run",
                run=id,
                queue=info.queue,
                name=info.name,
                version=info.version,
                hint="no live worker serves this queue with code of this name: "
                "start one, or check queues= and include=",
            )

    def close(self) -> None:
        """Stop looking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._awaited.clear()

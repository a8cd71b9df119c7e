"""The warning that nobody serves a run whose result is awaited."""

from __future__ import annotations

import asyncio
from time import monotonic

from stepwell_queue.contract import Status, Store
from stepwell_runtime.log import log

UNSERVED_AFTER = 5.0


class Unserved:
    """Looks, once each, at the runs that have been awaited for 5 s.

    One timer serves all of them.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.awaited: dict[int, tuple[str, float]] = {}  # oldest first; who has it takes it out
        self._last = 0
        self._timer: asyncio.TimerHandle | None = None
        self._looks: set[asyncio.Task[None]] = set()

    def watch(self, id: str) -> int:
        """Return what to take out of `awaited` when the result is there."""
        number = self._last = self._last + 1
        self.awaited[number] = id, monotonic() + UNSERVED_AFTER
        if self._timer is None:
            self._look_in(UNSERVED_AFTER)
        return number

    def _look_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        now = monotonic()
        while self.awaited:
            number, (id, due) = next(iter(self.awaited.items()))
            if due > now:
                self._look_in(due - now)
                return
            del self.awaited[number]
            task = asyncio.get_running_loop().create_task(self._warn(id))
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

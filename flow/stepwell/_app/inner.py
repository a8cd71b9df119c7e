"""The workers that `app.run` needs: one for all calls that run at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import asynccontextmanager

from stepwell._app.worker import Worker


class _Held:
    """A worker held open by a task of its own: the first user may be gone before the last."""

    def __init__(self, worker: Worker) -> None:
        self.users = 0
        self.entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.leave = asyncio.Event()
        self.task = asyncio.create_task(self._hold(worker))

    async def _hold(self, worker: Worker) -> None:
        try:
            async with worker:
                self.entered.set_result(None)
                await self.leave.wait()
        except BaseException as error:
            if self.entered.done():
                raise
            self.entered.set_exception(error)


class InnerWorkers:
    """Shares a worker among those who ask for the same at the same time."""

    def __init__(self) -> None:
        self._held: dict[Hashable, _Held] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serving(
        self, key: Hashable, make: Callable[[], Worker]
    ) -> AsyncGenerator[None, None]:
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = _Held(make())
        held.users += 1
        try:
            await asyncio.shield(held.entered)
            yield
        finally:
            held.users -= 1
            if held.users == 0:
                del self._held[key]
                held.leave.set()
                self._leaving.add(held.task)
                held.task.add_done_callback(self._leaving.discard)
                # Shielded: a cancelled caller does not cut the worker's hand-back short.
                await asyncio.shield(held.task)

    async def close(self) -> None:
        """Wait for those that are still handing back."""
        for held in self._held.values():
            held.leave.set()
        tasks = self._leaving | {held.task for held in self._held.values()}
        await asyncio.gather(*tasks, return_exceptions=True)

"""A registered worker of this process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable


class SqliteSession:
    """Implements `Session`."""

    def __init__(self, worker: int, end: Callable[[int], Awaitable[None]]) -> None:
        self._worker, self._end = worker, end
        self._closed = False

    @property
    def worker(self) -> int:
        return self._worker

    def offer(self, places: int) -> None:
        """Nothing to do: the worker hears of ready work, and claims it itself."""

    def dropped(self, run: int) -> None:
        """Nothing to do: each claim says which coroutines are kept."""

    async def close(self) -> None:
        """Unregister; whatever it still holds becomes ready at once, with no crash counted."""
        if not self._closed:
            self._closed = True
            await self._end(self._worker)

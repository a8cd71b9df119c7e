"""A queue, for code that blocks."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Unpack

from stepwell._app.queues import QueueInfo
from stepwell._queues import QueueChanges
from stepwell_runtime.spans import Seconds

if TYPE_CHECKING:
    from stepwell._blocking.calls import BlockingCalls


class BlockingQueueHandle:
    """A queue in a store, with methods that block."""

    __slots__ = ("_calls", "name")

    def __init__(self, calls: BlockingCalls, name: str) -> None:
        self._calls, self.name = calls, name

    def __repr__(self) -> str:
        return f"BlockingQueueHandle({self.name!r})"

    def pause(self, until: datetime | None = None, *, reason: str = "") -> None:
        """Have no worker begin anything of it; see QueueHandle.pause."""
        self._calls.do(lambda app: app.queue(self.name).pause(until, reason=reason))

    def resume(self) -> None:
        """End a pause; without one, nothing changes."""
        self._calls.do(lambda app: app.queue(self.name).resume())

    def drain(self, *, timeout: Seconds | None = None, reason: str = "") -> None:
        """Pause it, and wait until nothing of it is running; see QueueHandle.drain."""
        self._calls.do(lambda app: app.queue(self.name).drain(timeout=timeout, reason=reason))

    def purge(self, *, reason: str = "", confirm: bool = False) -> int:
        """Cancel all of it that no worker has begun yet; see QueueHandle.purge."""
        return self._calls.do(
            lambda app: app.queue(self.name).purge(reason=reason, confirm=confirm)
        )

    def configure(self, **changes: Unpack[QueueChanges]) -> None:
        """Change what holds for it; see QueueHandle.configure."""
        self._calls.do(lambda app: app.queue(self.name).configure(**changes))

    def info(self) -> QueueInfo:
        """Return the queue as it stands."""
        return self._calls.do(lambda app: app.queue(self.name).info())

"""The handle of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from stepwell._app.reports import LogLine, Progress
from stepwell._app.talking import RunTalk
from stepwell._app.views import History, RunInfo, RunStatus
from stepwell._options import span
from stepwell._signals import Signal
from stepwell_runtime.definitions import Seconds

if TYPE_CHECKING:
    from stepwell._app.app import Stepwell

R = TypeVar("R")
T = TypeVar("T")


class Run(RunTalk, Generic[R]):
    """A run in a store.

    `created` is False when a start found it there already: then `found` is the status that it had,
    or, where `replace=True` gave it this call, has with that; else None.
    """

    __slots__ = ("_app", "created", "found", "id", "result_type")

    def __init__(
        self,
        app: Stepwell,
        id: str,
        result_type: Any,
        created: bool = False,
        found: RunStatus | None = None,
    ) -> None:
        self._app, self.result_type = app, result_type
        self.id = id
        self.created = created
        self.found: RunStatus | None = found

    def __repr__(self) -> str:
        return f"Run({self.id!r})"

    async def result(self, *, timeout: Seconds | None = None) -> R:
        """Wait for the run to end and return its result; raise its own exception if it failed.

        `timeout` in seconds, None = no limit; then TimeoutError, and the run goes on. Also raises
        RunFailed, RunCancelled, RunTerminated, RunStuck, RunHeld, RunNotFound.
        """
        limit = span(timeout, "timeout")
        found: R = await self._app.engine.result(self.id, self.result_type, timeout=limit)
        return found

    async def info(self) -> RunInfo:
        """Return the run as it stands. Raises RunNotFound."""
        return await self._app.info(self.id)

    async def status(self) -> RunStatus:
        """Return the status word. Raises RunNotFound."""
        return (await self.info()).status

    async def history(self) -> History:
        """Return what has happened to it, with decoded values. Raises RunNotFound."""
        return await self._app.history(self.id)

    @overload
    async def signal(self, signal: Signal[T], value: T, /) -> None: ...
    @overload
    async def signal(self, signal: str, value: object = None, /) -> None: ...
    async def signal(self, signal: Signal[Any] | str, value: object = None, /) -> None:
        """Store a signal for the run; returns once it is durable. Raises RunNotFound, RunEnded."""
        await self._app.send(self.id, signal, value)

    async def cancel(self, *, reason: str = "", actor: str = "") -> RunStatus:
        """Ask the run to cancel; return its status afterwards. Raises RunNotFound."""
        return await self._app.cancel(self.id, reason=reason, actor=actor)

    async def fork(
        self,
        *,
        from_step: str,
        id: str | None = None,
        changes: Mapping[str, Any] | None = None,
        reason: str = "",
        actor: str = "",
    ) -> Run[R]:
        """Start a new run with what this one has recorded before a step; see Stepwell.fork."""
        fork = await self._app.fork(
            self.id, from_step=from_step, id=id, changes=changes, reason=reason, actor=actor
        )
        return Run(self._app, fork.id, self.result_type, fork.created)

    async def terminate(self, *, reason: str = "", actor: str = "") -> RunStatus:
        """End the run at once, without its undos. Raises RunNotFound, RunEnded."""
        return await self._app.terminate(self.id, reason=reason, actor=actor)

    async def pause(self, *, reason: str = "", actor: str = "") -> RunStatus:
        """Have the run begin nothing more until `resume`. Raises RequestRefused."""
        return await self._app.pause(self.id, reason=reason, actor=actor)

    async def retry(self, *, reason: str = "", actor: str = "") -> RunStatus:
        """Go on from the failed step of a held or failed run. Raises RequestRefused."""
        return await self._app.retry(self.id, reason=reason, actor=actor)

    async def roll_back(self, *, reason: str = "", actor: str = "") -> RunStatus:
        """Let a held run roll back. Raises RequestRefused."""
        return await self._app.roll_back(self.id, reason=reason, actor=actor)

    async def resume_rollback(self, *, reason: str = "", actor: str = "") -> RunStatus:
        """Try the failed undos of an incomplete rollback again. Raises RequestRefused."""
        return await self._app.resume_rollback(self.id, reason=reason, actor=actor)

    async def requeue(self, *, reason: str = "", actor: str = "") -> RunStatus:
        """Have a failed task executed again, as if it was new. Raises RequestRefused."""
        return await self._app.requeue(self.id, reason=reason, actor=actor)

    async def progress(self) -> Progress | None:
        """Return how far it is, as it reported last; None = it has not. Raises RunNotFound."""
        return await self._app.progress(self.id)

    async def logs(self, *, after: int = 0, limit: int = 1000) -> list[LogLine]:
        """Return lines that it has logged, oldest first. Raises RunNotFound.

        `after`: only those with a higher number. At most `limit`, 1 to 1,000.
        """
        return await self._app.logs(self.id, after=after, limit=limit)

    async def resume(self, *, reason: str = "", actor: str = "") -> RunStatus:
        """Let a paused run go on, or try a stuck one with the code of now."""
        return await self._app.resume(self.id, reason=reason, actor=actor)

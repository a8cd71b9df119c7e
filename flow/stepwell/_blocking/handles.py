"""The handle of a run, for code that blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from stepwell._app.app import Stepwell
from stepwell._app.handles import Run
from stepwell._app.reports import LogLine, Progress
from stepwell._app.views import History, RunInfo, RunStatus
from stepwell._blocking.talking import BlockingTalk
from stepwell._signals import Signal
from stepwell_runtime.definitions import Seconds

if TYPE_CHECKING:
    from stepwell._blocking.calls import BlockingCalls

R = TypeVar("R")
T = TypeVar("T")


class BlockingRun(BlockingTalk, Generic[R]):
    """A run in a store, with methods that block.

    `created` is False when a start found it there already: then `found` is the status that it had,
    or, where `replace=True` gave it this call, has with that; else None.
    """

    __slots__ = ("_calls", "_run", "created", "found", "id")

    def __init__(self, calls: BlockingCalls, run: Run[R]) -> None:
        self._calls, self._run = calls, run
        self.id = run.id
        self.created = run.created
        self.found: RunStatus | None = run.found

    def __repr__(self) -> str:
        return f"BlockingRun({self.id!r})"

    def result(self, *, timeout: Seconds | None = None) -> R:
        """Wait for the run to end and return its result; raise its own exception if it failed.

        `timeout` in seconds, None = no limit; then TimeoutError, and the run goes on. Also raises
        RunFailed, RunCancelled, RunTerminated, RunStuck, RunHeld, RunNotFound.
        """
        return self._calls.do(lambda app: self._in(app).result(timeout=timeout))

    def info(self) -> RunInfo:
        """Return the run as it stands. Raises RunNotFound."""
        return self._calls.do(lambda app: app.info(self.id))

    def status(self) -> RunStatus:
        """Return the status word. Raises RunNotFound."""
        return self.info().status

    def history(self) -> History:
        """Return what has happened to it, with decoded values. Raises RunNotFound."""
        return self._calls.do(lambda app: app.history(self.id))

    @overload
    def signal(self, signal: Signal[T], value: T, /) -> None: ...
    @overload
    def signal(self, signal: str, value: object = None, /) -> None: ...
    def signal(self, signal: Signal[Any] | str, value: object = None, /) -> None:
        """Store a signal for the run; returns once it is durable. Raises RunNotFound, RunEnded."""
        self._calls.do(lambda app: app.send(self.id, signal, value))

    def cancel(self, *, reason: str = "", actor: str = "") -> RunStatus:
        """Ask the run to cancel; return its status afterwards. Raises RunNotFound."""
        return self._calls.cancel(self.id, reason=reason, actor=actor)

    def fork(
        self,
        *,
        from_step: str,
        id: str | None = None,
        changes: Mapping[str, Any] | None = None,
        reason: str = "",
        actor: str = "",
    ) -> BlockingRun[R]:
        """Start a new run with what this one has recorded before a step; see Stepwell.fork."""
        run = self._calls.do(
            lambda app: self._in(app).fork(
                from_step=from_step, id=id, changes=changes, reason=reason, actor=actor
            )
        )
        return BlockingRun(self._calls, run)

    def terminate(self, *, reason: str = "", actor: str = "") -> RunStatus:
        """End the run at once, without its undos. Raises RunNotFound, RunEnded."""
        return self._calls.terminate(self.id, reason=reason, actor=actor)

    def pause(self, *, reason: str = "", actor: str = "") -> RunStatus:
        """Have the run begin nothing more until `resume`. Raises RequestRefused."""
        return self._calls.pause(self.id, reason=reason, actor=actor)

    def retry(self, *, reason: str = "", actor: str = "") -> RunStatus:
        """Go on from the failed step of a held or failed run. Raises RequestRefused."""
        return self._calls.retry(self.id, reason=reason, actor=actor)

    def roll_back(self, *, reason: str = "", actor: str = "") -> RunStatus:
        """Let a held run roll back. Raises RequestRefused."""
        return self._calls.roll_back(self.id, reason=reason, actor=actor)

    def resume_rollback(self, *, reason: str = "", actor: str = "") -> RunStatus:
        """Try the failed undos of an incomplete rollback again. Raises RequestRefused."""
        return self._calls.resume_rollback(self.id, reason=reason, actor=actor)

    def requeue(self, *, reason: str = "", actor: str = "") -> RunStatus:
        """Have a failed task executed again, as if it was new. Raises RequestRefused."""
        return self._calls.requeue(self.id, reason=reason, actor=actor)

    def progress(self) -> Progress | None:
        """Return how far it is, as it reported last; None = it has not. Raises RunNotFound."""
        return self._calls.progress(self.id)

    def logs(self, *, after: int = 0, limit: int = 1000) -> list[LogLine]:
        """Return lines that it has logged, oldest first. Raises RunNotFound.

        `after`: only those with a higher number. At most `limit`, 1 to 1,000.
        """
        return self._calls.logs(self.id, after=after, limit=limit)

    def resume(self, *, reason: str = "", actor: str = "") -> RunStatus:
        """Let a paused run go on, or try a stuck one with the code of now."""
        return self._calls.resume(self.id, reason=reason, actor=actor)

    def _in(self, app: Stepwell) -> Run[R]:
        # After a fork the app is another one than that which made this handle.
        return Run(app, self.id, self._run.result_type)

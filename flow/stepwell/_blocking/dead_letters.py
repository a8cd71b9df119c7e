"""Tasks that have failed, and what runs report, for code that blocks."""

from __future__ import annotations

from typing import TypeVar

from stepwell._app.dead_letters import DeadLetter
from stepwell._app.reports import LogLine, Progress
from stepwell._app.views import RunStatus
from stepwell._blocking.waiting import Work
from stepwell._queues import Queue
from stepwell_runtime.definitions import Seconds

T = TypeVar("T")


class BlockingDeadLetters:
    """What an app does with tasks that have failed; the methods block."""

    def do(self, work: Work[T]) -> T:
        raise NotImplementedError

    def dead_letters(
        self,
        *,
        queue: str | Queue | None = None,
        name: str | None = None,
        error: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[DeadLetter]:
        """Return tasks that have failed; see Stepwell.dead_letters."""
        return self.do(
            lambda app: app.dead_letters(
                queue=queue, name=name, error=error, after=after, limit=limit
            )
        )

    def requeue(self, id: str, /, *, reason: str = "", actor: str = "") -> RunStatus:
        """Have a failed task executed again, as if it was new; see Stepwell.requeue."""
        return self.do(lambda app: app.requeue(id, reason=reason, actor=actor))

    def requeue_dead_letters(
        self,
        *,
        queue: str | Queue | None = None,
        name: str | None = None,
        error: str | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        reason: str = "",
        actor: str = "",
    ) -> int:
        """Requeue tasks that have failed; see Stepwell.requeue_dead_letters."""
        return self.do(
            lambda app: app.requeue_dead_letters(
                queue=queue,
                name=name,
                error=error,
                limit=limit,
                dry_run=dry_run,
                reason=reason,
                actor=actor,
            )
        )

    def purge_dead_letters(
        self,
        *,
        queue: str | Queue | None = None,
        name: str | None = None,
        error: str | None = None,
        older_than: Seconds | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        confirm: bool = False,
    ) -> int:
        """Delete tasks that have failed for good; see Stepwell.purge_dead_letters."""
        return self.do(
            lambda app: app.purge_dead_letters(
                queue=queue,
                name=name,
                error=error,
                older_than=older_than,
                limit=limit,
                dry_run=dry_run,
                confirm=confirm,
            )
        )


class BlockingReports:
    """What an app knows of runs that report; the methods block."""

    def do(self, work: Work[T]) -> T:
        raise NotImplementedError

    def progress(self, id: str, /) -> Progress | None:
        """Return how far a run is, as it reported last; None = it has not. Raises RunNotFound."""
        return self.do(lambda app: app.progress(id))

    def logs(self, id: str, /, *, after: int = 0, limit: int = 1000) -> list[LogLine]:
        """Return lines that a run has logged, oldest first; see Stepwell.logs."""
        return self.do(lambda app: app.logs(id, after=after, limit=limit))

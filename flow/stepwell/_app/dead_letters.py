"""Tasks that have failed, as people see them, and what is done about them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from stepwell import _options as check
from stepwell._app.operations import word
from stepwell._app.views import RunStatus
from stepwell._queues import Queue, name_of
from stepwell_queue.clock import utc
from stepwell_queue.contract import DeadLetterRow
from stepwell_runtime.codec import Codec
from stepwell_runtime.dead_letters import DeadLetterFilter, error_of
from stepwell_runtime.definitions import Seconds

if TYPE_CHECKING:
    from stepwell_runtime.engine import Engine


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A task that has failed for good; `history(id)` shows all of its attempts."""

    id: str
    name: str
    version: int
    queue: str
    failed_at: datetime
    """Aware, in UTC."""
    attempts: int
    """How many have failed since it was enqueued, or requeued."""
    crashes: int
    """Workers in a row that died with it at the end."""
    error_type: str
    """The name of the class of the last error."""
    message: str
    parent_id: str | None
    """The workflow run that it is a child of."""
    handled: bool
    """Its workflow has taken the failure, so it cannot be requeued."""


class DeadLetterMethods:
    """What an app does with tasks that have failed."""

    @property
    def engine(self) -> Engine:
        raise NotImplementedError

    @property
    def codec(self) -> Codec:
        raise NotImplementedError

    async def dead_letters(
        self,
        *,
        queue: str | Queue | None = None,
        name: str | None = None,
        error: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[DeadLetter]:
        """Return tasks that have failed, those that failed last first; None = any.

        `error`: the class of the last error, as "ValueError" or "module.ValueError". `after`: the
        id of the last one of the page before. Raises RunNotFound if that is gone.
        """
        which = _which(self.engine, queue, name, error, None)
        check.whole(limit, "limit", 1, 10_000)
        check.text(after, "after")
        found = await self.engine.dead_letters.find(which, limit, after)
        return [dead_letter(row, self.codec) for row in found]

    async def requeue(self, id: str, /, *, reason: str = "", actor: str = "") -> RunStatus:
        """Have a task that has failed executed again, as if it was new, and return its status.

        Failures and crashes are counted from zero, and its deadline is as far off as it was at
        first. Its id, its arguments and what is known of former attempts stay. Raises RunNotFound,
        RequestRefused: it has not failed, its workflow has taken the failure already, or another
        task has its unique key by now.
        """
        check.asked(id, reason, actor)
        return word(await self.engine.ask(id, "requeue", reason=reason, actor=actor))

    async def requeue_dead_letters(
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
        """Requeue tasks that have failed, and return how many; None = any.

        Those that failed last first, `limit` at most. Those that cannot be requeued are left as
        they are. `dry_run`: only count those of which it is not known yet that they cannot.
        """
        which = _which(self.engine, queue, name, error, None)
        check.whole(limit, "limit", 1)
        check.asked("", reason, actor)
        dead_letters = self.engine.dead_letters
        if dry_run:
            return await dead_letters.count(which, limit, purge=False)
        return await dead_letters.requeue(which, limit, actor=actor, reason=reason)

    async def purge_dead_letters(
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
        """Delete tasks that have failed for good, and return how many; None = any.

        Those that failed last first, `limit` at most; `older_than`: only those that failed so many
        seconds ago. Children of workflows stay, since they go with those, and so does the run that
        was started last. `dry_run`: only count. Raises ValueError unless `confirm` is true, or
        `dry_run`.
        """
        age = check.span(older_than, "older_than")
        engine = self.engine
        which = _which(engine, queue, name, error, age)
        check.whole(limit, "limit", 1)
        if dry_run:
            return await engine.dead_letters.count(which, limit, purge=True)
        if confirm is not True:
            raise ValueError(
                "purge_dead_letters() deletes tasks for ever: give confirm=True, or dry_run=True "
                "to see how many"
            )
        return await engine.dead_letters.purge(which, limit)


def _which(
    engine: Engine,
    queue: str | Queue | None,
    name: str | None,
    error: str | None,
    age: float | None,
) -> DeadLetterFilter:
    before = None if age is None else engine.store.clock.now() - age
    return DeadLetterFilter(
        name_of(queue), check.text(name, "name"), check.text(error, "error", 1000), before
    )


def dead_letter(row: DeadLetterRow, codec: Codec) -> DeadLetter:
    info = error_of(row, codec)
    return DeadLetter(
        id=row.id,
        name=row.name,
        version=row.version,
        queue=row.queue,
        failed_at=utc(row.failed),
        attempts=row.attempts,
        crashes=row.crashes,
        error_type="" if info is None else info.type,
        message=_shown(row.error, codec) if info is None else info.message,
        parent_id=row.parent_id,
        handled=row.handled,
    )


def _shown(error: bytes, codec: Codec) -> str:
    shown: Any = codec.to_json(error) if error else ""
    return shown if isinstance(shown, str) else repr(shown)

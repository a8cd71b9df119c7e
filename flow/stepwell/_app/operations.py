"""What an app does with runs that exist."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from stepwell import _options as check
from stepwell._app.queues import QueueHandle, QueueInfo, queue_infos
from stepwell._app.views import STATUSES, History, RunInfo, RunStatus, history_of, run_info
from stepwell._queues import Queue, name_of
from stepwell._retention import END_STATUSES, EndStatus, named_keep
from stepwell._signals import Signal, named
from stepwell_queue.contract import EndedFilter, Finding, Keep, RunFilter, Status, WorkerInfo
from stepwell_queue.errors import RunNotFound
from stepwell_runtime.definitions import Seconds
from stepwell_runtime.fitting import refuse_unfit

if TYPE_CHECKING:
    from stepwell._app.app import Stepwell
    from stepwell_runtime.codec import Codec
    from stepwell_runtime.engine import Engine

T = TypeVar("T")


class Operations:
    """Finding, steering and cleaning up runs."""

    @property
    def engine(self) -> Engine:
        raise NotImplementedError

    @property
    def codec(self) -> Codec:
        raise NotImplementedError

    async def info(self, id: str, /) -> RunInfo:
        """Return a run as it stands. Raises RunNotFound."""
        found = await self.engine.store.info(check.run_id(id))
        if found is None:
            raise RunNotFound(id)
        return run_info(found, self.codec)

    async def history(self, id: str, /) -> History:
        """Return everything that is known of a run, with decoded values. Raises RunNotFound."""
        found = await self.engine.store.history(check.run_id(id))
        if found is None:
            raise RunNotFound(id)
        return history_of(found, self.codec)

    async def runs(
        self,
        *,
        status: str | Sequence[str] | None = None,
        name: str | None = None,
        queue: str | Queue | None = None,
        parent: str | None = None,
        key: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        ended_after: datetime | None = None,
        ended_before: datetime | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[RunInfo]:
        """Return runs, newest first; None = any. `after`: the id of the last run of a page before.

        `status`: one or several status words; also "no_code": no live worker has the code.
        `key`: that shares limits in the queue. `created_after` and `ended_after` are aware
        datetimes, from which on they were, and `created_before` and `ended_before` those before
        which they were.
        """
        words = None if status is None else statuses(status)
        check.whole(limit, "limit", 1, 10_000)
        store = self.engine.store
        last = None if after is None else await store.info(check.run_id(after, "after="))
        if after is not None and last is None:
            raise RunNotFound(after)
        wanted = RunFilter(
            statuses=words,
            name=check.text(name, "name"),
            queue=name_of(queue),
            parent_id=None if parent is None else check.run_id(parent, "parent="),
            key=check.text(key, "key"),
            created_after=_time(created_after, "created_after="),
            created_before=_time(created_before, "created_before="),
            ended_after=_time(ended_after, "ended_after="),
            ended_before=_time(ended_before, "ended_before="),
            after=None if last is None else last.run,
            limit=limit,
        )
        return [run_info(row, self.codec) for row in await store.list_runs(wanted)]

    @overload
    async def signal(self, id: str, signal: Signal[T], value: T, /) -> None: ...
    @overload
    async def signal(self, id: str, signal: str, value: object = None, /) -> None: ...
    async def signal(self, id: str, signal: Signal[Any] | str, value: object = None, /) -> None:
        """Store a signal for a run; returns once it is durable. Raises RunNotFound, RunEnded."""
        await self.send(id, signal, value)

    async def send(self, id: str, signal: Signal[Any] | str, value: object) -> None:
        """Send a signal; see `signal`."""
        name, wanted = named(signal)
        refuse_unfit(value, wanted, f"signal {name!r}")
        await self.engine.signal(check.run_id(id), name, value)

    async def cancel(self, id: str, /, *, reason: str = "", actor: str = "") -> RunStatus:
        """Ask a run to cancel; return its status afterwards. Raises RunNotFound.

        A run that was never executed ends at once, another one at its next durable operation.
        """
        check.asked(id, reason, actor)
        return word(await self.engine.cancel(id, reason=reason, actor=actor))

    async def retry(self, id: str, /, *, reason: str = "", actor: str = "") -> RunStatus:
        """Go on from the failed step of a held or failed run.

        Raises RunNotFound, RequestRefused.
        """
        check.asked(id, reason, actor)
        return word(await self.engine.ask(id, "retry", reason=reason, actor=actor))

    async def roll_back(self, id: str, /, *, reason: str = "", actor: str = "") -> RunStatus:
        """Let a held run roll back. Raises RunNotFound, RequestRefused."""
        check.asked(id, reason, actor)
        return word(await self.engine.ask(id, "roll_back", reason=reason, actor=actor))

    async def resume_rollback(self, id: str, /, *, reason: str = "", actor: str = "") -> RunStatus:
        """Try the failed undos of an incomplete rollback again.

        Raises RunNotFound, RequestRefused.
        """
        check.asked(id, reason, actor)
        return word(await self.engine.ask(id, "resume_rollback", reason=reason, actor=actor))

    async def resume(self, id: str, /, *, reason: str = "", actor: str = "") -> RunStatus:
        """Have a paused run go on, or try a stuck one again with the code that is there now.

        Raises RunNotFound, RequestRefused.
        """
        check.asked(id, reason, actor)
        return word(await self.engine.ask(id, "resume", reason=reason, actor=actor))

    def queue(self, queue: str | Queue, /) -> QueueHandle:
        """Return the handle of a queue; does no I/O."""
        name = name_of(queue)
        if name is None:
            raise TypeError("queue() takes the name of a queue, or a Queue, not None")
        return QueueHandle(cast("Stepwell", self), name)

    async def queues(self) -> list[QueueInfo]:
        """Return all queues that are set or were used, by name. It reads all runs of the store."""
        return await queue_infos(self.engine.store)

    async def prune(
        self,
        *,
        older_than: Seconds | None = None,
        keep: int | None = None,
        queue: str | Queue | None = None,
        name: str | None = None,
        status: EndStatus | Sequence[EndStatus] | None = None,
    ) -> int:
        """Delete ended runs, whole trees, and return how many are gone.

        Those that ended more than `older_than` seconds ago (0 = all), or are not among the newest
        `keep` (0 = all); None = does not matter, but one must be given. `queue`, `name`, `status`:
        only what was started in it, is called so, ended so; None = any. A status that has a rule of
        its own in `Retention(statuses=…)` is left to that, unless `status` names it. Raises what
        the `archive` of the app raises.
        """
        age = check.span(older_than, "older_than")
        check.whole(keep, "keep", 0)
        if age is None and keep is None:
            raise ValueError("prune() needs older_than= (seconds) or keep=, so that not all goes")
        words: list[str] = [] if status is None else _words(status)
        for one in words:
            check.one_of(one, "status", END_STATUSES)
        ended = [int(Status[one.upper()]) for one in words]
        which = EndedFilter(name_of(queue), (), check.text(name, "name"), (), ended)
        app = cast("Stepwell", self)
        rest = named_keep("", app.settings.retention)
        return await self.engine.pruning.prune(which, Keep(age, keep), rest)

    async def workers(self) -> list[WorkerInfo]:
        """Return the workers that are registered, and which are alive."""
        return await self.engine.store.workers()

    async def doctor(self) -> list[Finding]:
        """Check the store for broken invariants; empty = sound."""
        return await self.engine.store.doctor()


def word(status: Status) -> RunStatus:
    return cast("RunStatus", Status(status).name.lower())


def _time(value: datetime | None, what: str) -> float | None:
    return None if value is None else check.wall_time(value, what)


def statuses(status: str | Sequence[str]) -> list[str]:
    words = _words(status)
    for one in words:
        check.one_of(one, "status", STATUSES)
    return words


def _words(status: str | Sequence[str]) -> list[str]:
    return [status] if isinstance(status, str) else list(status)

"""A queue as people steer it, and as they see it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack, cast

from stepwell import _options as check
from stepwell._app.views import RunStatus, moment
from stepwell._queues import Queue, QueueChanges, changed_settings, queue_of
from stepwell_queue.contract import (
    CountEnds,
    CountRuns,
    EndCount,
    FindRunning,
    Kind,
    ListQueues,
    PauseQueue,
    PurgeQueue,
    QueueRow,
    QueueSettings,
    ResumeQueue,
    SetQueue,
    Status,
    Store,
)
from stepwell_runtime.spans import Seconds

if TYPE_CHECKING:
    from stepwell._app.app import Stepwell

WINDOWS = (60.0, 300.0, 3600.0)
_PURGED_AT_ONCE = 1000
_WATCHED_AT_ONCE = 100
_LOOK_EVERY = 1.0  # seconds, for runs that stop running and do not end


@dataclass(frozen=True, slots=True)
class Throughput:
    """How many runs ended per minute, and how many of these failed, in the last `window` seconds.

    Runs that have been deleted since are not counted.
    """

    window: float
    ended: float
    failed: float


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue, as it stands."""

    name: str
    paused: bool
    paused_until: datetime | None
    """When the pause ends, aware, in UTC; None = when it is resumed, or it is not paused."""
    pause_reason: str
    ready: int
    """Runs that could be executed now; those that the queue's own limits keep waiting, too."""
    running: int
    oldest_age: float | None
    """Seconds that the first of them has been ready; None = none is."""
    counts: Mapping[RunStatus, int]
    """How many tasks and workflow runs have each status."""
    dead_letters: int
    """How many tasks have failed."""
    throughput: tuple[Throughput, ...]
    """In the last minute, five minutes and hour."""
    settings: Queue
    """What holds for it now."""


class QueueHandle:
    """A queue in a store. Having one does no I/O."""

    __slots__ = ("_app", "name")

    def __init__(self, app: Stepwell, name: str) -> None:
        self._app, self.name = app, name

    def __repr__(self) -> str:
        return f"QueueHandle({self.name!r})"

    async def pause(self, until: datetime | None = None, *, reason: str = "") -> None:
        """Have no worker begin anything of it; what is running goes on. It outlives restarts.

        `until`: an aware datetime at which it is resumed; None = by `resume()`. A second pause
        replaces the first. Raises ValueError for an `until` that has passed.
        """
        store = self._store
        end = None if until is None else check.wall_time(until, "until=")
        if end is not None and end <= store.clock.now():
            raise ValueError(
                f"until={until} has passed, so queue {self.name!r} would not be paused: give a "
                "later moment, or none and resume() it yourself"
            )
        await store.do(PauseQueue(self.name, end, _reason(reason), self._app.engine.uid()))

    async def resume(self) -> None:
        """End a pause; without one, nothing changes."""
        await self._store.do(ResumeQueue(self.name, self._app.engine.uid()))

    async def drain(self, *, timeout: Seconds | None = None, reason: str = "") -> None:
        """Pause it, and wait until nothing of it is running; it stays paused.

        `timeout` in seconds, None = no limit; then TimeoutError.
        """
        limit = check.span(timeout, "timeout")
        await self.pause(reason=reason)
        try:
            async with asyncio.timeout(limit):
                await self._until_idle()
        except TimeoutError:
            raise TimeoutError(
                f"queue {self.name!r} is paused, but still has runs after {limit} s: see "
                "`stepwell runs --status running`"
            ) from None

    async def _until_idle(self) -> None:
        store = self._store
        while running := await store.read(FindRunning(self.name, _WATCHED_AT_ONCE)):
            ends = [asyncio.ensure_future(store.wait_ended(id)) for id in running]
            try:
                await asyncio.wait(ends, timeout=_LOOK_EVERY)
            finally:
                for end in ends:
                    end.cancel()
                await asyncio.gather(*ends, return_exceptions=True)

    async def purge(self, *, reason: str = "", confirm: bool = False) -> int:
        """Cancel all of it that no worker has begun yet; return how many runs that were.

        Children of workflows stay, since their parents wait for them. Raises ValueError unless
        `confirm` is true.
        """
        if confirm is not True:
            raise ValueError(
                f"purge() cancels all runs of queue {self.name!r} that no worker has begun: give "
                "confirm=True, or see with info() what is in it"
            )
        store, cancelled = self._store, 0
        data = self._app.codec.encode(_reason(reason), "the reason of a purge")
        while True:
            verb = PurgeQueue(self.name, _PURGED_AT_ONCE, data, store.clock.now())
            some = await store.do(verb)
            cancelled += some
            if some < _PURGED_AT_ONCE:
                return cancelled

    async def configure(self, **changes: Unpack[QueueChanges]) -> None:
        """Change what holds for it, at once and for all workers; what is not named stays.

        The settings are those of Queue; None takes one away. They last until the declaration in the
        code changes.
        """
        settings, only = changed_settings(self.name, changes)
        uid = self._app.engine.uid()
        await self._store.do(SetQueue(self.name, settings, None, only, uid))

    async def info(self) -> QueueInfo:
        """Return the queue as it stands. It reads all runs of the store."""
        found = await queue_infos(self._store, self.name)
        return found[0]

    @property
    def _store(self) -> Store:
        return self._app.engine.store


def _reason(reason: str) -> str:
    given: Any = reason
    if not isinstance(given, str):
        raise TypeError(f"reason= takes a string, not {reason!r}")
    return reason


async def queue_infos(store: Store, name: str | None = None) -> list[QueueInfo]:
    """Return what is known of all queues, by name, or of this one."""
    rows = await store.read(ListQueues(name))
    if name is not None and not rows:
        rows = [QueueRow(name, QueueSettings(), False, None, "", 0, 0)]
    counts: dict[str, dict[RunStatus, int]] = {row.queue: _none_yet() for row in rows}
    dead = dict.fromkeys(counts, 0)
    ready: dict[str, float] = {}
    for count in await store.read(CountRuns(name)):
        if count.status == Status.READY:
            ready[count.queue] = min(count.since, ready.get(count.queue, count.since))
        if count.kind == Kind.STEP or count.queue not in counts:  # new since the first question
            continue
        counts[count.queue][_word(count.status)] += count.count
        if count.kind == Kind.TASK and count.status == Status.FAILED:
            dead[count.queue] = count.count
    now = store.clock.now()
    rates: dict[str, list[Throughput]] = {row.queue: [] for row in rows}
    for window in WINDOWS:
        found = {one.queue: one for one in await store.read(CountEnds(now - window, name))}
        for queue, rate in rates.items():
            rate.append(_throughput(window, found.get(queue)))
    return [
        _info(row, now, ready.get(row.queue), counts[row.queue], dead[row.queue], rates[row.queue])
        for row in rows
    ]


def _none_yet() -> dict[RunStatus, int]:
    return {_word(status): 0 for status in Status}


def _word(status: int) -> RunStatus:
    return cast("RunStatus", Status(status).name.lower())


def _throughput(window: float, count: EndCount | None) -> Throughput:
    if count is None:
        return Throughput(window, 0.0, 0.0)
    minutes = window / 60
    return Throughput(window, count.ended / minutes, count.failed / minutes)


def _info(
    row: QueueRow,
    now: float,
    ready_since: float | None,
    counts: Mapping[RunStatus, int],
    dead_letters: int,
    throughput: Sequence[Throughput],
) -> QueueInfo:
    # A pause that has an end is taken back by who claims first after it.
    paused = row.paused and (row.until is None or row.until > now)
    return QueueInfo(
        name=row.queue,
        paused=paused,
        paused_until=moment(row.until) if paused else None,
        pause_reason=row.reason if paused else "",
        ready=row.ready,
        running=row.running,
        oldest_age=None if ready_since is None else max(now - ready_since, 0.0),
        counts=counts,
        dead_letters=dead_letters,
        throughput=tuple(throughput),
        settings=queue_of(row.queue, row.settings),
    )

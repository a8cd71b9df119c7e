"""Retention: which rule is for which ended runs, and deleting what no rule keeps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from stepwell_queue.clock import Clock, Ids, utc
from stepwell_queue.contract import (
    EndedFilter,
    EndedTree,
    FindPrunable,
    Keep,
    KeepNames,
    KeptSince,
    LeaseUpkeep,
    ListKept,
    ListSettings,
    NamedKeep,
    Prune,
    QueueSettings,
    Status,
    Store,
)
from stepwell_queue.errors import RunNotFound, StepwellError
from stepwell_runtime.codec import Codec

PASS = 500
"""Runs that one transaction deletes, unless one tree has more."""
ARCHIVED_AT_ONCE = 100
ARCHIVED_BYTES: Final = 16 * 1024 * 1024
_LEASE: Final = 300.0  # seconds for one call of an archive, after which another worker may do it
_ENDED: Final = tuple(int(status) for status in Status if status.terminal)


@dataclass(frozen=True)
class ArchivedRun:
    """A run that is about to be deleted, with its children.

    `document`: what `stepwell export` writes of them, which `import_runs` takes, cut into lines.
    """

    id: str
    name: str
    status: str
    ended_at: datetime
    document: bytes


Archive = Callable[[Sequence[ArchivedRun]], Awaitable[None]]


@dataclass(frozen=True)
class Part:
    """Some of the ended runs, and the one rule that is for them; None = they are kept."""

    which: EndedFilter
    rule: NamedKeep | None

    def passes(self) -> Iterator[tuple[EndedFilter, Keep]]:
        """What to delete: one pass for each status of its own, and one for all others."""
        if self.rule is None:
            return
        own = self.rule.statuses
        for status, keep in own.items():
            yield replace(self.which, statuses=[status]), keep
        if self.rule.keep is not None:
            yield self._others(), self.rule.keep

    def _others(self) -> EndedFilter:
        own = () if self.rule is None else self.rule.statuses
        if not own:
            return self.which
        return replace(self.which, statuses=[one for one in _ENDED if one not in own])

    def among(self, wanted: EndedFilter) -> EndedFilter | None:
        """Those of `wanted` that are in this part, and not of a status with a rule of its own."""
        mine = self.which
        for one, other, without in (
            (mine.queue, wanted.queue, mine.but_queues),
            (mine.name, wanted.name, mine.but_names),
        ):
            if other is not None and (other in without or one not in (None, other)):
                return None
        queue, name = mine.queue or wanted.queue, mine.name or wanted.name
        return replace(self._others(), queue=queue, name=name)


def parts(
    names: Sequence[NamedKeep], queues: Sequence[NamedKeep], rest: NamedKeep | None
) -> list[Part]:
    """Say which rule is for which runs: that of their name, else of their queue, else the rest."""
    named, own = [one.name for one in names], [one.name for one in queues]
    found = [Part(EndedFilter(name=one.name), one) for one in names]
    found += [Part(EndedFilter(queue=one.name, but_names=named), one) for one in queues]
    return [*found, Part(EndedFilter(but_queues=own, but_names=named), rest)]


def of_queue(queue: str, settings: QueueSettings) -> NamedKeep | None:
    """Return the rule that is set for a queue."""
    age, count, statuses = settings.keep_age, settings.keep_count, settings.keep_statuses
    if age is None and count is None and not statuses:
        return None
    return NamedKeep(queue, Keep(age, count), statuses)


class Pruning:
    """Deletes ended runs in passes, and has them archived before."""

    def __init__(
        self, store: Store, codec: Codec, clock: Clock, ids: Ids, archive: Archive | None
    ) -> None:
        self._store, self._codec, self._clock = store, codec, clock
        self._archive = archive
        self._holder = ids.run_id() if archive is not None else ""
        self._leasing = False

    async def declare(self, names: Sequence[NamedKeep]) -> None:
        """Store what the code at hand says of names, where it is not stored already."""
        stored = {one.name: one for one in await self._store.read(ListKept())}
        changed = [
            one for one in names if stored.get(one.name) != (None if one.keep is None else one)
        ]
        if changed:
            await self._store.do(KeepNames(changed))

    async def parts(self, rest: NamedKeep | None) -> list[Part]:
        """Return which rule is for which runs; `rest`: for those without one in the store."""
        settings = await self._store.read(ListSettings())
        queues = [of_queue(one.queue, one.settings) for one in settings]
        names = await self._store.read(ListKept())
        return parts(names, [one for one in queues if one is not None], rest)

    async def keep_to_rules(self, rest: NamedKeep | None) -> int:
        """Delete what no rule keeps; answers how many runs are gone.

        If there is an archive, one worker at a time does so. What that raises is raised on, and
        nothing of what it was called with is deleted.
        """
        if self._archive is not None and not await self._lease(_LEASE):
            return 0  # another worker does it
        self._leasing = self._archive is not None
        try:
            gone = 0
            for part in await self.parts(rest):
                for which, keep in part.passes():
                    gone += await self._delete([which], await self._before(which, keep))
            return gone
        finally:
            if self._leasing:
                self._leasing = False
                with suppress(StepwellError):  # else it ends by itself, and a cancel goes on
                    await self._lease(0.0)

    async def _lease(self, seconds: float) -> bool:
        return await self._store.do(LeaseUpkeep(self._holder, self._clock.now() + seconds))

    async def prune(self, which: EndedFilter, keep: Keep, rest: NamedKeep | None) -> int:
        """Delete what was asked for; answers how many runs are gone.

        A status that has a rule of its own, where those runs belong, is left to that rule unless
        it is asked for.
        """
        before = await self._before(which, keep)
        if which.statuses:
            return await self._delete([which], before)
        found = await self.parts(rest)
        if not any(part.rule is not None and part.rule.statuses for part in found):
            return await self._delete([which], before)
        chosen = [part.among(which) for part in found]
        return await self._delete([one for one in chosen if one is not None], before)

    async def _before(self, which: EndedFilter, keep: Keep) -> float | None:
        """When those ended that may go: before this; None = none may."""
        bounds = [] if keep.age is None else [self._clock.now() - keep.age]
        if keep.count is not None:
            # Asked once, and by a read: it looks through all ended runs.
            since = await self._store.read(KeptSince(keep.count, which))
            bounds += [] if since is None else [since]
        return max(bounds, default=None)

    async def _delete(self, chosen: Sequence[EndedFilter], before: float | None) -> int:
        if before is None:
            return 0
        gone = 0
        for which in chosen:
            since = 0.0
            while True:
                limit = PASS if self._archive is None else min(PASS, ARCHIVED_AT_ONCE)
                now = self._clock.now()
                found = await self._store.read(FindPrunable(which, before, now, limit, since))
                trees = await self._archived(found)
                passed = await self._store.do(Prune(trees)) if trees else 0
                gone += passed
                if not passed:
                    break
                since = trees[-1].ended
        return gone

    async def _archived(self, found: Sequence[EndedTree]) -> Sequence[EndedTree]:
        """Have trees archived, as many as one call is to get; return these."""
        if self._archive is None or not found:
            return found
        if self._leasing and not await self._lease(_LEASE):
            return ()  # the last call took so long that another worker does it
        trees: list[EndedTree] = []
        runs: list[ArchivedRun] = []
        size = 0
        for tree in found:
            run = await self._exported(tree)
            if run is None:
                continue  # it was taken up again, or somebody has deleted it
            trees.append(tree)
            runs.append(run)
            size += len(run.document)
            if size > ARCHIVED_BYTES:
                break
        if runs:
            try:
                await self._archive(runs)
            except Exception as error:
                error.add_note(
                    f"raised by archive=, called with {len(runs)} runs from {runs[0].id!r} on, of "
                    "which none is deleted"
                )
                raise
        return trees

    async def _exported(self, tree: EndedTree) -> ArchivedRun | None:
        from stepwell_runtime.journals.writing import written  # few apps archive

        async def one() -> AsyncIterator[str]:
            yield tree.id

        info = await self._store.info(tree.id)
        if info is None or info.run != tree.run or info.ended is None:
            return None
        try:
            lines = [line async for line in written(self._store, self._codec, one(), children=True)]
        except RunNotFound:
            return None
        document = b"".join(lines)
        status = Status(info.status).name.lower()
        return ArchivedRun(tree.id, info.name, status, utc(info.ended), document)

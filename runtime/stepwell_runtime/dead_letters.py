"""Dead letters, many at a time: found by what their errors are, requeued, deleted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import msgspec

from stepwell_queue.clock import Ids
from stepwell_queue.contract import (
    DeadLetterRow,
    ListDeadLetters,
    PurgeDeadLetters,
    Requeue,
    Store,
)
from stepwell_runtime.codec import Codec, DecodingError, ErrorInfo

_AT_ONCE = 100


class DeadLetterFilter(msgspec.Struct, frozen=True):
    """Which dead letters; None = any.

    `error`: the class of the error, as "ValueError" or "module.ValueError". `before`: those that
    failed before this time.
    """

    queue: str | None = None
    name: str | None = None
    error: str | None = None
    before: float | None = None


class DeadLetters:
    """The dead letters of a store."""

    def __init__(self, store: Store, codec: Codec, ids: Ids) -> None:
        self._store, self._codec, self._ids = store, codec, ids

    async def find(
        self, which: DeadLetterFilter, limit: int | None = None, after: str | None = None
    ) -> list[DeadLetterRow]:
        """Return those that failed last first. Raises RunNotFound.

        `limit`: at most so many; None = all. `after`: the id of the last one of a page before.
        """
        found: list[DeadLetterRow] = []
        async with aclosing(self._pages(which, limit, after)) as pages:
            async for page in pages:
                found += page
        return found

    async def count(self, which: DeadLetterFilter, limit: int | None, *, purge: bool) -> int:
        """Return how many would be requeued or deleted, and change nothing."""
        return await self._each(which, limit, _may_go if purge else _may_run, _count)

    async def requeue(
        self, which: DeadLetterFilter, limit: int | None, *, actor: str, reason: str
    ) -> int:
        """Requeue them; return how many of them are ready now.

        Those that fail again meanwhile are not looked at again.
        """
        uid = self._ids.run_id()

        async def some(ids: list[str]) -> int:
            now = self._store.clock.now()
            return await self._store.do(Requeue(ids, uid, actor, reason, now))

        return await self._each(which, limit, _may_run, some)

    async def purge(self, which: DeadLetterFilter, limit: int | None) -> int:
        """Delete them; return how many are gone."""

        async def some(ids: list[str]) -> int:
            return await self._store.do(PurgeDeadLetters(ids))

        return await self._each(which, limit, _may_go, some)

    async def _each(
        self,
        which: DeadLetterFilter,
        limit: int | None,
        fits: Callable[[DeadLetterRow], bool],
        do: Callable[[list[str]], Awaitable[int]],
    ) -> int:
        done = 0
        async with aclosing(self._pages(which, None, None)) as pages:
            async for page in pages:
                ids = [row.id for row in page if fits(row)]
                if limit is not None:
                    ids = ids[: limit - done]
                if ids:
                    done += await do(ids)
                if limit is not None and done >= limit:
                    break
        return done

    async def _pages(
        self, which: DeadLetterFilter, limit: int | None, after: str | None
    ) -> AsyncGenerator[list[DeadLetterRow]]:
        place: str | tuple[float, int] | None = after
        while limit is None or limit > 0:
            query = ListDeadLetters(which.queue, which.name, place, _AT_ONCE)
            rows = await self._store.read(query)
            if not rows:
                return
            place = (rows[-1].failed, rows[-1].run)
            page = [row for row in rows if self._fits(row, which)][:limit]
            if limit is not None:
                limit -= len(page)
            yield page

    def _fits(self, row: DeadLetterRow, which: DeadLetterFilter) -> bool:
        if which.before is not None and row.failed >= which.before:
            return False
        if which.error is None:
            return True
        info = error_of(row, self._codec)
        return info is not None and which.error in (info.type, f"{info.module}.{info.type}")


def error_of(row: DeadLetterRow, codec: Codec) -> ErrorInfo | None:
    """Return what it failed by; None = that was not written by this codec."""
    try:
        return codec.error_info(row.error)
    except DecodingError:
        return None


def _may_run(row: DeadLetterRow) -> bool:
    return not row.handled


def _may_go(row: DeadLetterRow) -> bool:
    return row.parent_id is None


async def _count(ids: list[str]) -> int:
    return len(ids)

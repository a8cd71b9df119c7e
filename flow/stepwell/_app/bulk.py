"""Starting more runs than fit into one transaction: chunk by chunk, each whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from stepwell._calls import Call
from stepwell_runtime.definitions import Definition
from stepwell_runtime.launch import checked_id

if TYPE_CHECKING:
    from stepwell_queue.contract import NewRun, Started
    from stepwell_runtime.engine import Engine
    from stepwell_runtime.queues import DeclaredQueue

CHUNK = 10_000
_CHUNK_BYTES = 16 * 1024 * 1024
_IN_ONE_TURN = 500
"""Calls that are encoded before others on the loop get their turn."""
_HIGHEST_PLACE = 10**12


@dataclass(frozen=True, slots=True)
class Bulk:
    """What became of calls that were enqueued in chunks: `total` of them, `created` new runs.

    The other ones were found, by their ids or unique keys.
    """

    id: str
    total: int
    created: int

    def run_id(self, place: int, /) -> str:
        """Return the id of the run of a call that had none: 0 is the first."""
        return f"{self.id}:{place}"


class Sink:
    """Takes calls one by one, and starts them in chunks."""

    def __init__(
        self, engine: Engine, id: str, store: Callable[[list[NewRun]], Awaitable[list[Started]]]
    ) -> None:
        checked_id(f"{checked_id(id)}:{_HIGHEST_PLACE}")
        self._engine, self._id, self._store = engine, id, store
        self._total = self._created = self._bytes = 0
        self._rows: list[NewRun] = []
        self._declared: dict[str, DeclaredQueue] = {}

    async def add(self, call: Call[Any]) -> None:
        """Take a call; its place among all gives it an id, unless it has one."""
        definition: Definition = call.definition
        options = call.options
        if options.id is None:
            options = replace(options, id=f"{self._id}:{self._total}")
        row = self._engine.launcher.new_run(definition, call.args, call.kwargs, options)
        if (queue := options.declared or definition.declared) is not None:
            self._declared[queue.name] = queue
        self._total += 1
        self._rows.append(row)
        self._bytes += len(row.args)
        if len(self._rows) >= CHUNK or self._bytes >= _CHUNK_BYTES:
            await self._flush()
        elif self._total % _IN_ONE_TURN == 0:
            await asyncio.sleep(0)

    async def finish(self) -> Bulk:
        """Start what is left, and say what became of all."""
        await self._flush()
        return Bulk(self._id, self._total, self._created)

    async def _flush(self) -> None:
        rows, self._rows, self._bytes = self._rows, [], 0
        if rows:
            for queue in self._declared.values():
                await self._engine.declarations.say(queue)
            self._created += sum(one.created for one in await self._store(rows))


async def pour(
    calls: Iterable[Call[Any]] | AsyncIterable[Call[Any]], sink: Sink, checked: Callable[[Any], Any]
) -> Bulk:
    """Put all calls into a sink as they come."""
    if isinstance(calls, AsyncIterable):
        async for call in calls:
            await sink.add(checked(call))
    else:
        for call in calls:
            await sink.add(checked(call))
    return await sink.finish()

"""Talking to runs from outside: their values, questions, streams and histories."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from stepwell_queue.clock import Clock, Ids
from stepwell_queue.contract import (
    EventPage,
    Follower,
    ItemRow,
    PutQuestion,
    ReadAnswer,
    ReadEvents,
    ReadState,
    ReadStream,
    ReadValues,
    RunState,
    Status,
    Store,
    StreamRow,
    ValueRow,
)
from stepwell_queue.contract.notes import ListStreams
from stepwell_queue.errors import RunEnded
from stepwell_runtime.codec import Codec, DecodingError
from stepwell_runtime.emissions import encode_said
from stepwell_runtime.errors import AskRefused, NoValue
from stepwell_runtime.fitting import fits


@asynccontextmanager
async def _within(timeout: float | None, what: str) -> AsyncGenerator[None]:
    try:
        async with asyncio.timeout(timeout):
            yield
    except TimeoutError:
        raise TimeoutError(f"{what} within {timeout:g} s") from None


def said_as(codec: Codec, data: bytes, annotation: Any, where: str) -> Any:
    """Decode what a run has said as what the reader takes it for. Raises DecodingError."""
    value = codec.decode(data, annotation, where=where)
    if not fits(value, annotation):
        shown = getattr(annotation, "__qualname__", None) or annotation
        found = f"the run has said {value!r} ({type(value).__name__}), which is no {shown}"
        raise DecodingError(where, "", found)
    return value


class Talking:
    """What is said to runs and heard from them. Who waits is told: nothing here looks again and
    again.
    """

    def __init__(self, store: Store, codec: Codec, clock: Clock, ids: Ids) -> None:
        self._store, self._codec, self._clock, self._ids = store, codec, clock, ids

    async def _follow(self, id: str) -> Follower:
        state = await self._store.read(ReadState(id))
        return self._store.follow(id, state.run)

    # --- values ---

    async def values(self, id: str) -> Sequence[ValueRow]:
        return await self._store.read(ReadValues(id))

    async def value(self, id: str, name: str, type: object) -> Any:
        """Return the value that was set last. Raises RunNotFound, NoValue, DecodingError."""
        found = await self._store.read(ReadValues(id, name))
        if not found:
            raise NoValue(id, name)
        return self._decoded(id, found[0], type)

    def _decoded(self, id: str, row: ValueRow, type: object) -> Any:
        return said_as(self._codec, row.value, type, f"value {row.name!r} of run {id!r}")

    async def wait_value(
        self,
        id: str,
        name: str,
        type: object,
        until: Callable[[Any], bool] | None,
        timeout: float | None,
    ) -> Any:
        """Return the first value that `until` accepts. Raises RunEnded, TimeoutError."""
        what = f"run {id!r} has not set the value {name!r} that is waited for"
        async with _within(timeout, what):
            with await self._follow(id) as follower:
                while True:
                    state = await self._store.read(ReadState(id))
                    for row in await self._store.read(ReadValues(id, name)):
                        value = self._decoded(id, row, type)
                        if until is None or until(value):
                            return value
                    if state.ended:
                        raise RunEnded(id, _word(state), f"the wait for the value {name!r}")
                    await follower.news()

    # --- questions ---

    async def ask(
        self,
        id: str,
        name: str,
        payload: object,
        answer: object,
        asked: str | None,
        timeout: float | None,
    ) -> Any:
        """Ask a run, and return its answer. Raises what `answered` raises, and DecodingError."""
        data = await self.answered(id, name, payload, asked, timeout)
        return said_as(self._codec, data, answer, f"the answer to {name!r} of run {id!r}")

    async def answered(
        self, id: str, name: str, payload: object, asked: str | None, timeout: float | None
    ) -> bytes:
        """Return the stored answer. `asked`: the id of the question; None = a new one.

        Raises RunNotFound, RunEnded, RequestRefused, AskRefused, TimeoutError.
        """
        data = encode_said(self._codec, payload, f"question {name!r}")
        uid = f"ask:{name}:{asked or self._ids.run_id()}"
        again = (
            "" if asked is None else f", and asking again with id={asked!r} waits for its answer"
        )
        what = f"run {id!r} has not answered the question {name!r}, which stays with it{again},"
        async with _within(timeout, what):
            await self._store.do(PutQuestion(id, uid, name, data, self._clock.now()))
            with await self._follow(id) as follower:
                while True:
                    state = await self._store.read(ReadState(id))
                    row = await self._store.read(ReadAnswer(id, uid))
                    if row is not None:
                        if row.refused:
                            raise AskRefused(id, name, self._codec.decode(row.value, str))
                        return row.value
                    if state.ended:
                        raise RunEnded(id, _word(state), f"the question {name!r}")
                    await follower.news()

    # --- streams and histories ---

    async def streams(self, id: str) -> Sequence[StreamRow]:
        return await self._store.read(ListStreams(id))

    async def items(
        self, id: str, stream: str, after: int, *, follow: bool = True
    ) -> AsyncGenerator[ItemRow]:
        """Give the items of a stream: those that are there, `follow`: and come until the end."""
        with await self._follow(id) as follower:
            while True:
                state = await self._store.read(ReadState(id))
                page = await self._store.read(ReadStream(id, stream, after))
                for row in page:
                    yield row
                    after = row.offset
                if not page:
                    if state.ended or not follow:
                        return
                    await follower.news()

    async def pages(
        self, id: str, position: tuple[int, int, int], *, follow: bool = True
    ) -> AsyncGenerator[tuple[int, EventPage]]:
        """Give what has happened to a run, with its generation; `follow`: and what happens.

        `position`: the generation, seq and audit entry after which.
        """
        generation, seq, entry = position
        with await self._follow(id) as follower:
            while True:
                state = await self._store.read(ReadState(id))
                if state.generation != generation:
                    generation, seq = state.generation, -1  # its journal has begun anew
                page = await self._store.read(ReadEvents(id, seq, entry))
                if page.records or page.audit:
                    yield generation, page
                    seq = page.records[-1].seq if page.records else seq
                    entry = page.audit[-1].entry if page.audit else entry
                elif state.ended or not follow:
                    return
                else:
                    await follower.news()


def _word(state: RunState) -> str:
    return Status(state.status).name.lower()

"""What the handle of a run does to talk to it while it runs, and to read what it has said."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from stepwell import _options as check
from stepwell._app.views import Audit, Event, record_event
from stepwell._talking import Ask
from stepwell_queue.clock import utc
from stepwell_queue.contract import EventPage, ItemRow
from stepwell_runtime.definitions import Seconds
from stepwell_runtime.errors import NoValue
from stepwell_runtime.fitting import refuse_unfit
from stepwell_runtime.reports import checked_name
from stepwell_runtime.talking import said_as

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from stepwell._app.app import Stepwell
    from stepwell_runtime.codec import Codec

T = TypeVar("T")
D = TypeVar("D")
Q = TypeVar("Q")
A = TypeVar("A")
NO_DEFAULT: Final[Any] = object()
_POSITION: Final = re.compile(r"(\d{1,18})\.(-1|\d{1,18})\.(\d{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class StreamItem(Generic[T]):
    """An item of a stream. Offsets are gapless from 1."""

    offset: int
    value: T
    at: datetime
    path: str
    """Of the step that emitted it; empty for a workflow's code, and for a task."""
    attempt: int
    """Which attempt emitted it: those of one that failed stay."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """Something that has happened to a run, or was asked for by an operator."""

    position: str
    """What `Run.events(after=…)` takes to go on after it."""
    event: Event | Audit


class RunTalk:
    """The methods of a handle that talk."""

    __slots__ = ()

    _app: Stepwell
    id: str

    @overload
    async def value(self, name: str, type: TypeForm[T], /) -> T: ...
    @overload
    async def value(self, name: str, type: TypeForm[T], /, *, default: D) -> T | D: ...
    @overload
    async def value(self, name: str, /, *, default: object = ...) -> object: ...
    async def value(self, name: str, type: Any = Any, /, *, default: Any = NO_DEFAULT) -> Any:
        """Return the value that the run has set last, also after its end.

        `default` is returned if it has not set one of this name. Raises RunNotFound, NoValue,
        DecodingError.
        """
        checked_name(name, "value()")
        try:
            return await self._app.engine.talking.value(self.id, name, type)
        except NoValue:
            if default is NO_DEFAULT:
                raise
            return default

    @overload
    async def wait_value(
        self,
        name: str,
        type: TypeForm[T],
        /,
        *,
        until: Callable[[T], bool] | None = None,
        timeout: Seconds | None = None,
    ) -> T: ...
    @overload
    async def wait_value(
        self,
        name: str,
        /,
        *,
        until: Callable[[Any], bool] | None = None,
        timeout: Seconds | None = None,
    ) -> object: ...
    async def wait_value(
        self,
        name: str,
        type: Any = Any,
        /,
        *,
        until: Callable[[Any], bool] | None = None,
        timeout: Seconds | None = None,
    ) -> Any:
        """Wait for a value that `until` accepts, and return it; None = for any.

        It may not be shown one that the run sets again at once. `timeout` in seconds, None = no
        limit; then TimeoutError. Raises RunNotFound; RunEnded if no such value can come.
        """
        checked_name(name, "wait_value()")
        limit = check.span(timeout, "timeout")
        return await self._app.engine.talking.wait_value(self.id, name, type, until, limit)

    @overload
    async def ask(
        self,
        ask: Ask[Q, A],
        payload: Q,
        /,
        *,
        timeout: Seconds | None = None,
        id: str | None = None,
    ) -> A: ...
    @overload
    async def ask(
        self,
        ask: str,
        payload: object = None,
        /,
        *,
        timeout: Seconds | None = None,
        id: str | None = None,
    ) -> object: ...
    async def ask(
        self,
        ask: Ask[Any, Any] | str,
        payload: Any = None,
        /,
        *,
        timeout: Seconds | None = None,
        id: str | None = None,
    ) -> Any:
        """Ask the workflow a question, and return its answer.

        `id`: of the question; who asks again with it, and with the same payload, gets the same
        answer; None = a new one. `timeout` in seconds, None = no limit; then TimeoutError, and the
        question stays. Raises RunNotFound, RunEnded, AskRefused; RequestRefused where something
        else was asked with this id, and for a task.
        """
        asked = check.text(id, "id")
        limit = check.span(timeout, "timeout")
        given: Any = ask
        wanted: Any = Any
        if isinstance(ask, Ask):
            name, wanted = ask.name, ask.answer
            refuse_unfit(payload, ask.question, f"question {name!r}")
        elif isinstance(given, str):
            check.text(given, "ask")
            name = given
        else:
            raise TypeError(f"ask() takes an Ask, or the name of one, not {ask!r}")
        return await self._app.engine.talking.ask(self.id, name, payload, wanted, asked, limit)

    @overload
    def stream(
        self, name: str, type: TypeForm[T], /, *, after: int = 0
    ) -> AsyncGenerator[StreamItem[T]]: ...
    @overload
    def stream(self, name: str, /, *, after: int = 0) -> AsyncGenerator[StreamItem[object]]: ...
    def stream(
        self, name: str, type: Any = Any, /, *, after: int = 0
    ) -> AsyncGenerator[StreamItem[Any]]:
        """Give the items of a stream, and those that come, until the run has ended.

        `after`: only those with a higher offset; who stored that goes on anywhere. Raises
        RunNotFound, DecodingError.
        """
        checked_name(name, "stream()")
        check.whole(after, "after", 0)
        return self._items(name, type, after)

    async def _items(self, name: str, type: Any, after: int) -> AsyncGenerator[StreamItem[Any]]:
        codec = self._app.codec
        where = f"stream {name!r} of run {self.id!r}"
        async for row in self._app.engine.talking.items(self.id, name, after):
            yield _item(row, said_as(codec, row.value, type, where))

    def events(self, *, after: str = "") -> AsyncGenerator[HistoryEntry]:
        """Give what has happened to the run, and what happens, until it has ended.

        `after`: the `position` of an entry, to go on after it; "" = from the beginning. Raises
        RunNotFound.
        """
        return entries(self._app, self.id, position_of(after), follow=True)


def position_of(after: object) -> tuple[int, int, int]:
    if not isinstance(after, str):
        raise TypeError(f"after= takes the position of an entry, not {after!r}")
    found = _POSITION.fullmatch(after or "0.-1.0")
    if found is None:
        raise ValueError(f"after= takes the position of an entry, not {after!r}")
    generation, seq, entry = map(int, found.groups())
    return generation, seq, entry


async def entries(
    app: Stepwell, id: str, after: tuple[int, int, int], *, follow: bool
) -> AsyncGenerator[HistoryEntry]:
    """Give what has happened to a run after a position; `follow`: until it has ended."""
    begun, seq, entry = after
    async for generation, page in app.engine.talking.pages(id, after, follow=follow):
        if generation != begun:
            begun, seq = generation, -1
        for number, is_record, event in _in_order(page, app.codec):
            seq, entry = (number, entry) if is_record else (seq, number)
            yield HistoryEntry(f"{generation}.{seq}.{entry}", event)


def _item(row: ItemRow, value: Any) -> StreamItem[Any]:
    return StreamItem(row.offset, value, utc(row.at), row.path, row.attempt)


def _in_order(page: EventPage, codec: Codec) -> list[tuple[int, bool, Event | Audit]]:
    """Return what a page has, by time: each with its seq or entry, and whether it is a record."""
    voided = frozenset(page.voided)
    remote = {one.path: one for one in page.remote}
    records: list[tuple[float, int, bool, Event | Audit]] = [
        (one.at, one.seq, True, record_event(one, codec, voided, remote)) for one in page.records
    ]
    audit: list[tuple[float, int, bool, Event | Audit]] = [
        (one.at, one.entry, False, Audit(utc(one.at), one.action, one.actor, one.reason))
        for one in page.audit
    ]
    merged: list[tuple[int, bool, Event | Audit]] = []
    while records or audit:  # each in its own order, whatever the clocks of workers said
        first = records if not audit or (records and records[0][0] <= audit[0][0]) else audit
        merged.append(first.pop(0)[1:])
    return merged

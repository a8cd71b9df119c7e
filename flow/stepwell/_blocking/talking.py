"""Talking to a run, for code that blocks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar, overload

from stepwell._app.talking import NO_DEFAULT, HistoryEntry, StreamItem
from stepwell._talking import Ask
from stepwell_runtime.definitions import Seconds

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from stepwell._app.app import Stepwell
    from stepwell._blocking.calls import BlockingCalls

T = TypeVar("T")
D = TypeVar("D")
Q = TypeVar("Q")
A = TypeVar("A")
_OVER: Any = object()


class BlockingTalk:
    """The methods of a handle that talk, and block."""

    __slots__ = ()

    _calls: BlockingCalls
    id: str

    @overload
    def value(self, name: str, type: TypeForm[T], /) -> T: ...
    @overload
    def value(self, name: str, type: TypeForm[T], /, *, default: D) -> T | D: ...
    @overload
    def value(self, name: str, /, *, default: object = ...) -> object: ...
    def value(self, name: str, type: Any = Any, /, *, default: Any = NO_DEFAULT) -> Any:
        """Return the value that the run has set last; see Run.value."""
        more = {} if default is NO_DEFAULT else {"default": default}
        return self._calls.do(lambda app: app.get(self.id).value(name, type, **more))

    @overload
    def wait_value(
        self,
        name: str,
        type: TypeForm[T],
        /,
        *,
        until: Callable[[T], bool] | None = None,
        timeout: Seconds | None = None,
    ) -> T: ...
    @overload
    def wait_value(
        self,
        name: str,
        /,
        *,
        until: Callable[[Any], bool] | None = None,
        timeout: Seconds | None = None,
    ) -> object: ...
    def wait_value(
        self,
        name: str,
        type: Any = Any,
        /,
        *,
        until: Callable[[Any], bool] | None = None,
        timeout: Seconds | None = None,
    ) -> Any:
        """Wait for a value that `until`, called in the loop, accepts; see Run.wait_value."""
        return self._calls.do(
            lambda app: app.get(self.id).wait_value(name, type, until=until, timeout=timeout)
        )

    @overload
    def ask(
        self,
        ask: Ask[Q, A],
        payload: Q,
        /,
        *,
        timeout: Seconds | None = None,
        id: str | None = None,
    ) -> A: ...
    @overload
    def ask(
        self,
        ask: str,
        payload: object = None,
        /,
        *,
        timeout: Seconds | None = None,
        id: str | None = None,
    ) -> object: ...
    def ask(
        self,
        ask: Any,
        payload: Any = None,
        /,
        *,
        timeout: Seconds | None = None,
        id: str | None = None,
    ) -> Any:
        """Ask the workflow a question, and return its answer; see Run.ask."""
        return self._calls.do(
            lambda app: app.get(self.id).ask(ask, payload, timeout=timeout, id=id)
        )

    @overload
    def stream(
        self, name: str, type: TypeForm[T], /, *, after: int = 0
    ) -> Generator[StreamItem[T]]: ...
    @overload
    def stream(self, name: str, /, *, after: int = 0) -> Generator[StreamItem[object]]: ...
    def stream(
        self, name: str, type: Any = Any, /, *, after: int = 0
    ) -> Generator[StreamItem[Any]]:
        """Give the items of a stream, and those that come, until the end; see Run.stream."""
        return self._each(lambda app: app.get(self.id).stream(name, type, after=after))

    def events(self, *, after: str = "") -> Generator[HistoryEntry]:
        """Give what has happened to the run, and happens, until its end; see Run.events."""
        return self._each(lambda app: app.get(self.id).events(after=after))

    def _each(self, begin: Callable[[Stepwell], AsyncGenerator[T]]) -> Generator[T]:
        async def begun(app: Stepwell) -> AsyncGenerator[T]:
            return begin(app)

        async def following(app: Stepwell) -> T:
            return await anext(found, _OVER)

        found = self._calls.do(begun)
        return self._given(found, following)

    def _given(self, found: AsyncGenerator[T], following: Any) -> Generator[T]:
        async def close(app: Stepwell) -> None:
            await found.aclose()

        try:
            while (one := self._calls.do(following)) is not _OVER:
                yield one
        finally:
            self._calls.do(close)

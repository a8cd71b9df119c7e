"""Who follows a run that a server keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from stepwell_queue.tcp.client.link import FOREVER, Link
from stepwell_queue.tcp.protocol import Forget, WaitNews


class TcpFollower:
    """Implements `Follower`: asks for the next news as soon as it has heard of some.

    So what is read after `news` has returned was committed before the server began to look for
    what comes next, or is told by that.
    """

    def __init__(self, link: Link, id: str, run: int, left: Callable[[TcpFollower], None]) -> None:
        self._link, self._request, self._left = link, WaitNews(id, run), left
        self._heard = asyncio.Event()
        self._refused: Exception | None = None
        self._number: int | None = None
        self._ask()

    def _ask(self) -> None:
        self._number = self._link.ask(self._request, self._answered, 0, FOREVER)

    def _answered(self, answer: object) -> None:
        if self._number is None:
            return
        self._number = None
        self.hear()
        if isinstance(answer, Exception):
            self._refused = answer
        else:
            self._ask()

    def hear(self) -> None:
        """There may be news: some have come, or went by while the connection was broken."""
        self._heard.set()

    async def news(self) -> None:
        await self._heard.wait()
        if self._refused is not None:
            raise self._refused
        self._heard.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        number, self._number = self._number, None
        if number is not None and self._link.forget(number):
            self._link.note(Forget(number))
        self._left(self)

"""Who follows which run: told after each commit that may be news of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from stepwell_queue.contract import Prune
from stepwell_queue.sqlite.apply import Batch
from stepwell_queue.sqlite.tx import Effects


class Listener:
    """Hears of news of one run, until it leaves."""

    __slots__ = ("_followers", "id", "run", "tell")

    def __init__(self, followers: Followers, id: str, run: int, tell: Callable[[], None]) -> None:
        self._followers, self.id, self.run, self.tell = followers, id, run, tell

    def leave(self) -> None:
        self._followers.leave(self)


class Followers:
    """Those who listen in this process. Nobody: nothing is looked at."""

    def __init__(self) -> None:
        self._by_run: dict[int, list[Listener]] = {}
        self._by_id: dict[str, int] = {}

    @property
    def any(self) -> bool:
        return bool(self._by_run)

    def enter(self, id: str, run: int, tell: Callable[[], None]) -> Listener:
        listener = Listener(self, id, run, tell)
        self._by_run.setdefault(run, []).append(listener)
        self._by_id[id] = run
        return listener

    def leave(self, listener: Listener) -> None:
        listeners = self._by_run.get(listener.run, [])
        if listener in listeners:
            listeners.remove(listener)
            if not listeners:
                del self._by_run[listener.run]
                self._by_id.pop(listener.id, None)

    def after(self, effects: Effects, batch: Batch) -> None:
        """Tell those whose runs were written, or were spoken to."""
        news = effects.said | {ended.run for ended in effects.rested}
        for verb, _, _ in batch:
            if isinstance(verb, Prune):
                news = set(self._by_run)
                break
            run: object = getattr(verb, "run", None)
            id: object = getattr(verb, "id", None)
            if isinstance(run, int):
                news.add(run)
            if isinstance(id, str) and id in self._by_id:
                news.add(self._by_id[id])
        for run in news & self._by_run.keys():
            self._tell(run)

    def tell_all(self) -> None:
        """Something has happened in another process, which may be news of any run."""
        for run in list(self._by_run):
            self._tell(run)

    def _tell(self, run: int) -> None:
        for listener in list(self._by_run.get(run, ())):
            listener.tell()

    def close(self) -> None:
        """Wake those who wait, to whom the store says that it is closed."""
        self.tell_all()


class SqliteFollower:
    """Implements `Follower` in the process that has the file open."""

    def __init__(self, followers: Followers, id: str, run: int) -> None:
        self._heard = asyncio.Event()
        self._listener = followers.enter(id, run, self._heard.set)

    async def news(self) -> None:
        await self._heard.wait()
        self._heard.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.leave()

"""A server's side of remote workers, as short as the tests say it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stepwell_queue import Claim, Claimed, Hello, Identity, RandomIds, SystemClock
from stepwell_queue.sqlite.remote import RemoteHello, RemoteSessions
from stepwell_queue.sqlite.store import SqliteStore, open_sqlite
from tests.store.kit import TASK, WORKFLOW, Bench, Listener


class Station(Bench):
    """A bench that is the server of its file."""

    @property
    def sessions(self) -> RemoteSessions:
        return self.served.remote

    @property
    def served(self) -> SqliteStore:
        assert isinstance(self.store, SqliteStore)
        return self.store

    async def remote(
        self,
        key: str = "key",
        *,
        holds: Mapping[int, int] | None = None,
        serves: Sequence[Identity] = (WORKFLOW, TASK),
        limits: Mapping[str, int] | None = None,
    ) -> Guest:
        guest = Guest()
        hello = Hello("guest", ["default"], serves, limits or {})
        opened = await self.sessions.open(
            RemoteHello(key, "far-away", 4711, hello, holds or {}), guest, guest.lapsed.set
        )
        guest.worker, guest.lost_at_open = opened.worker, opened.lost
        return guest

    async def claim_as(self, guest: Guest, limit: int = 10) -> list[Claimed]:
        found = await self.store.do(Claim(guest.worker, limit, {}))
        return found.runs

    @contextlib.contextmanager
    def beating(self, key: str) -> Generator[None]:
        """Have beats of this worker come in, often enough for a lease of 0.3 seconds."""
        loop = asyncio.get_running_loop()
        stopped = False

        def beat() -> None:
            if not stopped:
                assert self.sessions.beat(key)
                loop.call_later(0.02, beat)

        beat()
        try:
            yield
        finally:
            stopped = True

    async def lapse(self, guest: Guest) -> None:
        async with asyncio.timeout(10):
            await guest.lapsed.wait()


class Guest(Listener):
    """The events of a remote worker's connection."""

    worker: int
    lost_at_open: list[int]

    def __init__(self) -> None:
        super().__init__()
        self.lapsed = asyncio.Event()


async def open_station(
    path: Path, *, lease: float = 15.0, adopt: bool = True, **more: Any
) -> Station:
    clock = SystemClock()
    store = await open_sqlite(
        path, durability="process", clock=clock, ids=RandomIds(clock), lease=lease, **more
    )
    station = Station(store, clock, path)
    if adopt:
        await store.remote.adopt()
    return station

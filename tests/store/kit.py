"""Short ways to say what the tests of the store say all the time."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stepwell_queue import (
    Claim,
    Claimed,
    ClaimResult,
    Clock,
    Durability,
    Hello,
    Identity,
    InboxRow,
    Kind,
    NewRun,
    OpenOp,
    Park,
    Prune,
    RandomIds,
    Record,
    RecordKind,
    SendSignal,
    Session,
    Start,
    Started,
    Store,
    SystemClock,
    open_store,
)
from stepwell_queue.contract import EndedFilter, FindPrunable, KeptSince
from stepwell_queue.tcp.server import Server
from tests.serving import url_of

DIGEST = b"sig." + b"arguments..."
WORKFLOW = Identity(Kind.WORKFLOW, "checkout", 1)
TASK = Identity(Kind.TASK, "mail", 1)


@dataclass(order=True)
class _Alarm:
    when: float
    number: int
    callback: Callable[[], None] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class ManualClock:
    """Stands still until it is moved."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self._now = now
        self._alarms: list[_Alarm] = []

    def now(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> _Alarm:
        alarm = _Alarm(when, len(self._alarms), callback)
        heapq.heappush(self._alarms, alarm)
        if when <= self._now:
            asyncio.get_running_loop().call_soon(self._ring)
        return alarm

    def move(self, seconds: float) -> None:
        self._now += seconds
        self._ring()

    def _ring(self) -> None:
        while self._alarms and self._alarms[0].when <= self._now:
            alarm = heapq.heappop(self._alarms)
            if not alarm.cancelled:
                alarm.callback()

    @property
    def next_alarm(self) -> float | None:
        waiting = [alarm.when for alarm in self._alarms if not alarm.cancelled]
        return min(waiting, default=None)


class Listener:
    """A session's ears."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.told = asyncio.Event()
        self.lost_some = asyncio.Event()
        self.rows: list[InboxRow] = []
        self.lost: list[int] = []

    def on_ready(self) -> None:
        self.ready.set()

    def on_inbox(self, rows: Sequence[InboxRow]) -> None:
        self.rows += rows
        self.told.set()

    def on_answered(self) -> None: ...

    def on_claimed(self, result: ClaimResult) -> None: ...

    def holds(self) -> dict[int, int]:
        return {}

    def keeps(self) -> dict[int, int]:
        return {}

    def on_lost(self, runs: Sequence[int]) -> None:
        self.lost += runs
        self.lost_some.set()

    async def wait_ready(self) -> None:
        async with asyncio.timeout(10):
            await self.ready.wait()
        self.ready.clear()


@dataclass
class Bench:
    """A store with its clock and ids, and how to make things in it."""

    store: Store
    clock: Clock
    path: Path
    count: int = 0

    async def prune(
        self,
        before: float | None = None,
        keep: int | None = None,
        *,
        limit: int = 100,
        **which: Any,
    ) -> int:
        """Delete what has ended before a time, or is not among the newest."""
        ended, now = EndedFilter(**which), self.clock.now()
        bounds = [] if before is None else [before]
        if keep is not None:
            since = await self.store.read(KeptSince(keep, ended))
            bounds += [] if since is None else [since]
        if not bounds:
            return 0
        return await self.store.do(
            Prune(await self.store.read(FindPrunable(ended, max(bounds), now, limit)))
        )

    def new(self, id: str | None = None, identity: Identity = WORKFLOW, **fields: Any) -> NewRun:
        self.count += 1
        defaults: dict[str, Any] = {
            "queue": "default",
            "args": b"arguments",
            "digest": DIGEST,
            "nonce": self.count,
            "at": self.clock.now(),
        }
        return NewRun(
            id=id or f"run-{self.count}",
            kind=identity.kind,
            name=identity.name,
            version=identity.version,
            **{**defaults, **fields},
        )

    async def start(self, id: str | None = None, **fields: Any) -> Started:
        return await self.store.do(Start(self.new(id, **fields)))

    async def session(
        self,
        *serves: Identity,
        queues: Sequence[str] = ("default",),
        listener: Listener | None = None,
    ) -> Session:
        hello = Hello("worker", queues, serves or (WORKFLOW, TASK))
        return await self.store.open_session(hello, listener or Listener())

    async def claim(
        self,
        session: Session,
        limit: int = 10,
        *,
        live: dict[int, int] | None = None,
        idle: bool = False,
    ) -> ClaimResult:
        return await self.store.do(Claim(session.worker, limit, live or {}, idle))

    async def claim_one(self, session: Session, **options: Any) -> Claimed:
        found = await self.claim(session, **options)
        (run,) = found.runs
        return run

    async def claimed(self, session: Session, id: str | None = None, **fields: Any) -> Claimed:
        """A run that this session has just claimed."""
        started = await self.start(id, **fields)
        run = await self.claim_one(session)
        assert run.id == started.id
        return run

    def record(self, seq: int, path: str | None = None, **fields: Any) -> Record:
        values: dict[str, Any] = {
            "kind": RecordKind.STEP_OK,
            "name": "step",
            "value": b"value",
            "at": self.clock.now(),
        }
        return Record(seq=seq, path=str(seq) if path is None else path, **{**values, **fields})

    async def signal(self, id: str, uid: str, value: bytes = b"yes") -> None:
        await self.store.do(SendSignal(id, uid, "go", value, self.clock.now()))

    async def park(
        self, run: int, fence: int, due: float | None = None, opened: Sequence[OpenOp] = ()
    ) -> list[InboxRow]:
        rows: Sequence[InboxRow] = await self.store.do(Park(run, fence, due, "go", opened))
        return list(rows)

    async def status(self, id: str) -> str:
        info = await self.store.info(id)
        assert info is not None
        return info.status_name


async def open_bench(
    path: Path,
    *,
    durability: Durability = "process",
    clock: Clock | None = None,
    lease: float = 15.0,
    server: Server | None = None,
) -> Bench:
    """Open the file, or be a client of the server that has it open."""
    clock = clock or SystemClock()
    ids = RandomIds(clock)
    if server is None:
        store = await open_store(path, durability=durability, clock=clock, ids=ids, lease=lease)
    else:
        store = await open_store(url_of(server), clock=clock, ids=ids)
    return Bench(store, clock, path)

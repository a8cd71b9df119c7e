"""A process that uses a store as it is told, one line of JSON per command and answer."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from stepwell_queue import (
    Append,
    Claim,
    Ended,
    Finish,
    Hello,
    Session,
    StaleFence,
    Start,
    Status,
)
from stepwell_queue.contract import Terminate
from stepwell_queue.sqlite.remote import RemoteHello
from stepwell_queue.sqlite.store import SqliteStore
from tests.store.kit import TASK, WORKFLOW, Bench, Listener, open_bench


class Peer:
    """Commands are methods; each answers something that JSON can say."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.listener = bench, Listener()
        self.sessions: list[Session] = []
        self.waits: dict[str, asyncio.Task[Ended]] = {}

    async def session(self) -> int:
        session = await self.bench.session(WORKFLOW, TASK, listener=self.listener)
        self.sessions.append(session)
        return session.worker

    async def start(self, id: str, **fields: Any) -> int:
        return (await self.bench.start(id, **fields)).run

    async def claim(self, limit: int = 10, idle: bool = False) -> list[list[Any]]:
        found = await self.bench.claim(self.sessions[-1], limit, idle=idle)
        return [[run.run, run.id, run.fence, run.crashes] for run in found.runs]

    async def append(self, run: int, fence: int, seq: int) -> str:
        try:
            await self.bench.store.do(Append(run, fence, [self.bench.record(seq)]))
        except StaleFence:
            return "stale"
        return "ok"

    async def park(self, run: int, fence: int, after: float | None = None) -> int:
        due = None if after is None else self.bench.clock.now() + after
        return len(await self.bench.park(run, fence, due))

    async def finish(self, run: int, fence: int, value: str) -> str:
        verb = Finish(run, fence, Status.COMPLETED, value.encode(), self.bench.clock.now())
        try:
            await self.bench.store.do(verb)
        except StaleFence:
            return "stale"
        return "ok"

    async def signal(self, id: str, uid: str) -> None:
        await self.bench.signal(id, uid)

    async def terminate(self, id: str) -> bool:
        return (await self.bench.store.do(Terminate(id, "uid", b"", self.bench.clock.now()))).more

    async def status(self, id: str) -> str:
        return await self.bench.status(id)

    async def await_ready(self) -> None:
        await self.listener.wait_ready()

    async def forget_ready(self) -> None:
        self.listener.ready.clear()

    async def await_inbox(self) -> list[str]:
        async with asyncio.timeout(10):
            await self.listener.told.wait()
        return [row.uid for row in self.listener.rows]

    async def await_lost(self) -> list[int]:
        async with asyncio.timeout(30):
            await self.listener.lost_some.wait()
        return self.listener.lost

    async def wait_ended(self, id: str) -> str:
        return (await self.bench.store.wait_ended(id)).value.decode()

    async def begin_wait(self, id: str) -> None:
        self.waits[id] = asyncio.create_task(self.bench.store.wait_ended(id))
        await self.bench.store.info(id)

    async def end_wait(self, id: str) -> str:
        async with asyncio.timeout(10):
            return (await self.waits[id]).value.decode()

    async def doctor(self) -> list[str]:
        return [finding.detail for finding in await self.bench.store.doctor()]

    async def workers(self) -> list[list[Any]]:
        return [[w.worker, w.alive, w.held] for w in await self.bench.store.workers()]

    async def write(self, lives: int, records: int) -> int:
        """Whole lives of runs, many at a time; answers how many came to their end."""
        worker = self.sessions[-1].worker

        async def life(number: int) -> int:
            new = self.bench.new(f"{os.getpid()}-{number}", queue=f"q{os.getpid()}")
            claimed = (await self.bench.store.do(Start(new, worker))).claimed
            if claimed is None:
                return 0
            for seq in range(records):
                await self.append(claimed.run, 1, seq)
            return int(await self.finish(claimed.run, 1, "done") == "ok")

        done = 0
        for at in range(0, lives, 20):
            batch = range(at, min(at + 20, lives))
            done += sum(await asyncio.gather(*(life(number) for number in batch)))
        return done

    async def serve(self, beating: bool = False) -> int:
        """Become the server of the file, with one remote worker; `beating`: that beats."""
        store = self.bench.store
        assert isinstance(store, SqliteStore)
        await store.remote.adopt()
        hello = RemoteHello("key", "far-away", 1, Hello("guest", ["default"], [WORKFLOW]), {})
        opened = await store.remote.open(hello, self.listener, lambda: None)
        if beating:
            self._beat(store)
        return opened.worker

    def _beat(self, store: SqliteStore) -> None:
        store.remote.beat("key")
        asyncio.get_running_loop().call_later(0.1, self._beat, store)

    async def claim_remote(self, worker: int) -> list[list[int]]:
        found = await self.bench.store.do(Claim(worker, 10, {}))
        return [[run.run, run.fence] for run in found.runs]

    async def close_session(self) -> None:
        await self.sessions.pop().close()

    async def close(self) -> None:
        await self.bench.store.close()


async def serve(path: Path, durability: Any, lease: float) -> None:
    loop = asyncio.get_running_loop()
    peer = Peer(await open_bench(path, durability=durability, lease=lease))
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        name, options = json.loads(line)
        try:
            answer: Any = {"answer": await getattr(peer, name)(**options)}
        except Exception as error:  # noqa: BLE001  the test is told
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
        if name == "close":
            return


def main(path: str, durability: str, lease: str) -> None:
    asyncio.run(serve(Path(path), durability, float(lease)))

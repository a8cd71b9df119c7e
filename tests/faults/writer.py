"""Runs under the recorder: lives of runs, many at a time, each acknowledged verb reported at once.

usage: writer.py FILE DURABILITY RUNS
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import zlib
from collections.abc import Sequence
from typing import Literal, TypeAlias, cast

import msgspec

from stepwell_queue import (
    Append,
    CancelRun,
    Claim,
    Claimed,
    ClaimResult,
    Finish,
    Hello,
    Identity,
    InboxRow,
    Kind,
    NewRun,
    OpenOp,
    Park,
    RandomIds,
    Record,
    RecordKind,
    SendSignal,
    Session,
    Start,
    StartMany,
    Status,
    Store,
    SystemClock,
    open_store,
)

AT_ONCE = 12
STEPS = 3


Act: TypeAlias = Literal["open", "start", "record", "signal", "finish", "cancel"]


class Report(msgspec.Struct, array_like=True):
    """One acknowledged verb. `crc` is that of the value that was stored."""

    verb: Act
    id: str = ""
    seq: int = 0
    crc: int = 0


def report(verb: Act, *rest: object) -> None:
    os.write(1, msgspec.json.encode((verb, *rest)) + b"\n")


def value_of(id: str, part: str) -> bytes:
    """Return what this run stores there: short or, for one in five, too long for its row."""
    unit = f"{id}/{part};".encode()
    return unit * (300 if zlib.crc32(unit) % 5 == 0 else 3)


class Writer:
    def __init__(self, store: Store, clock: SystemClock) -> None:
        self.store, self.clock = store, clock
        self.session: Session
        self.ready = asyncio.Event()
        self.ended = 0

    # The writer takes what it needs by claims, so only the hint of ready work matters to it.
    def on_ready(self) -> None:
        self.ready.set()

    def on_inbox(self, rows: Sequence[InboxRow]) -> None: ...

    def on_answered(self) -> None: ...

    def on_claimed(self, result: ClaimResult) -> None: ...

    def holds(self) -> dict[int, int]:
        return {}

    def keeps(self) -> dict[int, int]:
        return {}

    def on_lost(self, runs: Sequence[int]) -> None: ...

    def new_run(self, id: str, queue: str) -> NewRun:
        args = value_of(id, "args")
        return NewRun(id, Kind.WORKFLOW, "w", 1, queue, args, b"d" * 16, 7, self.clock.now())

    async def start_and_cancel_some(self, batch: int) -> None:
        """Runs that no worker here takes, of which one is cancelled."""
        runs = [self.new_run(f"left-{batch}-{n}", "elsewhere") for n in range(3)]
        all_started = await self.store.do(StartMany(runs))
        for started, run in zip(all_started, runs, strict=True):
            report("start", started.id, 0, zlib.crc32(run.args))
        first = runs[0].id
        await self.store.do(CancelRun(first, f"{first}-cancel", b"", self.clock.now()))
        report("cancel", first)

    async def start(self, number: int) -> None:
        run = self.new_run(f"run-{number}", "default")
        started = await self.store.do(Start(run, worker=self.session.worker))
        report("start", run.id, 0, zlib.crc32(run.args))
        if started.claimed is not None:
            await self.advance(started.claimed)

    async def advance(self, claimed: Claimed) -> None:
        seq = len(claimed.journal)
        while seq < STEPS:
            await self.record(claimed, seq, RecordKind.STEP_OK)
            seq += 1
        inbox = claimed.inbox
        if seq == STEPS and not inbox:
            # Odd runs get their signal before they park, the others when they have parked.
            early = int(claimed.id.removeprefix("run-")) % 2
            if early:
                await self.signal(claimed.id)
            wait = OpenOp(str(seq), "wait", "approved", None)
            inbox = await self.store.do(
                Park(claimed.run, claimed.fence, None, "approved", opened=[wait])
            )
            if not inbox:
                if not early:
                    await self.signal(claimed.id)
                return
        if seq == STEPS:
            rows = [row.id for row in inbox]
            await self.record(claimed, seq, RecordKind.SIGNAL, rows)
        await self.finish(claimed)

    async def record(
        self, claimed: Claimed, seq: int, kind: RecordKind, absorbed: Sequence[int] = ()
    ) -> None:
        value = value_of(claimed.id, str(seq))
        now = self.clock.now()
        record = Record(seq, kind, str(seq), "step", value, now)
        closed = [str(seq)] if absorbed else []
        await self.store.do(
            Append(claimed.run, claimed.fence, [record], absorbed=absorbed, closed=closed)
        )
        report("record", claimed.id, seq, zlib.crc32(value))

    async def signal(self, id: str) -> None:
        now = self.clock.now()
        await self.store.do(SendSignal(id, f"{id}-signal", "approved", b"yes", now))
        report("signal", id)

    async def finish(self, claimed: Claimed) -> None:
        value = value_of(claimed.id, "result")
        now = self.clock.now()
        await self.store.do(Finish(claimed.run, claimed.fence, Status.COMPLETED, value, now))
        report("finish", claimed.id, 0, zlib.crc32(value))
        self.ended += 1
        self.ready.set()

    async def claim_until(self, count: int) -> None:
        while self.ended < count:
            self.ready.clear()
            answer = await self.store.do(Claim(self.session.worker, AT_ONCE, {}))
            async with asyncio.TaskGroup() as lives:
                for claimed in answer.runs:
                    lives.create_task(self.advance(claimed))
            if not answer.runs and self.ended < count:
                await self.ready.wait()


def checkpoint(path: str) -> None:
    """Move the log into the file and begin a new one, while the writer goes on."""
    with sqlite3.connect(path, timeout=10) as connection:
        connection.execute("PRAGMA wal_checkpoint(RESTART)")
    connection.close()


async def main(path: str, durability: Literal["full", "process"], runs: int) -> None:
    clock = SystemClock()
    store = await open_store(path, durability=durability, clock=clock, ids=RandomIds(clock))
    writer = Writer(store, clock)
    hello = Hello("writer", ["default"], [Identity(Kind.WORKFLOW, "w", 1)])
    writer.session = await store.open_session(hello, writer)
    report("open")
    async with asyncio.TaskGroup() as everything:
        claims = everything.create_task(writer.claim_until(runs))
        for begin in range(0, runs, AT_ONCE):
            async with asyncio.TaskGroup() as some:
                for number in range(begin, min(begin + AT_ONCE, runs)):
                    some.create_task(writer.start(number))
                some.create_task(writer.start_and_cancel_some(begin))
            await asyncio.to_thread(checkpoint, path)
        await claims
    await writer.session.close()
    await store.close()


if __name__ == "__main__":
    asyncio.run(
        main(sys.argv[1], cast("Literal['full', 'process']", sys.argv[2]), int(sys.argv[3]))
    )

"""Claims and ends single tasks while many others wait, without a worker around it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager

from bench import flows
from bench.queueing import batches, set_queue
from bench.spec import Spec, Unreconciled
from bench.window import Meter
from bench.workloads import QUEUE
from stepwell import Stepwell, TaskCall
from stepwell_queue.contract import (
    Claim,
    Claimed,
    ClaimResult,
    Finish,
    Hello,
    InboxRow,
    Session,
    Status,
)

BLOCKED, FREE = "blocked", "free"
"""The keys: of the tasks that wait for others of their key, and of those that are claimed."""


class Deaf:
    """A session's ears, of one that only asks."""

    def on_ready(self) -> None: ...
    def on_inbox(self, rows: Sequence[InboxRow]) -> None: ...
    def on_lost(self, runs: Sequence[int]) -> None: ...
    def on_claimed(self, result: ClaimResult) -> None: ...
    def on_answered(self) -> None: ...
    def holds(self) -> Mapping[int, int]:
        return {}

    def keeps(self) -> Mapping[int, int]:
        return {}


async def measure_pending(app: Stepwell, spec: Spec, meter: Meter) -> None:
    """Claim and end `executions` tasks, one by one in each of `concurrency` sessions.

    `pending` others wait all the time. If they are `blocked`, they are older than those that are
    claimed, and all of one key, which is at its limit.
    """
    await set_queue(app, spec)
    await enqueue(app, spec.pending, BLOCKED if spec.blocked else None)
    async with session(app) as holder:
        if spec.blocked:
            await hold(app, holder, spec.concurrency)
        await enqueue(app, spec.executions, FREE if spec.blocked else None)
        sessions = [app.engine.store.open_session(hello(), Deaf()) for _ in range(spec.concurrency)]
        places = await asyncio.gather(*sessions)
        todo = iter(range(spec.executions))
        async with meter.window():
            await asyncio.gather(*(claim_and_end(app, place, todo, meter) for place in places))
        for place in places:
            await place.close()


async def enqueue(app: Stepwell, count: int, key: str | None) -> None:
    def call(number: int) -> TaskCall[flows.Order]:
        plain = flows.noop(flows.order_number(number))
        return plain if key is None else plain.with_options(key=key)

    for batch in batches(count):
        await app.enqueue_many(map(call, batch))


def hello() -> Hello:
    return Hello("bench", [QUEUE], [flows.noop.definition.identity])


@asynccontextmanager
async def session(app: Stepwell) -> AsyncGenerator[Session]:
    """A registered worker; what it holds at the end goes back to the queue."""
    opened = await app.engine.store.open_session(hello(), Deaf())
    try:
        yield opened
    finally:
        await opened.close()


async def hold(app: Stepwell, holder: Session, count: int) -> None:
    """Claim as many of the first key as may run at once."""
    held = await app.engine.store.do(Claim(holder.worker, count, {}))
    if len(held.runs) != count:
        raise Unreconciled(f"{count} tasks must be held, to block their key; {len(held.runs)} are")


async def claim_and_end(app: Stepwell, place: Session, todo: Iterator[int], meter: Meter) -> None:
    store, clock, value = app.engine.store, app.engine.store.clock, app.codec.encode(None, "")
    for _ in todo:
        begun = time.perf_counter()
        answer = await store.do(Claim(place.worker, 1, {}))
        run = only(answer.runs)
        end = Finish(run.run, run.fence, Status.COMPLETED, value, clock.now(), clean=True)
        await store.do(end)
        meter.latencies.append(time.perf_counter() - begun)
        meter.ids.append(run.id)


def only(runs: Sequence[Claimed]) -> Claimed:
    if len(runs) != 1:
        raise Unreconciled(f"a task is ready, and a claim of one brought {len(runs)}")
    return runs[0]

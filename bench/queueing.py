"""Puts the load of a workload on an app: enqueues tasks, and has them executed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from typing import Final

from bench import flows
from bench.setups import Setup
from bench.spec import Spec
from bench.window import Meter
from bench.workloads import QUEUE, call_of, settings_of
from stepwell import Stepwell, TaskCall
from stepwell_queue.contract import SetQueue

BATCH: Final = 10_000
"""Tasks in one call of `enqueue_many`."""
LARGE_BATCH: Final = 1_000
"""The same of tasks with payloads: a transaction has bounds."""


async def set_queue(app: Stepwell, spec: Spec) -> None:
    settings = settings_of(spec)
    if settings is not None:
        await app.engine.store.do(SetQueue(QUEUE, settings))


def batches(total: int, size: int = BATCH) -> Iterator[range]:
    for first in range(0, total, size):
        yield range(first, min(first + size, total))


async def enqueue_batch(
    app: Stepwell, calls: Iterable[TaskCall[flows.Order]], meter: Meter
) -> None:
    begun = time.perf_counter()
    runs = await app.enqueue_many(calls)
    meter.latencies.append(time.perf_counter() - begun)
    meter.ids += [run.id for run in runs]


async def enqueue(app: Stepwell, spec: Spec, meter: Meter) -> None:
    """`concurrency` calls of `enqueue_many` at a time; a call is what has a latency."""
    todo = batches(spec.executions)

    async def client() -> None:
        for batch in todo:
            await enqueue_batch(app, (call_of(spec, number) for number in batch), meter)

    await asyncio.gather(*(client() for _ in range(spec.concurrency)))


async def enqueue_each(app: Stepwell, spec: Spec, meter: Meter) -> None:
    """`concurrency` calls of `enqueue`, of one task each, at a time."""
    numbers = iter(range(spec.executions))

    async def client() -> None:
        for number in numbers:
            begun = time.perf_counter()
            run = await app.enqueue(call_of(spec, number))
            meter.latencies.append(time.perf_counter() - begun)
            meter.ids.append(run.id)

    await asyncio.gather(*(client() for _ in range(spec.concurrency)))


async def drain(app: Stepwell, spec: Spec, meter: Meter, setup: Setup) -> None:
    """Execute what was enqueued before; the latencies are in the store, from claim to end."""
    await set_queue(app, spec)
    size = LARGE_BATCH if spec.name == "payload" else BATCH
    for batch in batches(spec.executions, size):  # in order, so that rows are in that of numbers
        await enqueue_batch(app, (call_of(spec, number) for number in batch), meter)
    meter.latencies.clear()
    async with meter.window(), setup.working(app, spec) as workers:
        # A worker has drained what it could do while the rate, or others, keep it from the rest.
        await asyncio.gather(*(app.get(id).result() for id in last_ids(spec, meter.ids)))
        await workers.drain()


def last_ids(spec: Spec, ids: list[str]) -> list[str]:
    """The tasks that start last, if a worker could have nothing to do before they have."""
    if spec.name == "rate":
        return ids[-1:]
    if spec.name == "keys" and spec.workers:
        return ids[-spec.keys :]
    return []

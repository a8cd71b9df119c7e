"""Puts the load of a scenario or workload on an app, and measures it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import msgspec

from bench import flows
from bench.meter import Load, peak_rss
from bench.setups import Drains, Look, Setup
from bench.spec import Measured, Spec, Usage
from stepwell import Run, Stepwell

BATCH = 10_000
"""Tasks in one call of `enqueue_many`."""


class Meter:
    """Collects what a driver sees; `window` is around the measured part."""

    def __init__(self, app: Stepwell, spec: Spec, setup: Setup) -> None:
        self._app, self._setup, self._load = app, setup, Load(spec.loop_load)
        self.latencies: list[float] = []
        self.wakes: list[float] = []
        self.ids: list[str] = []
        self._wall = self._cpu = 0.0
        self._before = self._after = Look(0)

    @contextlib.asynccontextmanager
    async def window(self) -> AsyncGenerator[None]:
        self._before = await self._setup.look(self._app)
        async with self._load.running():
            cpu, wall = time.process_time(), time.perf_counter()
            yield
            self._wall = time.perf_counter() - wall
            self._cpu = time.process_time() - cpu - self._load.cpu
        self._after = await self._setup.look(self._app)

    def measured(self) -> Measured:
        before, after = self._before, self._after
        return Measured(
            self._wall,
            self._cpu,
            self.latencies,
            self.wakes,
            after.commits - before.commits,
            peak_rss(),
            self.ids,
            None if after.server is None else between(before.server, after.server),
            [between(*both) for both in zip(before.workers, after.workers, strict=True)],
        )


def between(before: Usage | None, after: Usage) -> Usage:
    """What a process has used from one look to the next."""
    return msgspec.structs.replace(after, cpu=after.cpu - (before.cpu if before else 0.0))


async def measure(spec: Spec, file: Path, setup: Setup) -> Measured:
    """Run one sample into a new file."""
    async with setup.app(spec, file) as app:
        meter = Meter(app, spec, setup)
        if spec.name == "drain":
            await drain(app, spec, meter, setup)
        elif spec.name == "enqueue":
            async with meter.window():
                await enqueue(app, spec, meter)
        elif spec.name == "enqueue-each":
            async with meter.window():
                await enqueue_each(app, spec, meter)
        else:
            async with setup.working(app, spec) as workers, meter.window():
                await workflows(app, workers, spec, meter)
        return meter.measured()


async def workflows(app: Stepwell, workers: Drains, spec: Spec, meter: Meter) -> None:
    if spec.name == "signal":
        for first in range(0, spec.executions, spec.concurrency):
            wave = range(first, min(first + spec.concurrency, spec.executions))
            await signal_wave(app, workers, wave, meter)
        return
    numbers = iter(range(spec.executions))
    await asyncio.gather(
        *(start_and_wait(app, spec, numbers, meter) for _ in range(spec.concurrency))
    )


async def start_and_wait(app: Stepwell, spec: Spec, numbers: Iterator[int], meter: Meter) -> None:
    """One of the clients: the next run as soon as the one before has ended."""
    flow = flows.WORKFLOWS[spec.name]
    for number in numbers:
        begun = time.perf_counter()
        run = await app.start(flow(flows.order_number(number)))
        with contextlib.suppress(flows.Declined):
            await run.result()
        meter.latencies.append(time.perf_counter() - begun)
        meter.ids.append(run.id)


async def signal_wave(app: Stepwell, workers: Drains, numbers: range, meter: Meter) -> None:
    """Start runs, wait until all are parked, signal them, wait until all have ended.

    In waves, since a signal that is sent sooner may be there before the run parks, which then
    does not park.
    """
    begun = {number: time.perf_counter() for number in numbers}
    runs = await asyncio.gather(
        *(app.start(flows.approval(flows.order_number(number))) for number in numbers)
    )
    await workers.drain()
    await asyncio.gather(
        *(
            approve(number, run, begun[number], meter)
            for number, run in zip(numbers, runs, strict=True)
        )
    )


async def approve(number: int, run: Run[flows.Order], begun: float, meter: Meter) -> None:
    signalled = time.perf_counter()
    await run.signal(flows.approved, True)
    await run.result()
    meter.latencies.append(time.perf_counter() - begun)
    if number in flows.finishing:  # else the worker is in another process
        meter.wakes.append(flows.finishing.pop(number) - signalled)
    meter.ids.append(run.id)


async def enqueue(app: Stepwell, spec: Spec, meter: Meter) -> None:
    """`concurrency` calls of `enqueue_many` at a time; a call is what has a latency."""
    batches = iter(
        [
            range(first, min(first + BATCH, spec.executions))
            for first in range(0, spec.executions, BATCH)
        ]
    )

    async def client() -> None:
        for batch in batches:
            begun = time.perf_counter()
            runs = await app.enqueue_many(flows.noop(flows.order_number(n)) for n in batch)
            meter.latencies.append(time.perf_counter() - begun)
            meter.ids += [run.id for run in runs]

    await asyncio.gather(*(client() for _ in range(spec.concurrency)))


async def enqueue_each(app: Stepwell, spec: Spec, meter: Meter) -> None:
    """`concurrency` calls of `enqueue`, of one task each, at a time."""
    numbers = iter(range(spec.executions))

    async def client() -> None:
        for number in numbers:
            begun = time.perf_counter()
            run = await app.enqueue(flows.noop(flows.order_number(number)))
            meter.latencies.append(time.perf_counter() - begun)
            meter.ids.append(run.id)

    await asyncio.gather(*(client() for _ in range(spec.concurrency)))


async def drain(app: Stepwell, spec: Spec, meter: Meter, setup: Setup) -> None:
    """Execute what was enqueued before; the latencies are in the store, from claim to end."""
    await enqueue(app, spec, meter)
    meter.latencies.clear()
    async with meter.window(), setup.working(app, spec) as workers:
        await workers.drain()

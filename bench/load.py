"""Puts the load of a scenario or workload on an app, and measures it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from bench import flows
from bench.pending import measure_pending
from bench.queueing import drain, enqueue, enqueue_each
from bench.setups import Drains, Setup
from bench.spec import DRAINS, Measured, Spec
from bench.window import Meter
from stepwell import Run, Stepwell


async def measure(spec: Spec, file: Path, setup: Setup) -> Measured:
    """Run one sample into a new file."""
    async with setup.app(spec, file) as app:
        meter = Meter(app, spec, setup)
        if spec.name in DRAINS:
            await drain(app, spec, meter, setup)
        elif spec.name == "enqueue":
            async with meter.window():
                await enqueue(app, spec, meter)
        elif spec.name == "enqueue-each":
            async with meter.window():
                await enqueue_each(app, spec, meter)
        elif spec.name == "pending":
            await measure_pending(app, spec, meter)
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

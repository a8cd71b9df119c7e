"""Workflows of every kind, and a worker process that runs them until it is killed.

Each execution of a step leaves one line in the effects log: that is what the outside world saw.

usage: python -m tests.crash.flows STORE EFFECTS [SECONDS THAT A STEP TAKES]
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from stepwell import (
    Retry,
    Signal,
    Stepwell,
    WorkflowCall,
    compensate,
    current_run,
    current_step,
    parallel,
    sleep,
    start,
    step,
    task,
    wait_for_signal,
    workflow,
)
from stepwell.cli._logs import log_to_stderr

SLOTS = 16
"""Runs that one worker holds at once."""

BRANCHES = 3
"""Steps that one run executes at once, at most."""

approved = Signal("approved", str)


class Effect(msgspec.Struct, array_like=True):
    """One execution of a step, as the outside world saw it."""

    run: str
    path: str
    what: str
    attempt: int
    key: str
    process: int


class _World:
    """What steps do and how long it takes them.

    Its log is append-only: one write a line, so that lines of several processes do not mix.
    """

    descriptor = -1
    takes = 0.002  # seconds

    def add(self, what: str) -> int:
        scope = current_step()
        self.write(Effect(scope.run_id, scope.path, what, scope.attempt, scope.key, os.getpid()))
        return scope.attempt

    def write(self, effect: Effect) -> None:
        os.write(self.descriptor, msgspec.json.encode(effect) + b"\n")


world = _World()


@step
async def work(what: str) -> str:
    world.add(what)
    await asyncio.sleep(world.takes)
    return what


@step
def work_in_thread(what: str) -> str:
    world.add(what)
    time.sleep(world.takes)
    return what


@step(retry=Retry(attempts=3, delay=0.01, jitter=False))
async def third_time_lucky(what: str) -> str:
    if world.add(what) < 3:
        raise ConnectionError("not yet")
    return what


@step(queue="elsewhere")
async def work_elsewhere(what: str) -> str:
    world.add(what)
    await asyncio.sleep(world.takes)
    return what


@task(batch=8, linger=0.01, max_crashes=1000)
async def send_some(runs: list[str]) -> list[str]:
    """Gets the id of each run, which it could not know otherwise."""
    for run in runs:
        world.write(Effect(run, "", "s", 1, run, os.getpid()))
    await asyncio.sleep(world.takes)
    return ["s"] * len(runs)


@step
async def undo(what: str) -> None:
    world.add(f"undo {what}")
    await asyncio.sleep(world.takes)


@step(compensate=undo)
async def undoable_work(what: str) -> str:
    world.add(what)
    return what


@step
async def hold(gate: int) -> str:
    """Tell the test that it has begun, and end when and as that says."""
    world.add("b")
    reader, writer = await asyncio.open_connection("127.0.0.1", gate)
    try:
        writer.write(f"{current_step().run_id} {os.getpid()}\n".encode())
        return (await reader.readline()).decode().rstrip("\n")
    finally:
        writer.close()


class Declined(Exception):
    pass


@workflow(max_crashes=1000)
async def linear(number: int) -> list[str]:
    return [await work("a"), await work("b"), await work("c")]


@workflow(max_crashes=1000)
async def branching(number: int) -> list[str]:
    async def two() -> str:
        return await work("b") + await third_time_lucky("c")

    return list(await parallel(work("a"), two(), work_in_thread("d")))


@workflow(max_crashes=1000)
async def napping(number: int) -> list[str]:
    before = await work("a")
    await sleep(0.03)
    return [before, await work("b")]


@workflow(max_crashes=1000)
async def asking(number: int) -> list[str]:
    before = await work("a")
    answer = await wait_for_signal(approved)
    return [before, answer, await work("b")]


@workflow(max_crashes=1000)
async def retrying(number: int) -> list[str]:
    return [await third_time_lucky("a"), await work("b")]


@workflow(max_crashes=1000)
async def remote(number: int) -> list[str]:
    return [await work("a"), await work_elsewhere("b"), await work("c")]


@workflow(max_crashes=1000)
async def batched(number: int) -> list[str]:
    sent = [send_some(f"{current_run().id}/1.{branch}.0") for branch in range(2)]
    return [await work("a"), *await parallel(*sent), await work("b")]


@workflow(max_crashes=1000)
async def parent(number: int) -> list[str]:
    detached = await start(napping(number))
    return [*await linear(number), *await detached.result(), await work("a")]


@workflow(max_crashes=1000)
async def failing(number: int) -> None:
    await undoable_work("a")
    compensate(undo("b"))
    await work("b")
    await undoable_work("c")
    raise Declined(number)


@workflow(max_crashes=1000)
async def withdrawn(number: int) -> None:
    await undoable_work("a")
    await undoable_work("b")
    await wait_for_signal(approved)


@workflow(max_crashes=1000)
async def held(gate: int) -> list[str]:
    return [await work("a"), await hold(gate), await work("c")]


KINDS: dict[str, Callable[[int], WorkflowCall[Any]]] = {
    "linear": linear,
    "branching": branching,
    "napping": napping,
    "asking": asking,
    "retrying": retrying,
    "remote": remote,
    "batched": batched,
    "parent": parent,
    "failing": failing,
    "withdrawn": withdrawn,
}


def mixed(count: int, rng: Random) -> list[str]:
    """Return so many kinds of runs, or a few less, in a random order: of each the same number."""
    return rng.sample([*KINDS] * (count // len(KINDS)), count // len(KINDS) * len(KINDS))


async def serve(store: str, effects: str, *takes: str) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    world.descriptor = os.open(effects, flags, 0o600)
    world.takes = float(takes[0]) if takes else world.takes
    log_to_stderr()
    async with Stepwell(store) as app:
        print("connected", flush=True)
        await app.worker(queues=["default", "elsewhere"], concurrency=SLOTS).run()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))

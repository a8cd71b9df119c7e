"""Code that kills the process that executes it; as a program it serves a store until it is drained.

usage: python crashing.py STORE FOLDER [CONCURRENCY]
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from stepwell import (
    RetryLater,
    Signal,
    Stepwell,
    WorkerCrashed,
    compensate,
    current_step,
    parallel,
    sleep,
    step,
    task,
    wait_for_signal,
    workflow,
)

go = Signal("go", int)
DIED = 9


def folder() -> Path:
    return Path(os.environ["CRASHING_FOLDER"])


def note(what: str) -> int:
    """Write down that something was executed, and return how often it was so far."""
    with (folder() / "done").open("a") as done:
        done.write(f"{what}\n")
    return (folder() / "done").read_text().splitlines().count(what)


def die() -> None:
    os._exit(DIED)


@step
async def work(what: str) -> str:
    note(what)
    return what


@step
async def deadly(what: str) -> str:
    note(what)
    die()
    return what


@step
def deadly_in_thread(what: str) -> str:
    note(what)
    die()
    return what


@step
async def deadly_once(what: str) -> str:
    if note(what) == 1:
        die()
    return f"{what} {current_step().attempt}"


@step(queue="far")
async def deadly_far(what: str) -> str:
    note(what)
    die()
    return what


@task(max_crashes=2)
async def deadly_task() -> None:
    note("deadly task")
    die()


@task(max_crashes=2)
async def polls_and_dies() -> str:
    looks = note("look")
    if looks > 5:
        return f"attempt {current_step().attempt}"
    if looks % 2:
        die()
    raise RetryLater(0.0)


@task(max_crashes=5)
async def always_deadly() -> None:
    note("always deadly")
    die()


@task(batch=10)
async def deadly_batch(numbers: list[int]) -> list[int]:
    note(f"batch {','.join(map(str, numbers))}")
    if 1 in numbers:
        die()
    return numbers


@task
async def neighbour(number: int) -> int:
    note(f"neighbour {number}")
    return number


@workflow(max_crashes=2)
async def catches_the_crash() -> str:
    await work("before")
    try:
        await parallel(deadly("deadly"), sleep(3600))
    except WorkerCrashed:
        return await work("fallback")
    return "never"


@workflow
async def catches_a_crash_far_away() -> str:
    try:
        return await deadly_far("deadly far")
    except WorkerCrashed:
        return await work("fallback")


@workflow(max_crashes=2)
async def rolls_back_from_the_crash() -> None:
    compensate(work("undo"))
    await deadly_in_thread("deadly")


@workflow(max_crashes=2)
async def dies_by_itself() -> None:
    await work("before")
    die()


@workflow(max_crashes=2)
async def dies_at_every_step() -> list[str]:
    return [await deadly_once(f"step {number}") for number in range(5)]


@workflow
async def dies_while_undoing() -> None:
    compensate(work("first undo"))
    compensate(deadly_once("second undo"))
    compensate(work("third undo"))
    raise LookupError("the reason")


@workflow
async def dies_after_a_signal() -> int:
    value = await wait_for_signal(go)
    await deadly_once("after the signal")
    return value


async def main(store: str, concurrency: int = 100) -> None:
    app = Stepwell(store, include=["__main__"], durability="process")
    async with app, app.worker(queues=["default", "far"], concurrency=concurrency) as worker:
        await worker.drain()


if __name__ == "__main__":
    os.environ["CRASHING_FOLDER"] = sys.argv[2]
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[3:])))

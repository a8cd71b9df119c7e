"""Tasks in queues with limits, and a process that executes or calls them.

Each execution leaves two lines in a log, when it begins and when it ends, by a clock that is one
for all processes of the machine.

usage: python -m tests.crash.jobs STORE LOG [call]
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import msgspec

from stepwell import Queue, Rate, Stepwell, current_job, task

LIMIT, KEYS = 3, 4
RATE = Rate(25, per=1.0, burst=5)
TAKES = 0.08  # seconds: long enough for a kill to hit some
HELD = 60.0  # seconds

limited = Queue("limited", limit=LIMIT)
keyed = Queue("keyed", key_limit=1)
rated = Queue("rated", rate=RATE)
single = Queue("single", limit=1)
plain = Queue("plain")


class Moment(msgspec.Struct, array_like=True, frozen=True):
    """An execution begins, or ends."""

    ends: bool
    queue: str
    run: str
    key: str
    process: int
    at: float  # monotonic


class Log:
    """One write a line, so that lines of several processes do not mix."""

    descriptor = -1

    def add(self, key: str, *, ends: bool = False) -> None:
        job = current_job()
        moment = Moment(ends, job.queue, job.run_id, key, os.getpid(), time.monotonic())
        os.write(self.descriptor, msgspec.json.encode(moment) + b"\n")


log = Log()


async def work(key: str = "", seconds: float = TAKES) -> None:
    log.add(key)
    try:
        await asyncio.sleep(seconds)
    finally:
        log.add(key, ends=True)


@task(queue=limited, max_crashes=1000)
async def in_queue(number: int) -> int:
    await work()
    return number


@task(queue=keyed, key=lambda number: f"key-{number % KEYS}", max_crashes=1000)
async def of_key(number: int) -> int:
    await work(f"key-{number % KEYS}")
    return number


@task(queue=rated, max_crashes=1000)
async def at_rate(number: int) -> int:
    await work(seconds=0.0)
    return number


@task(queue=plain, max_crashes=1000)
async def delayed(number: int) -> int:
    await work(seconds=0.0)
    return number


@task(queue=single, max_crashes=1000)
async def alone(held: bool) -> None:
    """Take long on the first attempt, if `held`."""
    first = current_job().run_id not in {moment.run for moment in read(Path(sys.argv[2]))}
    await work(seconds=HELD if held and first else TAKES)


@task(queue=plain)
async def once(number: int) -> int:
    await work(seconds=0.2)
    return number


def read(file: Path) -> list[Moment]:
    *lines, _ = file.read_bytes().split(b"\n")  # behind the last one: a line that is being written
    return [msgspec.json.decode(line, type=Moment) for line in lines]


async def call(store: str) -> list[int]:
    """Make twenty calls at once that have one id."""
    async with Stepwell(store, include=[__name__]) as app:
        runs = await asyncio.gather(*(app.enqueue(once(7), id="one") for _ in range(20)))
        return [await run.result() for run in runs]


def main(store: str, file: str, what: str = "work") -> None:
    log.descriptor = os.open(file, os.O_WRONLY | os.O_APPEND)
    if what == "call":
        print(json.dumps(asyncio.run(call(store))))
        return
    app = Stepwell(store, include=[__name__])
    queues = [limited, keyed, rated, single, plain]
    asyncio.run(app.worker(queues=queues, concurrency=20).run())


if __name__ == "__main__":
    from tests.crash import jobs  # so that its names are the same wherever it is imported

    jobs.main(*sys.argv[1:])

"""A client process that starts runs, tells them what they wait for, and sees them end.

It writes down what it is about to start, and what the server acknowledged; started again after it
was killed, it goes on with the same runs.

It starts a phase of its runs for each byte in a file, so that the test can do something in each.

usage: python -m tests.crash.client ADDRESS DIARY RUNS SEED PHASES RUNS_PER_PHASE
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, Literal

import msgspec

from stepwell import Run, RunCancelled, RunEnded, Stepwell
from stepwell.cli._logs import log_to_stderr
from tests.crash import flows

AT_ONCE = 40
"""Runs that are started and have not ended, so that there is work of every sort all the time."""

Said = Literal["starting", "started", "told", "ended"]


class Line(msgspec.Struct, array_like=True):
    """What was about to be said to the server ("starting"), or what it acknowledged."""

    said: Said
    run: str
    value: Any = None  # started: whether it was created by that; ended: its result or error


class Diary:
    """Append-only, and read again by whoever goes on with it."""

    def __init__(self, file: Path) -> None:
        file.touch()
        self.before = read(file)
        self._descriptor = os.open(file, os.O_WRONLY | os.O_APPEND)

    def add(self, said: Said, run: str, value: object = None) -> None:
        os.write(self._descriptor, msgspec.json.encode(Line(said, run, value)) + b"\n")

    def has(self, said: Said) -> set[str]:
        return {line.run for line in self.before if line.said == said}


def read(file: Path) -> list[Line]:
    return [msgspec.json.decode(line, type=Line) for line in file.read_bytes().splitlines()]


class Phases:
    """How many runs may be started by now."""

    def __init__(self, file: Path, runs: int) -> None:
        self._file, self._runs = file, runs

    async def reach(self, number: int) -> None:
        """Return when the run with this number may be started."""
        while number >= self._file.stat().st_size * self._runs:  # noqa: ASYNC110 - as in `cluster`
            await asyncio.sleep(0.01)


async def work(address: str, diary: Diary, count: int, seed: str, phases: Phases) -> None:
    rng = Random(seed)
    ended, told = diary.has("ended"), diary.has("told")
    places = asyncio.Semaphore(AT_ONCE)
    async with Stepwell(address) as app, asyncio.TaskGroup() as group:
        print("connected", flush=True)
        for number, kind in enumerate(flows.mixed(count, rng)):
            id, delay = f"{kind}-{number}", rng.random() / 2
            if id in ended:
                continue
            await phases.reach(number)
            await places.acquire()
            diary.add("starting", id)
            run = await app.start(flows.KINDS[kind](number), id=id)
            diary.add("started", id, run.created)
            if kind in ("asking", "withdrawn") and id not in told:
                group.create_task(tell(run, kind, delay, diary))
            group.create_task(outcome(run, diary, places))


async def tell(run: Run[Any], kind: str, delay: float, diary: Diary) -> None:
    await asyncio.sleep(delay)  # early or late: both must do
    try:
        if kind == "asking":
            await run.signal(flows.approved, "yes")
        else:
            await run.cancel()
    except RunEnded:  # the process before this one said it, and was killed before it heard back
        return
    diary.add("told", run.id)


async def outcome(run: Run[Any], diary: Diary, places: asyncio.Semaphore) -> None:
    try:
        value: object = await run.result()
    except (flows.Declined, RunCancelled) as error:
        value = type(error).__name__
    diary.add("ended", run.id, value)
    places.release()


def main(arguments: Iterable[str]) -> None:
    address, diary, count, seed, file, runs = arguments
    log_to_stderr()
    phases = Phases(Path(file), int(runs))
    asyncio.run(work(address, Diary(Path(diary)), int(count), seed, phases))


if __name__ == "__main__":
    main(sys.argv[1:])

"""Memory of a server while many tasks go through it: it must not grow with their number.

As a program: `python -m bench.server_memory TASKS DURABILITY FILE` prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

from bench.answer import UNRECONCILED, answer_stream
from bench.memory import ALLOWED, CONCURRENCY, MIB, POINTS, growth_of, portions
from bench.peer import Peer, peer
from bench.queueing import BATCH
from bench.reconcile import all_runs
from bench.samples import child
from bench.spec import Durability, Unreconciled
from stepwell import Access, Stepwell, Worker, task
from stepwell_queue.contract import RunInfo, Status

KEPT: Final = 10_000
"""Ended tasks that retention leaves in the store, at most."""
executions = bytearray()
"""How often each task was executed."""


@task
async def mark(number: int) -> int:
    executions[number] += 1
    return number


async def watch(tasks: int, durability: Durability, file: Path) -> dict[str, Any]:
    """Let tasks through a server portion by portion; look at its memory after each."""
    executions.extend(bytes(tasks))
    kept = min(KEPT, tasks // POINTS)
    points: list[float] = []
    pruned = 0
    async with peer("bench.server") as server:
        address = await server.tell("open", str(file), durability)
        begun = time.perf_counter()
        async with (
            Stepwell(address, access=Access()) as app,
            app.worker(concurrency=CONCURRENCY) as worker,
        ):
            start = await look(server)
            for numbers in portions(tasks):
                await let_through(app, worker, numbers)
                pruned += await app.prune(keep=kept)  # as retention does, once a minute
                points.append(await look(server))
        seconds = time.perf_counter() - begun
        peak = round((await server.look()).peak_rss / MIB, 1)
        await server.tell("close")
    await reconcile(file, tasks, pruned)
    return {
        "kept": kept,
        "seconds": round(seconds, 1),
        "start_mib": start,
        "server_mib": points,
        "peak_mib": peak,
    }


async def let_through(app: Stepwell, worker: Worker, numbers: range) -> None:
    """Enqueue while the worker works; return when all have ended."""
    for first in range(0, len(numbers), BATCH):
        await app.enqueue_many(mark(number) for number in numbers[first : first + BATCH])
    await worker.drain()


async def look(server: Peer) -> float:
    return round((await server.look()).rss / MIB, 1)


async def reconcile(file: Path, tasks: int, pruned: int) -> None:
    """Every task was stored and executed once, and what retention has left is sound."""
    if executions.count(1) != tasks:
        raise Unreconciled(f"{executions.count(1)} of {tasks} tasks were executed exactly once")
    async with Stepwell(file) as app:
        left = await all_runs(app)
        findings = await app.doctor()
    check_left(left, tasks, pruned)
    if findings:
        raise Unreconciled(f"the store is not sound: {findings[0]} ({len(findings)} findings)")


def check_left(left: Sequence[RunInfo], tasks: int, pruned: int) -> None:
    stored = left[0].run if left else 0  # the newest, whose number counts all
    if stored != tasks or len(left) + pruned != tasks:
        raise Unreconciled(
            f"{tasks} tasks were enqueued: {stored} were stored, of which {pruned} are deleted "
            f"and {len(left)} left"
        )
    open_ones = [run for run in left if run.status != Status.COMPLETED]
    if open_ones:
        raise Unreconciled(f"task {open_ones[0].id} is {open_ones[0].status_name}, not completed")


def measure(tasks: int, durability: Durability, place: Path | None) -> dict[str, Any]:
    """Watch one server. Raises Unreconciled, BrokenSample."""
    with tempfile.TemporaryDirectory(prefix="stepwell-bench-", dir=place) as folder:
        file = str(Path(folder) / "memory.db")
        said = child(["-m", "bench.server_memory", str(tasks), durability, file])
    found: dict[str, Any] = json.loads(said)
    grown, part = growth_of(found["server_mib"])
    return {
        "tasks": tasks,
        "durability": durability,
        **found,
        "growth_mib": round(grown, 1),
        "flat": part <= ALLOWED,
    }


def as_text(found: dict[str, Any]) -> str:
    verdict = "flat" if found["flat"] else f"NOT flat (more than {ALLOWED:.0%})"
    points = " ".join(f"{mib:.0f}" for mib in found["server_mib"])
    ends = f"{found['start_mib']:.0f} at the start, {found['peak_mib']:.0f} at most"
    return "\n".join(
        [
            f"memory of a server's process, MiB: {ends}",
            f"  {found['tasks']:,} tasks in {found['seconds']:.0f} s: {points}",
            f"  growth: {found['growth_mib']:+.1f} MiB: {verdict}; reconciled",
        ]
    )


def main(arguments: list[str]) -> int:
    tasks, durability, file = arguments
    stream = answer_stream()
    try:
        found = asyncio.run(watch(int(tasks), cast("Durability", durability), Path(file)))
    except Unreconciled as error:
        print(error, file=sys.stderr)
        return UNRECONCILED
    with stream:
        stream.write(json.dumps(found).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

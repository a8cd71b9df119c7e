"""Memory of one worker process while runs park and end in it: it must not grow with their number.

As a program: `python -m bench.memory PARKED FINISHED DURABILITY FILE` prints one JSON object.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

from bench import flows
from bench.answer import UNRECONCILED, answer_stream
from bench.meter import rss
from bench.samples import child
from bench.spec import Durability, Unreconciled
from stepwell import Stepwell

MIB: Final = 1024 * 1024
CONCURRENCY: Final = 128
POINTS: Final = 10
"""Times that memory is looked at in each phase."""
ALLOWED: Final = 0.05
"""How much memory may grow in the second half of a phase and still be called flat."""


async def watch(parked: int, finished: int, durability: Durability, file: Path) -> dict[str, Any]:
    """Park runs, then let others end beside them; look at the memory all along.

    The cache of live coroutines is full at the first look.
    """
    async with (
        Stepwell(file, durability=durability) as app,
        app.worker(concurrency=CONCURRENCY, cache=parked // POINTS) as worker,
    ):
        start = look()
        parking: list[float] = []
        for numbers in portions(parked):
            calls = [flows.approval(flows.order_number(n)) for n in numbers]
            await app.start_many(calls)
            del calls
            await worker.drain()
            parking.append(look())
        ending: list[float] = []
        for numbers in portions(finished):
            await end(app, iter(numbers))
            ending.append(look())
        await reconcile(app, parked, finished)
    return {"start_mib": start, "parking_mib": parking, "ending_mib": ending}


async def end(app: Stepwell, numbers: Iterator[int]) -> None:
    async def client() -> None:
        for number in numbers:
            run = await app.start(flows.linear(flows.order_number(number)))
            await run.result()

    await asyncio.gather(*(client() for _ in range(CONCURRENCY)))


async def reconcile(app: Stepwell, parked: int, finished: int) -> None:
    for status, name, wanted in (("parked", "approval", parked), ("completed", "linear", finished)):
        found, last = 0, None
        while page := await app.runs(status=status, name=name, after=last, limit=10_000):
            found, last = found + len(page), page[-1].id
        if found != wanted:
            raise Unreconciled(f"{found} runs of {name} are {status}, {wanted} must be")


def portions(total: int) -> Iterator[range]:
    for point in range(POINTS):
        yield range(total * point // POINTS, total * (point + 1) // POINTS)


def look() -> float:
    gc.collect()
    return round(rss() / MIB, 1)


def measure(
    parked: int, finished: int, durability: Durability, place: Path | None
) -> dict[str, Any]:
    """Watch one worker process. Raises Unreconciled, BrokenSample."""
    with tempfile.TemporaryDirectory(prefix="stepwell-bench-", dir=place) as folder:
        file = str(Path(folder) / "memory.db")
        said = child(["-m", "bench.memory", str(parked), str(finished), durability, file])
    found: dict[str, Any] = json.loads(said)
    growth = {phase: growth_of(found[f"{phase}_mib"]) for phase in ("parking", "ending")}
    return {
        "parked": parked,
        "finished": finished,
        "durability": durability,
        **found,
        "growth_mib": {phase: round(mib, 1) for phase, (mib, _) in growth.items()},
        "flat": all(part <= ALLOWED for _, part in growth.values()),
    }


def growth_of(points: list[float]) -> tuple[float, float]:
    """From the highest of the first half, which fills the caches, to that of the second.

    In MiB, and as a part. Memory that was given back and taken again has not grown.
    """
    middle = len(points) // 2
    settled = max(points[:middle])
    grown = max(points[middle:]) - settled
    return grown, grown / settled


def as_text(found: dict[str, Any]) -> str:
    def row(phase: str) -> str:
        return " ".join(f"{mib:.0f}" for mib in found[f"{phase}_mib"])

    verdict = "flat" if found["flat"] else f"NOT flat (more than {ALLOWED:.0%})"
    growth = found["growth_mib"]
    return "\n".join(
        [
            f"memory of one worker process, MiB: {found['start_mib']:.0f} at the start",
            f"  {found['parked']:,} runs park:      {row('parking')}",
            f"  {found['finished']:,} others end:   {row('ending')}",
            f"  growth: {growth['parking']:+.1f} and {growth['ending']:+.1f} MiB: {verdict}",
        ]
    )


def main(arguments: list[str]) -> int:
    parked, finished, durability, file = arguments
    kind = cast("Durability", durability)
    stream = answer_stream()
    try:
        found = asyncio.run(watch(int(parked), int(finished), kind, Path(file)))
    except Unreconciled as error:
        print(error, file=sys.stderr)
        return UNRECONCILED
    with stream:
        stream.write(json.dumps(found).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

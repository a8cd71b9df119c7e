"""Workflows whose journals are kept, one file for each release that wrote them.

Neither these workflows nor the files may change. `python -m tests.behaviour.recorded VERSION`, in
the root of the repository, writes the file of a new release.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from stepwell import (
    Retry,
    Signal,
    Stepwell,
    compensate,
    current_app,
    current_step,
    now,
    parallel,
    race,
    random,
    sleep,
    start,
    step,
    task,
    uuid4,
    wait_for_signal,
    workflow,
)
from stepwell_queue.contract import Record

JOURNALS = Path(__file__).parent / "journals"


@dataclass(frozen=True)
class Parcel:
    id: str
    weight: Decimal


class Lost(Exception):
    def __init__(self, parcel: Parcel, *, where: str) -> None:
        super().__init__(f"{parcel.id} was lost in {where}")
        self.parcel, self.where = parcel, where


found = Signal("found", Parcel)


class Kept(msgspec.Struct):
    """One ended run, as it was stored."""

    workflow: str
    id: str
    seed: str
    created: float
    status: str
    rollback: int
    value: bytes
    journal: list[Record]


@step
async def weigh(id: str) -> Parcel:
    return Parcel(id, Decimal("1.50"))


@step
def lose(parcel: Parcel) -> None:
    raise Lost(parcel, where="Ghent")


@step(retry=Retry(attempts=3, delay=0.0))
async def flaky() -> int:
    if current_step().attempt < 3:
        raise OSError("not yet")
    return current_step().attempt


@step
async def announce(parcel: Parcel) -> None:
    await current_app().signal(current_step().run_id, found, parcel)


@step(queue="depot")
async def shelve(parcel: Parcel, *, shelf: int = 1) -> tuple[str, int]:
    return parcel.id, shelf


@step
async def unshelve(parcel: Parcel) -> None: ...


@step(compensate=unshelve)
async def reserve(parcel: Parcel) -> Parcel:
    return parcel


@task
async def weigh_again(parcel: Parcel) -> Decimal:
    return parcel.weight


@workflow
async def small(id: str, fails: bool) -> str:
    parcel = await weigh(id)
    if fails:
        await lose(parcel)
    return parcel.id


async def branch(parcel: Parcel) -> list[Any]:
    first = random().random()
    weight = await weigh_again(parcel)
    await sleep(0.001)
    return [first, str(uuid4()), weight]


@workflow
async def goes_well(id: str) -> list[Any]:
    parcel = await weigh(id)
    seen: list[Any] = [parcel, await flaky()]
    try:
        await lose(parcel)
    except Lost as error:
        seen += [error.parcel, error.where]
    seen += await parallel(branch(parcel), branch(parcel), shelve(parcel, shelf=2), limit=2)
    seen += await race(sleep(3600), small(id, False))
    seen.append(await wait_for_signal(found, timeout=0.001, default=None))
    await announce(parcel)
    seen.append(await wait_for_signal(found))
    child = await start(small(id, True), id="detached")
    (failed,) = await parallel(child.result(), return_exceptions=True)
    seen.append(str(failed))
    return [*seen, now()]


@workflow
async def goes_wrong(id: str) -> None:
    parcel = await reserve(await weigh(id))
    compensate(small("undo", False))
    discarded = compensate(unshelve(parcel))
    await reserve(parcel)
    discarded.discard()
    try:
        await parallel(small(id, True), sleep(3600), wait_for_signal(found))
    finally:
        await unshelve(parcel)


CALLS = {"goes_well": goes_well, "goes_wrong": goes_wrong}


async def kept(app: Stepwell, name: str) -> Kept:
    run = await app.start(CALLS[name]("p-1"), id=name)
    await asyncio.gather(run.result(timeout=20), return_exceptions=True)
    history = await app.engine.store.history(run.id)
    assert history is not None
    info = history.run
    seed = f"{info.id}/{info.nonce}/0"
    status = await run.status()
    journal = list(history.journal)
    return Kept(name, info.id, seed, info.created, status, info.rollback, info.value, journal)


async def main(version: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        app = Stepwell(Path(folder) / "runs.db", include=[__name__])
        async with app, app.worker(queues=["default", "depot"]):
            runs = [await kept(app, name) for name in CALLS]
    (JOURNALS / f"{version}.json").write_bytes(msgspec.json.format(msgspec.json.encode(runs)))


if __name__ == "__main__":
    # Classes are stored by the name of their module, which must not be __main__.
    from tests.behaviour import recorded

    asyncio.run(recorded.main(sys.argv[1]))

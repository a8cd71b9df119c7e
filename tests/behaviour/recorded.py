"""Workflows of which `tests/journals/0.1.jsonl` has the journals; neither may ever change.

Those of later releases are in `tests/journals/workflows.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from stepwell import (
    Retry,
    Signal,
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


@dataclass(frozen=True)
class Parcel:
    id: str
    weight: Decimal


class Lost(Exception):
    def __init__(self, parcel: Parcel, *, where: str) -> None:
        super().__init__(f"{parcel.id} was lost in {where}")
        self.parcel, self.where = parcel, where


found = Signal("found", Parcel)


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

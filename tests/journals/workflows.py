"""Workflows whose journals are kept, in files of the release that wrote them.

What is here and in the files never changes: a later release has to replay it. New features get new
workflows, in `ENDED` or `LIVE`, and are in the files from then on.
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
    current_run,
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
PARCEL = Parcel("p-1", Decimal("1.50"))


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


@step(retry=Retry(attempts=3, delay=2.0, jitter=False))
async def late() -> int:
    if current_step().attempt < 2:
        raise OSError("not yet")
    return current_step().attempt


@step
async def announce(parcel: Parcel) -> None:
    await current_app().signal(current_step().run_id, found, parcel)


@step(queue="depot", name="journals shelve")
async def shelve(parcel: Parcel, *, shelf: int = 1) -> tuple[str, int]:
    return parcel.id, shelf


@step(queue="attic", name="journals store away")
async def store_away(parcel: Parcel) -> str:
    return parcel.id


@step
async def unshelve(parcel: Parcel) -> None: ...


@step(compensate=unshelve)
async def reserve(parcel: Parcel) -> Parcel:
    return parcel


@task(name="journals weigh again")
async def weigh_again(parcel: Parcel) -> Decimal:
    return parcel.weight


mended: set[str] = set()
"""Runs whose breaking step works from now on."""


@step
async def breaks(id: str) -> str:
    if id not in mended:
        raise RuntimeError(f"{id} is broken")
    return id


@workflow(name="journals small")
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


@workflow(name="journals goes well")
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
    child = await start(small(id, True), id=f"{current_run().id} detached")
    (failed,) = await parallel(child.result(), return_exceptions=True)
    seen.append(str(failed))
    return [*seen, now()]


@workflow(name="journals goes wrong")
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


@workflow(name="journals is cancelled")
async def is_cancelled(id: str) -> None:
    parcel = await reserve(await weigh(id))
    try:
        await parallel(small_wait(id), sleep(3600), late_wait())
    finally:
        await weigh(parcel.id)


@workflow(name="journals small wait")
async def small_wait(id: str) -> str:
    return (await wait_for_signal(found)).id


async def late_wait() -> None:
    await sleep(3600)


@workflow(name="journals is mended", on_failure="hold")
async def is_mended(id: str) -> str:
    await reserve(await weigh(id))
    _, text = await parallel(weigh(id), breaks(id))
    return text


@workflow(name="journals undoes in two goes")
async def undoes_in_two_goes(id: str) -> None:
    compensate(breaks(id))
    await reserve(await weigh(id))
    await lose(PARCEL)


@workflow(name="journals has a deadline", deadline=0.05)
async def has_a_deadline(id: str) -> None:
    await reserve(await weigh(id))
    await sleep(3600)


@workflow(name="journals asks")
async def asks(id: str) -> list[Any]:
    parcel = await reserve(await weigh(id))
    first = await wait_for_signal(found)
    return [parcel, first, random().random()]


@workflow(name="journals sleeps")
async def sleeps(id: str) -> str:
    await parallel(sleep(2.0), weigh(id))
    return (await weigh(id)).id


@workflow(name="journals retries")
async def retries(id: str) -> list[int]:
    return list(await parallel(late(), flaky()))


@workflow(name="journals waits for others")
async def waits_for_others(id: str) -> list[Any]:
    child = await start(asks(id), id=f"{current_run().id} other")
    return list(await parallel(small_wait(id), store_away(PARCEL), child.result()))


@workflow(name="journals is held", on_failure="hold")
async def is_held(id: str) -> str:
    await reserve(await weigh(id))
    return await breaks(id)


@workflow(name="journals rolls back")
async def rolls_back(id: str) -> None:
    compensate(late())
    await reserve(await weigh(id))
    await lose(PARCEL)


ENDED = {
    "well": goes_well,
    "wrong": goes_wrong,
    "cancelled": is_cancelled,
    "mended": is_mended,
    "two goes": undoes_in_two_goes,
    "deadline": has_a_deadline,
}
LIVE = {
    "asks": asks,
    "sleeps": sleeps,
    "retries": retries,
    "others": waits_for_others,
    "held": is_held,
    "rolls back": rolls_back,
}
"""By the ids of their runs."""

"""Workflows whose journals are kept, in files of the release that wrote them.

What is here and in the files never changes: a later release has to replay it. New features get new
workflows, in `ENDED` or `LIVE`, and are in the files from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from stepwell import (
    Ask,
    DeadlineExceeded,
    Retry,
    Signal,
    WorkflowCall,
    compensate,
    continue_as_new,
    current_app,
    current_run,
    current_step,
    deadline,
    emit,
    now,
    parallel,
    patched,
    race,
    random,
    rollback_scope,
    set_value,
    sleep,
    start,
    step,
    task,
    uuid4,
    wait_for_ask,
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
later = Signal("later", int)
PARCEL = Parcel("p-1", Decimal("1.50"))
approve = Ask("approve", Parcel, bool)


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


@step
async def weigh_aloud(id: str) -> Parcel:
    emit("scales", 1)
    emit("scales", PARCEL)
    return Parcel(id, Decimal("1.50"))


@workflow(name="journals says and answers")
async def says(id: str) -> list[Any]:
    seen: list[Any] = [patched("weighs aloud")]
    set_value("where", "on the scales")
    parcel = await weigh_aloud(id)
    emit("parcels", parcel)
    emit("parcels", "that was all")
    seen.append(await race(sleep(0.001), late()))
    try:
        async with rollback_scope():
            await reserve(parcel)
            await lose(parcel)
    except Lost as lost:
        seen.append(lost.where)
    try:
        async with deadline(0.001):
            await sleep(3600)
    except DeadlineExceeded:
        seen.append("too late")
    first = await wait_for_ask(approve)
    first.answer(True)
    second = await wait_for_ask(approve)
    second.refuse("once is enough")
    set_value("where", "at home")
    return [*seen, first.payload, second.payload]


@workflow(name="journals begins anew")
async def begins_anew(id: str, left: int = 2) -> list[Any]:
    parcel = await wait_for_signal(found)
    emit("goes", left)
    set_value("left", left)
    if left:
        await sleep(0)
        continue_as_new(begins_anew(id, left - 1))
    return [parcel, await wait_for_signal(later, timeout=0, default=None), random().random()]


@workflow(name="journals talks")
async def talks(id: str) -> list[Any]:
    seen: list[Any] = [patched("talks more")]
    set_value("where", "in talks")
    await weigh_aloud(id)
    emit("parcels", PARCEL)
    first = await wait_for_ask(approve)
    first.answer(False)
    async with deadline(1e9), rollback_scope():
        await reserve(PARCEL)
        seen += await parallel(wait_for_signal(found, timeout=1e9), asked(), small_wait(id))
    emit("parcels", "that was all")
    return seen


async def asked() -> Parcel:
    question = await wait_for_ask(approve, timeout=1e9)
    question.answer(True)
    return question.payload


astray: set[str] = set()
"""Runs whose code is another one, as after a deploy of code that does not fit."""


@workflow(name="journals gets stuck")
async def gets_stuck(id: str) -> Parcel:
    if id in astray:
        await sleep(3600)
    await weigh(id)
    return await wait_for_signal(found)


held_up: dict[str, asyncio.Event] = {}
"""Makes a step of such a run take until its event is set; absent = no time at all."""


@step
async def takes_long(id: str) -> str:
    if id in held_up:
        await held_up[id].wait()
    return id


@workflow(name="journals takes long")
async def is_running(id: str) -> str:
    await weigh(id)
    return await takes_long(id)


Flow: TypeAlias = Callable[[str], WorkflowCall[Any]]

ENDED: dict[str, Flow] = {
    "well": goes_well,
    "wrong": goes_wrong,
    "cancelled": is_cancelled,
    "mended": is_mended,
    "two goes": undoes_in_two_goes,
    "deadline": has_a_deadline,
    "says": says,
    "anew": begins_anew,
    "terminated": asks,
    "rolled back": is_held,
    "expired": asks,
    "half undone": undoes_in_two_goes,
}
LIVE: dict[str, Flow] = {
    "asks": asks,
    "sleeps": sleeps,
    "retries": retries,
    "others": waits_for_others,
    "held": is_held,
    "rolls back": rolls_back,
    "talks": talks,
    "anew too": begins_anew,
    "paused": asks,
    "stuck": gets_stuck,
}
"""By the ids of their runs."""
RUNNING: dict[str, Flow] = {"running": is_running}
UNCLAIMED: dict[str, Flow] = {"ready": asks, "scheduled": asks}
"""Live ones that no worker has, or that one is about."""

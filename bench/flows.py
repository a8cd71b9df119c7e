"""The code that is measured: steps do nothing, so that the figures are those of the engine."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.spec import DRAINS
from stepwell import Signal, compensate, parallel, step, task, wait_for_signal, workflow

Order = dict[str, Any]
approved = Signal("approved", bool)
finishing: dict[int, float] = {}
"""When the last step of each `signal` execution began: the moment at which its run was awake."""


class Declined(Exception):
    """The deliberate failure of the compensation scenario."""


@step
async def validate(order: Order) -> Order:
    return order


@step
async def transform(order: Order) -> Order:
    return order


@step
async def persist(order: Order) -> Order:
    return order


@workflow
async def linear(order: Order) -> Order:
    order = await validate(order)
    order = await transform(order)
    return await persist(order)


@step
async def prepare(order: Order) -> Order:
    return order


@step
async def price(order: Order) -> Order:
    return order


@step
async def stock(order: Order) -> Order:
    return order


@step
async def route(order: Order) -> Order:
    return order


@step
async def join(order: Order) -> Order:
    return order


@workflow
async def fan_out(order: Order) -> Order:
    order = await prepare(order)
    order, _, _ = await parallel(price(order), stock(order), route(order))
    return await join(order)


@step
async def reserve(order: Order) -> Order:
    return order


@step
async def release(order: Order) -> Order:
    return order


@step
async def charge(order: Order) -> Order:
    return order


@step
async def refund(order: Order) -> Order:
    return order


@step
async def decline(order: Order) -> Order:
    raise Declined(order["id"])


@workflow
async def compensation(order: Order) -> Order:
    order = await reserve(order)
    compensate(release(order))
    order = await charge(order)
    compensate(refund(order))
    return await decline(order)


@step
async def request(order: Order) -> Order:
    return order


@step
async def finish(order: Order, verdict: bool) -> Order:
    finishing[order["id"]] = time.perf_counter()
    return order


@workflow
async def approval(order: Order) -> Order:
    order = await request(order)
    verdict = await wait_for_signal(approved)
    return await finish(order, verdict)


@task
async def noop(order: Order) -> Order:
    return order


WORKFLOWS = {
    "linear": linear,
    "parallel": fan_out,
    "compensation": compensation,
    "signal": approval,
}


def order_number(number: int) -> Order:
    return {"id": number, "name": "x"}


async def bare_linear(order: Order) -> None:
    await persist.fn(await transform.fn(await validate.fn(order)))


async def bare_parallel(order: Order) -> None:
    order = await prepare.fn(order)
    for branch in (price, stock, route):
        await branch.fn(order)
    await join.fn(order)


async def bare_compensation(order: Order) -> None:
    order = await charge.fn(await reserve.fn(order))
    try:
        await decline.fn(order)
    except Declined:
        await release.fn(await refund.fn(order))


async def bare_signal(order: Order) -> None:
    await finish.fn(await request.fn(order), True)


async def bare_drain(order: Order) -> None:
    await noop.fn(order)


async def bare_nothing(order: Order) -> None:
    """Enqueuing executes nothing, and neither does claiming by itself."""


BARE: dict[str, Callable[[Order], Awaitable[None]]] = {
    "linear": bare_linear,
    "parallel": bare_parallel,
    "compensation": bare_compensation,
    "signal": bare_signal,
    "enqueue": bare_nothing,
    "enqueue-each": bare_nothing,
    "pending": bare_nothing,
    **dict.fromkeys(DRAINS, bare_drain),
}

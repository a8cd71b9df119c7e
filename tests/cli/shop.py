"""What the command serves in these tests."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from stepwell import (
    Retry,
    Signal,
    Stepwell,
    compensate,
    emit,
    parallel,
    set_value,
    start,
    step,
    task,
    wait_for_signal,
    workflow,
)

print("the shop opens")  # as careless modules do; it must not get between the answers


@dataclass(frozen=True)
class Order:
    id: str
    total: Decimal
    due: date


@dataclass(frozen=True)
class Decision:
    approved: bool


class Declined(Exception):
    pass


app = Stepwell("shop.db", include=[__name__], durability="process")
approval = Signal("approval", Decision)
FIXED = "SHOP_IS_FIXED"
ORDER = Order("o-1", Decimal("9.50"), date(2030, 1, 31))


@step
async def reserve(order: Order) -> str:
    return f"shelf of {order.id}"


@step
async def release(shelf: str) -> None:
    pass


@step
async def pay(order: Order) -> Decimal:
    if FIXED not in os.environ:
        raise Declined(f"the card of {order.id}")
    return order.total


@step
async def refund(order: Order) -> None:
    if FIXED not in os.environ:
        raise OSError(f"no line to the bank\nfor {order.id}")


@step(retry=Retry(attempts=5, delay=3600.0, max_delay=3600.0, jitter=False))
async def phone(number: str) -> None:
    raise OSError(f"{number} is busy")


@step
async def knit(rows: int) -> int:
    await asyncio.sleep(rows)
    return rows


@workflow
async def shop_sell(order: Order) -> Decimal:
    shelf, _ = await parallel(reserve(order), reserve(order))
    await start(shop_note(shelf).with_options(queue="later"))
    return order.total


@workflow
async def shop_decline(order: Order) -> None:
    compensate(release(await reserve(order)))
    await pay(order)


@workflow
async def shop_lose(order: Order) -> None:
    compensate(refund(order))
    await pay(order)


@workflow(on_failure="hold")
async def shop_hold(order: Order) -> Decimal:
    compensate(release(await reserve(order)))
    return await pay(order)


@workflow
async def shop_approve(order: Order) -> bool:
    set_value("stage", "to be approved")
    emit("lines", order)
    emit("lines", 2)
    return (await wait_for_signal(approval, timeout=86_400.0)).approved


@workflow
async def shop_ask(order: Order) -> bool:
    return await shop_approve(order)


@workflow
async def shop_undo_slowly(order: Order) -> None:
    compensate(phone("12"))
    await pay(order)


@workflow
async def shop_jam() -> None:
    if FIXED not in os.environ:
        await asyncio.sleep(0)


@workflow
async def shop_ring(*numbers: str, loud: bool = False) -> None:
    for number in numbers:
        await phone(number)


@workflow
async def shop_knit(rows: int) -> int:
    return await knit(rows)


@task
async def shop_note(text: str) -> str:
    return text

"""Workflows that the tests of the test kit run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from stepwell import (
    Call,
    Queue,
    Retry,
    Signal,
    compensate,
    emit,
    now,
    parallel,
    race,
    schedule,
    set_value,
    sleep,
    step,
    task,
    wait_for_signal,
    workflow,
)


@dataclass(frozen=True)
class Order:
    id: str
    amount: int = 1


@dataclass(frozen=True)
class Receipt:
    key: str


class Declined(Exception):
    pass


approved = Signal("approved", bool)
done: list[str] = []


@step(retry=Retry(attempts=3, delay=3600.0, max_delay=3600.0), timeout=30.0)
async def charge(order: Order) -> Receipt:
    done.append(f"charge {order.id}")
    return Receipt(order.id)


@step
def refund(receipt: Receipt) -> None:
    """A plain function, which runs in a thread."""
    done.append(f"refund {receipt.key}")


@step
async def ship(order: Order) -> str:
    done.append(f"ship {order.id}")
    return f"shipped {order.id}"


@task(retry=Retry(attempts=2, delay=60.0, jitter=False))
async def count(number: int) -> int:
    done.append(f"count {number}")
    return number


@task(batch=10, linger=0.05)
async def count_many(numbers: list[int]) -> list[int]:
    done.append(f"count {numbers}")
    return numbers


@workflow
async def checkout(order: Order) -> str:
    receipt = await charge(order)
    compensate(refund(receipt))
    if not await wait_for_signal(approved, timeout=timedelta(days=2), default=False):
        raise Declined(order.id)
    return await ship(order)


@workflow
async def month(order: Order) -> tuple[datetime, datetime]:
    begun = now()
    for _ in range(30):
        await charge(order)
        await sleep(timedelta(days=1))
    return begun, now()


@workflow
async def parent(order: Order) -> str:
    return f"{await checkout(order)}, {await count(1)}"


@workflow
async def waits_for_ever() -> bool:
    return await wait_for_signal(approved)


@workflow
async def whichever() -> int:
    return (await race(sleep(3600), wait_for_signal(approved)))[0]


@workflow
async def tells() -> None:
    for day in (1, 2):
        await sleep(timedelta(days=1))
        emit("days", day)
        set_value("half", day)


@workflow
async def forgets(order: Order) -> None:
    charge(order)
    await sleep(1)


@workflow
async def charges_wrongly() -> None:
    wrong: list[Call[object]] = [charge("an order")]  # type: ignore[arg-type]
    await wrong[0]


@workflow
async def counts_many() -> list[int]:
    return list(await parallel(*(count_many(number) for number in range(3))))


@schedule(cron="0 8 * * *", id="daily")
@task(queue=Queue("reports"))
async def report() -> None:
    done.append("report")

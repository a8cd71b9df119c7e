"""Getting invoices paid: letters on certain days, until the money or the customer's word comes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from stepwell import (
    RunEnded,
    Signal,
    current_app,
    now,
    parallel,
    race,
    sleep,
    sleep_until,
    start,
    step,
    wait_for_signal,
    workflow,
)


@dataclass(frozen=True)
class Invoice:
    id: str
    customer: str
    amount: Decimal


@dataclass(frozen=True)
class Habit:
    """What a customer does, in days after the invoice; None = never."""

    pays_on: float | None
    asks_on: float | None = None
    asks_for: float = 0.0


@dataclass(frozen=True)
class Outcome:
    invoice: str
    paid: Decimal
    day: int
    reminders: int


paid = Signal("paid", Decimal)
peace = Signal("peace", float)
"""The customer asks for so many days without reminders."""


@workflow
async def month(customers: list[tuple[Invoice, Habit]], day: timedelta) -> list[Outcome]:
    """Collect all invoices; `day` is how long a day takes."""
    for invoice, habit in customers:
        await start(customer(invoice, habit, day))  # lives on its own
    outcomes = await parallel(
        *(collect(invoice, day).with_options(id=invoice.id) for invoice, _ in customers)
    )
    return list(outcomes)


@workflow
async def collect(invoice: Invoice, day: timedelta) -> Outcome:
    """Remind every three days; after fourteen, hand over to the agency."""
    sent = now()
    await send(invoice, "invoice", 0)
    next_letter, reminders = sent + 3 * day, 0
    while True:
        match await race(wait_for_signal(paid), wait_for_signal(peace), sleep_until(next_letter)):
            case (0, amount):
                return Outcome(invoice.id, amount, days(sent, day), reminders)
            case (1, asked_for):
                next_letter = now() + asked_for * day
            case _ if now() >= sent + 14 * day:
                break
            case _:
                reminders += 1
                await send(invoice, f"reminder {reminders}", days(sent, day))
                next_letter = now() + 3 * day
    # Paid while the agency is at it: the agency's run is cancelled.
    match await race(wait_for_signal(paid), agency(invoice, days(sent, day), day)):
        case (0, amount) | (1, amount):
            return Outcome(invoice.id, amount, days(sent, day), reminders)


@workflow
async def agency(invoice: Invoice, since: int, day: timedelta) -> Decimal:
    """Three stern letters, two days apart; what is not paid then is written off."""
    for number in range(3):
        await send(invoice, f"agency's letter {number + 1}", since + 2 * number)
        await sleep(2 * day)
    await send(invoice, "written off", since + 6)
    return Decimal(0)


@workflow
async def customer(invoice: Invoice, habit: Habit, day: timedelta) -> None:
    """Play the customer, who may be slow."""
    began = now()
    if habit.asks_on is not None:
        await sleep_until(began + habit.asks_on * day)
        await ask_for_peace(invoice.id, habit.asks_for)
    if habit.pays_on is not None:
        await sleep_until(began + habit.pays_on * day)
        await pay(invoice)


@step
async def send(invoice: Invoice, what: str, on_day: int) -> None:
    print(f"day {on_day:>2}  {invoice.customer:<8} {what}", flush=True)


@step
async def ask_for_peace(invoice: str, days: float) -> None:
    await current_app().signal(invoice, peace, days)


@step
async def pay(invoice: Invoice) -> bool:
    """Return False if it has been written off."""
    try:
        await current_app().signal(invoice.id, paid, invoice.amount)
    except RunEnded:
        return False
    return True


def days(since: datetime, day: timedelta) -> int:
    return round((now() - since) / day)

"""The checkout: check, reserve, charge, ask a person about big orders, invoice, ship."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from examples.checkout.model import (
    CardDeclined,
    Decision,
    InvalidOrder,
    NoCourier,
    Order,
    Payment,
    Receipt,
    Rejected,
    Reservation,
)
from examples.checkout.payments import Payments
from examples.checkout.shop import Shop
from stepwell import (
    Retry,
    Signal,
    compensate,
    current_step,
    parallel,
    step,
    wait_for_signal,
    workflow,
)

APPROVAL_FROM = {
    "EUR": Decimal(500),
    "USD": Decimal(540),
    "GBP": Decimal(430),
    "JPY": Decimal(81_000),
    "SEK": Decimal(5_600),
}
UNSERVED = frozenset(("AQ", "PN"))
PATIENT = Retry(attempts=6, delay=0.1, max_delay=1.0, give_up_on=(CardDeclined,))

decision = Signal("decision", Decision)


@dataclass(frozen=True)
class Outside:
    """What the steps talk to; a worker's lifespan provides it."""

    shop: Shop
    payments: Payments
    invoices: Path


outside: ContextVar[Outside] = ContextVar("outside")


@workflow
async def checkout(order: Order) -> Receipt:
    await validate(order)
    reservation = await reserve(order)
    compensate(release(reservation))
    # Before the charge: one that was made, but whose answer never came, is refunded too.
    compensate(refund(order))
    payment = await charge(order)
    if order.total >= APPROVAL_FROM[order.currency]:
        await ask_for_approval(order)
        answer = await wait_for_signal(
            decision, timeout=timedelta(days=2), default=Decision(approved=False, by="nobody")
        )
        if not answer.approved:
            raise Rejected(order.id, f"by {answer.by}")
    invoice, shipment = await parallel(render_invoice(order, payment), book_courier(order))
    return Receipt(order.id, payment, invoice, shipment)


@step
def validate(order: Order) -> None:
    """Plain functions run in a thread."""
    if order.sku not in outside.get().shop.skus():
        raise InvalidOrder(order.id, f"there is no product {order.sku!r}")
    if order.quantity < 1 or order.unit_price <= 0:
        raise InvalidOrder(order.id, f"{order.quantity} at {order.unit_price} is no sale")
    if order.currency not in APPROVAL_FROM:
        raise InvalidOrder(order.id, f"currency {order.currency!r} is not accepted")
    if "@" not in order.email:
        raise InvalidOrder(order.id, f"{order.email!r} is no e-mail address")


@step
def reserve(order: Order) -> Reservation:
    return outside.get().shop.reserve(current_step().key, order)


@step
def release(reservation: Reservation) -> None:
    outside.get().shop.release(reservation)


@step(retry=PATIENT, timeout=1.0)
async def charge(order: Order) -> Payment:
    """The key stays the same when this is tried again, or executed again after a crash."""
    return await outside.get().payments.charge(current_step().key, order)


@step(retry=Retry(attempts=20, delay=0.1, max_delay=1.0), timeout=1.0)
async def refund(order: Order) -> None:
    await outside.get().payments.refund(current_step().key, order)


@step
def ask_for_approval(order: Order) -> None:
    outside.get().shop.ask_for_approval(order)


@step
def render_invoice(order: Order, payment: Payment) -> Path:
    lines = [
        f"Invoice for {order.id}",
        f"{order.customer}, {order.country}",
        f"{order.quantity} x {order.sku} at {order.unit_price} {order.currency}",
        f"Paid: {payment.amount} {payment.currency} ({payment.key})",
    ]
    invoice = outside.get().invoices / f"{order.id}.txt"
    invoice.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return invoice


@step
async def book_courier(order: Order) -> str:
    if order.country in UNSERVED:
        raise NoCourier(order.id, f"no courier goes to {order.country}")
    return f"{order.country}-{current_step().key[:8].upper()}"

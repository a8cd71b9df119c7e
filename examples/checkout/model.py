"""What the shop deals in. These values are stored in the journals of the runs."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Order:
    id: str
    customer: str
    email: str
    country: str
    sku: str
    quantity: int
    unit_price: Decimal
    currency: str

    @property
    def total(self) -> Decimal:
        return self.quantity * self.unit_price


@dataclass(frozen=True)
class Reservation:
    key: str
    sku: str
    quantity: int


@dataclass(frozen=True)
class Payment:
    key: str
    amount: Decimal
    currency: str


@dataclass(frozen=True)
class Decision:
    approved: bool
    by: str


@dataclass(frozen=True)
class Receipt:
    order: str
    payment: Payment
    invoice: Path
    shipment: str


class OrderFailed(Exception):
    """Why an order cannot be fulfilled: its id, and what is wrong."""


class InvalidOrder(OrderFailed):
    pass


class OutOfStock(OrderFailed):
    pass


class CardDeclined(OrderFailed):
    pass


class PaymentsUnavailable(OrderFailed):
    pass


class Rejected(OrderFailed):
    pass


class NoCourier(OrderFailed):
    pass


def load_orders(path: Path = HERE / "orders.csv") -> list[Order]:
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Order(
                id=row["id"],
                customer=row["customer"],
                email=row["email"],
                country=row["country"],
                sku=row["sku"],
                quantity=int(row["quantity"]),
                unit_price=Decimal(row["unit_price"]),
                currency=row["currency"],
            )
            for row in csv.DictReader(file)
        ]


def load_stock(path: Path = HERE / "stock.csv") -> dict[str, int]:
    with path.open(encoding="utf-8", newline="") as file:
        return {row["sku"]: int(row["on_hand"]) for row in csv.DictReader(file)}

"""Compares what the runs say with what the outside world saw."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

import httpx
from rich.console import Group
from rich.table import Table

from examples.checkout.model import Order, load_stock
from examples.checkout.shop import Shop
from stepwell import RunInfo, Stepwell


@dataclass(frozen=True)
class Books:
    """Everything that is known after the last order has ended."""

    orders: dict[str, Order]
    runs: dict[str, RunInfo]
    requests: list[dict[str, str]]
    charges: dict[str, list[dict[str, str]]]
    refunds: dict[str, list[dict[str, str]]]
    stock: dict[str, int]
    reserved: list[tuple[str, str, int]]
    unsound: list[str]


@dataclass(frozen=True)
class Check:
    claim: str
    broken_by: list[str]


async def read_books(orders: Sequence[Order], app: Stepwell, payments: str, shop: Shop) -> Books:
    async with httpx.AsyncClient(base_url=payments) as http:
        ledger: dict[str, list[dict[str, str]]] = (await http.get("/")).json()
    moved: dict[str, dict[str, list[dict[str, str]]]] = {
        "charge": defaultdict(list),
        "refund": defaultdict(list),
    }
    for movement in ledger["movements"]:
        moved[movement["kind"]][movement["order_id"]].append(movement)
    return Books(
        orders={order.id: order for order in orders},
        runs={run.id: run for run in await app.runs(name="checkout", limit=10_000)},
        requests=ledger["requests"],
        charges=moved["charge"],
        refunds=moved["refund"],
        stock=shop.stock(),
        reserved=shop.reserved(),
        unsound=[str(finding) for finding in await app.doctor()],
    )


def checks(books: Books) -> list[Check]:
    return [
        Check("each order has ended, completed or failed", list(unended(books))),
        Check("each charge was made once per key, one key per order", list(repeated(books))),
        Check("each completed order is charged its exact total", list(wrongly_charged(books))),
        Check("each failed order is refunded all that it was charged", list(not_refunded(books))),
        Check("each undo of a failed order has run", list(not_undone(books))),
        Check("stock and the goods of completed orders add up", list(goods_astray(books))),
        Check("the store is sound (doctor)", books.unsound),
    ]


def unended(books: Books) -> Iterator[str]:
    for id in books.orders:
        status = books.runs[id].status if id in books.runs else "missing"
        if status not in ("completed", "failed"):
            yield f"{id} is {status}"


def repeated(books: Books) -> Iterator[str]:
    for id, charges in books.charges.items():
        if len(charges) > 1:
            yield f"{id}: {len(charges)} charges under {len({c['key'] for c in charges})} keys"


def wrongly_charged(books: Books) -> Iterator[str]:
    for id in ended(books, "completed"):
        charged = sum_of(books.charges[id]) - sum_of(books.refunds[id])
        if charged != books.orders[id].total:
            yield f"{id}: charged {charged}, its total is {books.orders[id].total}"


def not_refunded(books: Books) -> Iterator[str]:
    for id in ended(books, "failed"):
        charged = [(c["key"], c["amount"]) for c in books.charges[id]]
        refunded = [(r["charge"], r["amount"]) for r in books.refunds[id]]
        if charged != refunded:
            yield f"{id}: charged {charged}, refunded {refunded}"


def not_undone(books: Books) -> Iterator[str]:
    for id in ended(books, "failed"):
        if books.runs[id].rollback == "incomplete":
            yield f"{id}: {books.runs[id].error}"


def goods_astray(books: Books) -> Iterator[str]:
    holders = Counter(order for order, _, _ in books.reserved)
    expected = dict.fromkeys(ended(books, "completed"), 1)
    for id in sorted(holders.keys() | expected.keys()):
        if holders[id] != expected.get(id, 0):
            yield f"{id}: {holders[id]} reservations"
    gone: Counter[str] = Counter()
    for _, sku, quantity in books.reserved:
        gone[sku] += quantity
    for sku, on_hand in load_stock().items():
        if books.stock[sku] + gone[sku] != on_hand:
            yield f"{sku}: {books.stock[sku]} left, {gone[sku]} sold, {on_hand} at the beginning"


def ended(books: Books, status: str) -> list[str]:
    return [id for id in books.orders if id in books.runs and books.runs[id].status == status]


def sum_of(movements: list[dict[str, str]]) -> Decimal:
    return sum((Decimal(movement["amount"]) for movement in movements), Decimal())


def outcome(run: RunInfo) -> str:
    cause = (run.error or "").partition(":")[0].rpartition(".")[2]
    return f"{run.status}: {cause}" if cause else run.status


def report(books: Books, found: Sequence[Check], kills: str) -> Group:
    return Group(outcomes(books), "", verdicts(found), "", summary(books, kills))


def outcomes(books: Books) -> Table:
    table = Table("how the orders ended", title="Reconciliation", title_justify="left")
    for column in ("orders", "charges made", "refunded"):
        table.add_column(column, justify="right")
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for id in books.orders:
        groups[outcome(books.runs[id]) if id in books.runs else "missing"].append(id)
    for name, ids in sorted(groups.items()):
        table.add_row(name, *counts(books, ids))
    table.add_section()
    table.add_row("all", *counts(books, list(books.orders)))
    return table


def counts(books: Books, ids: Sequence[str]) -> tuple[str, str, str]:
    charged = sum(len(books.charges[id]) for id in ids)
    refunded = sum(len(books.refunds[id]) for id in ids)
    return str(len(ids)), str(charged), str(refunded)


def verdicts(found: Sequence[Check]) -> Table:
    table = Table("")
    table.add_column("claim", no_wrap=True)
    table.add_column("broken by", overflow="fold")
    for check in found:
        mark = "[red]no[/]" if check.broken_by else "[green]yes[/]"
        table.add_row(mark, check.claim, "\n".join(check.broken_by[:5]))
    return table


def summary(books: Books, kills: str) -> str:
    asked = Counter(request["kind"] for request in books.requests)
    made = sum(map(len, books.charges.values()))
    back = sum(map(len, books.refunds.values()))
    return (
        f"{kills} The payment service was asked {asked['charge']} "
        f"times to charge and did so {made} times; {asked['refund']} times to refund, and did so "
        f"{back} times."
    )

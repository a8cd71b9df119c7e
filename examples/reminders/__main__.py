"""Sends a month of invoices and reminders, with days that take a fraction of a second."""

from __future__ import annotations

import argparse
import asyncio
import sys
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from rich.console import Console
from rich.table import Table

from examples.reminders.workflow import Habit, Invoice, Outcome, month
from stepwell import RunNotFound, Stepwell

STORE = Path(__file__).resolve().parents[2] / "build" / "reminders" / "reminders.db"
CUSTOMERS = [
    (Invoice("invoice-1", "Ada", Decimal("120.00")), Habit(pays_on=1)),
    (Invoice("invoice-2", "Bao", Decimal("74.50")), Habit(pays_on=5)),
    (Invoice("invoice-3", "Chiara", Decimal("310.00")), Habit(pays_on=9, asks_on=4, asks_for=6)),
    (Invoice("invoice-4", "Dmitri", Decimal("89.90")), Habit(pays_on=18)),
    (Invoice("invoice-5", "Emeka", Decimal("45.00")), Habit(pays_on=None)),
]


async def collect_all(store: Path, day: timedelta) -> list[Outcome]:
    """Go on with a month that was interrupted; begin anew when it has ended."""
    async with Stepwell(store) as app:
        try:
            if (await app.info("month")).ended:
                await app.prune(keep=0)
        except RunNotFound:
            pass  # the first time
        return await app.run(month(CUSTOMERS, day), id="month")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("examples.reminders", description=__doc__)
    parser.add_argument("--store", type=Path, default=STORE)
    parser.add_argument(
        "--speed", type=float, default=200_000.0, help="times faster than life; 1 = real days"
    )
    given = parser.parse_args(arguments)
    given.store.parent.mkdir(parents=True, exist_ok=True)
    outcomes = asyncio.run(collect_all(given.store, timedelta(days=1) / given.speed))
    table = Table("invoice", "paid", "day", "reminders")
    for outcome in outcomes:
        table.add_row(outcome.invoice, str(outcome.paid), str(outcome.day), str(outcome.reminders))
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The shop's own database: stock, reservations, and what waits for an approval.

Steps are executed again after a crash, so each change here is made once per idempotency key.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from examples.checkout.model import Order, OutOfStock, Reservation

SCHEMA = """
CREATE TABLE IF NOT EXISTS stock (
    sku TEXT PRIMARY KEY, on_hand INTEGER NOT NULL CHECK (on_hand >= 0));
CREATE TABLE IF NOT EXISTS reservations (
    key TEXT PRIMARY KEY, order_id TEXT, sku TEXT, quantity INTEGER, released INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS approvals (
    order_id TEXT PRIMARY KEY, quantity INTEGER, answered INTEGER DEFAULT 0);
"""


class Shop:
    def __init__(self, path: Path) -> None:
        self._path = path

    def create(self, stock: Mapping[str, int]) -> None:
        with closing(sqlite3.connect(self._path)) as connection, connection:
            connection.executescript(SCHEMA)
            connection.executemany("INSERT OR IGNORE INTO stock VALUES (?, ?)", stock.items())

    def skus(self) -> frozenset[str]:
        return frozenset(self.stock())

    def stock(self) -> dict[str, int]:
        with self._transaction() as connection:
            return dict(connection.execute("SELECT sku, on_hand FROM stock"))

    def reserve(self, key: str, order: Order) -> Reservation:
        """Take the order's goods from stock; the same key takes them once."""
        with self._transaction() as connection:
            taken = connection.execute("SELECT 1 FROM reservations WHERE key = ?", (key,))
            if taken.fetchone() is None:
                left = connection.execute(
                    "UPDATE stock SET on_hand = on_hand - ?1 WHERE sku = ?2 AND on_hand >= ?1",
                    (order.quantity, order.sku),
                )
                if left.rowcount == 0:
                    raise OutOfStock(order.id, f"not {order.quantity} of {order.sku} in stock")
                connection.execute(
                    "INSERT INTO reservations (key, order_id, sku, quantity) VALUES (?, ?, ?, ?)",
                    (key, order.id, order.sku, order.quantity),
                )
        return Reservation(key, order.sku, order.quantity)

    def release(self, reservation: Reservation) -> None:
        """Put reserved goods back; a second time changes nothing."""
        with self._transaction() as connection:
            released = connection.execute(
                "UPDATE reservations SET released = 1 WHERE key = ? AND NOT released",
                (reservation.key,),
            )
            if released.rowcount:
                connection.execute(
                    "UPDATE stock SET on_hand = on_hand + ? WHERE sku = ?",
                    (reservation.quantity, reservation.sku),
                )

    def reserved(self) -> list[tuple[str, str, int]]:
        """Return order, product and quantity of what is reserved and not released."""
        with self._transaction() as connection:
            return connection.execute(
                "SELECT order_id, sku, quantity FROM reservations WHERE NOT released"
            ).fetchall()

    def ask_for_approval(self, order: Order) -> None:
        with self._transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO approvals (order_id, quantity) VALUES (?, ?)",
                (order.id, order.quantity),
            )

    def waiting_for_approval(self) -> list[tuple[str, int]]:
        """Return order and quantity of what nobody has decided on."""
        with self._transaction() as connection:
            return connection.execute(
                "SELECT order_id, quantity FROM approvals WHERE NOT answered ORDER BY order_id"
            ).fetchall()

    def mark_answered(self, order_id: str) -> None:
        with self._transaction() as connection:
            connection.execute("UPDATE approvals SET answered = 1 WHERE order_id = ?", (order_id,))

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection, None, None]:
        # One connection a call: steps run in threads, and a worker may be killed at any line.
        with closing(sqlite3.connect(self._path, timeout=30.0, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                yield connection

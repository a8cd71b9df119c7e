"""A payment service that is slow, fails now and then, and keeps a ledger of what it did.

Which requests fail is decided by the seed, the key and how often the key was seen. Its state is
in a file, so that it may be stopped and started. It prints its address when it listens.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random

SCHEMA = """
CREATE TABLE IF NOT EXISTS requests (kind TEXT, key TEXT, order_id TEXT);
-- No UNIQUE here: that nothing is done twice is what the reconciliation is to find out.
CREATE TABLE IF NOT EXISTS movements (
    kind TEXT, key TEXT, order_id TEXT, charge TEXT, amount TEXT, currency TEXT);
CREATE TABLE IF NOT EXISTS voided (order_id TEXT PRIMARY KEY);
"""


class Ledger:
    def __init__(self, path: Path, seed: int) -> None:
        self._connection = sqlite3.connect(path, check_same_thread=False)
        self._connection.executescript(SCHEMA)
        self._lock = threading.Lock()
        self._seed = seed

    def note(self, kind: str, key: str, order: str) -> int:
        """Note a request; return how many of this key there have been."""
        with self._lock, self._connection:
            self._connection.execute("INSERT INTO requests VALUES (?, ?, ?)", (kind, key, order))
            count = "SELECT count(*) FROM requests WHERE key = ?"
            return int(self._connection.execute(count, (key,)).fetchone()[0])

    def charge(self, key: str, order: str, amount: str, currency: str) -> None:
        with self._lock, self._connection:
            self._connection.execute(
                """INSERT INTO movements SELECT 'charge', ?1, ?2, ?1, ?3, ?4
                   WHERE NOT EXISTS (SELECT 1 FROM movements WHERE key = ?1)
                   AND NOT EXISTS (SELECT 1 FROM voided WHERE order_id = ?2)""",
                (key, order, amount, currency),
            )

    def refund(self, key: str, order: str) -> None:
        """Give back what was charged, and let no charge that was on its way come after it."""
        with self._lock, self._connection:
            self._connection.execute("INSERT OR IGNORE INTO voided VALUES (?)", (order,))
            self._connection.execute(
                """INSERT INTO movements SELECT 'refund', ?, order_id, key, amount, currency
                   FROM movements WHERE kind = 'charge' AND order_id = ? AND key NOT IN
                   (SELECT charge FROM movements WHERE kind = 'refund')""",
                (key, order),
            )

    def mood(self, kind: str, key: str, order: str, seen: int) -> str:
        """Return how this request is treated."""
        fate = Random(f"{self._seed} {order}").random()
        if kind == "charge" and fate < 0.10:
            # Of some orders every request ends like this, however often it is repeated.
            return "declined" if fate < 0.06 else "down" if fate < 0.08 else "answer lost"
        chances = Random(f"{self._seed} {key} {seen}")
        return chances.choices(
            ["fine", "down", "answer lost", "answer late"], weights=[80, 11, 6, 3]
        )[0]

    def latency(self, key: str, seen: int) -> float:
        return Random(f"{key} {seen}").uniform(0.05, 0.4)

    def everything(self) -> dict[str, list[dict[str, str]]]:
        with self._lock:
            return {table: self._rows(table) for table in ("requests", "movements")}

    def _rows(self, table: str) -> list[dict[str, str]]:
        cursor = self._connection.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    ledger: Ledger

    def do_GET(self) -> None:
        self._answer(200, json.dumps(self.ledger.everything()))

    def do_POST(self) -> None:
        body: dict[str, str] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind, key, order = (
            self.path.strip("/").rstrip("s"),
            self.headers["Idempotency-Key"],
            body["order"],
        )
        seen = self.ledger.note(kind, key, order)
        mood = self.ledger.mood(kind, key, order, seen)
        time.sleep(self.ledger.latency(key, seen))
        if mood == "declined":
            return self._answer(402, "insufficient funds")
        if mood == "down":
            return self._answer(503, "try again later")
        if kind == "charge":
            self.ledger.charge(key, order, body["amount"], body["currency"])
        else:
            self.ledger.refund(key, order)
        if mood == "answer lost":
            return self._answer(500, "done, but nobody will know")
        if mood == "answer late":
            time.sleep(3.0)
        return self._answer(200, "done")

    def _answer(self, status: int, text: str) -> None:
        content = text.encode()
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except OSError:
            self.close_connection = True  # whoever asked has been killed or has given up

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # connections of killed workers end in the middle


def serve(folder: Path, port: int, seed: int) -> None:
    Handler.ledger = Ledger(folder / "payments.db", seed)
    with Server(("127.0.0.1", port), Handler) as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    serve(
        Path(os.environ.get("CHECKOUT_DIR", "build/checkout")),
        int(os.environ.get("PAYMENTS_PORT", "0")),
        int(os.environ.get("PAYMENTS_SEED", "7")),
    )

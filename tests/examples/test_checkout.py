"""The checkout, with its worker killed, itself killed, and its books cooked."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.crash.cluster import free_port
from tests.examples.running import run, run_and_kill

DEMO = "examples.checkout.demo"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("checkout")
    done = run(DEMO, "--dir", folder, "--orders", "40", "--kills", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def test_a_worker_that_is_killed_loses_and_doubles_nothing(finished: tuple[Path, str]) -> None:
    _, printed = finished
    assert "The worker was killed 2 times." in printed
    assert "It reconciles." in printed
    assert printed.count("kill -9") == 2
    assert printed.count("│ yes │") == 7


def test_a_server_and_a_worker_that_are_killed_lose_and_double_nothing(tmp_path: Path) -> None:
    arguments = ("--dir", tmp_path, "--orders", "40", "--kills", "2", "--server", str(free_port()))
    done = run(DEMO, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"kill -9 \d+; server \d+ goes on", done.stdout)
    assert re.search(r"kill -9 \d+; worker \d+ goes on", done.stdout)
    assert "Server and worker were killed 2 times." in done.stdout
    assert "It reconciles." in done.stdout


def test_orders_end_in_every_way_that_the_workflow_knows(finished: tuple[Path, str]) -> None:
    _, printed = finished
    for outcome in ("completed", "CardDeclined", "InvalidOrder", "NoCourier", "Rejected"):
        assert outcome in printed, f"no order ended with {outcome}"


CHARGE_TWICE = "INSERT INTO movements SELECT * FROM movements WHERE kind = 'charge' LIMIT 1"
KEEP_A_REFUND = """DELETE FROM movements WHERE rowid IN
    (SELECT rowid FROM movements WHERE kind = 'refund' LIMIT 1)"""
CHARGE_TOO_LITTLE = """UPDATE movements SET amount = '0.01' WHERE rowid IN
    (SELECT rowid FROM movements WHERE kind = 'charge' AND order_id NOT IN
        (SELECT order_id FROM movements WHERE kind = 'refund') LIMIT 1)"""


@pytest.mark.parametrize(
    ("claim", "cooking"),
    [
        ("each charge was made once per key", CHARGE_TWICE),
        ("each failed order is refunded", KEEP_A_REFUND),
        ("each completed order is charged its exact total", CHARGE_TOO_LITTLE),
    ],
    ids=["charged twice", "not refunded", "charged too little"],
)
def test_books_that_do_not_add_up_are_noticed(
    finished: tuple[Path, str], claim: str, cooking: str
) -> None:
    folder, _ = finished
    (folder / "reconciled").unlink(missing_ok=True)  # else it would begin anew
    honest = (folder / "payments.db").read_bytes()
    with closing(sqlite3.connect(folder / "payments.db")) as payments, payments:
        assert payments.execute(cooking).rowcount == 1
    done = run(DEMO, "--dir", folder, "--orders", "40", "--kills", "0")
    (folder / "payments.db").write_bytes(honest)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "It does not reconcile." in done.stdout
    assert re.search(rf"│ no  │ {claim}", done.stdout), done.stdout


def test_a_demo_that_is_killed_goes_on_when_it_is_started_again(tmp_path: Path) -> None:
    arguments = ("--dir", tmp_path, "--orders", "20", "--kills", "1")
    run_and_kill(DEMO, *arguments, at="kill -9")
    done = run(DEMO, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"going on: (\d+) of 20 orders have ended before", done.stdout)
    assert found is not None, done.stdout
    assert 10 <= int(found[1]) < 20
    assert "It reconciles." in done.stdout


def test_a_demo_that_has_ended_begins_anew(tmp_path: Path) -> None:
    for _ in range(2):
        done = run(DEMO, "--dir", tmp_path, "--orders", "2", "--kills", "0")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "going on" not in done.stdout

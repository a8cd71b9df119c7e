"""The reminders, with days of a fraction of a second."""

from __future__ import annotations

import re
from pathlib import Path

from tests.examples.running import run, run_and_kill

REMINDERS = "examples.reminders"
SPEED = "400000"


def outcomes(printed: str) -> dict[str, tuple[str, int]]:
    """Return what each invoice brought, and after how many reminders."""
    rows = re.findall(r"│ (invoice-\d) │ ([\d.]+) +│ \d+ +│ (\d+) ", printed)
    return {invoice: (paid, int(reminders)) for invoice, paid, reminders in rows}


EXPECTED = {
    "invoice-1": ("120.00", 0),
    "invoice-2": ("74.50", 1),
    "invoice-3": ("310.00", 1),
    "invoice-4": ("89.90", 4),
    "invoice-5": ("0", 4),
}


def test_each_customer_is_reminded_until_the_money_comes(tmp_path: Path) -> None:
    done = run(REMINDERS, "--store", tmp_path / "reminders.db", "--speed", SPEED)
    assert done.returncode == 0, done.stderr
    assert outcomes(done.stdout) == EXPECTED
    letters = [line.split(maxsplit=2)[2] for line in done.stdout.splitlines() if "day " in line]
    emeka = [letter.split(maxsplit=1)[1] for letter in letters if letter.startswith("Emeka")]
    assert emeka == [
        "invoice",
        *(f"reminder {number}" for number in (1, 2, 3, 4)),
        *(f"agency's letter {number}" for number in (1, 2, 3)),
        "written off",
    ]
    assert not any("Dmitri" in letter and "written off" in letter for letter in letters)


def test_timers_go_on_in_the_next_process(tmp_path: Path) -> None:
    arguments = ("--store", tmp_path / "reminders.db", "--speed", SPEED)
    before = run_and_kill(REMINDERS, *arguments, at="reminder 2")
    done = run(REMINDERS, *arguments)
    assert done.returncode == 0, done.stderr
    # Days went by while nothing ran, so how many reminders were sent may differ.
    paid = {invoice: amount for invoice, (amount, _) in outcomes(done.stdout).items()}
    assert paid == {invoice: amount for invoice, (amount, _) in EXPECTED.items()}
    for letter in ("invoice", "reminder 1"):
        assert f"Emeka    {letter}" in before
        assert f"Emeka    {letter}" not in done.stdout
    assert "Emeka    written off" in done.stdout

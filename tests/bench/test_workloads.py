"""Workloads verify what was set for their queue, and report it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench import checks
from bench.spec import Unreconciled
from stepwell_queue.contract import Kind, RunInfo, Status
from tests.bench.test_samples import KEYS, report_of

SMALL = ("--executions", "20", "--runs", "1", "--durability", "process")
OF_A_ROW = {"pending", "blocked", "p50_ratio"}


def claimed(
    number: int, started: float, ended: float, *, key: str | None = None, priority: int = 0
) -> RunInfo:
    """A task as the store shows it, of which only what the checks look at differs."""
    return RunInfo(
        number, f"run-{number}", Kind.TASK, "noop", 1, "default", Status.COMPLETED, 0, 0, priority,
        0, 0, 1, number, 0.0, ended, started, ended, None, None, "", None, None, None, True,
        b"", b"", key,
    )  # fmt: skip


def test_what_is_claimed_together_needs_no_order_among_itself() -> None:
    checks.in_order(
        [
            claimed(1, 5.0, 6.0, priority=1),
            claimed(2, 5.0, 6.0, priority=2),
            claimed(3, 6.0, 7.0, priority=1),
        ]
    )


WRONG_ORDERS = [
    [claimed(1, 5.0, 6.0, priority=1), claimed(2, 6.0, 7.0, priority=2)],
    [claimed(1, 6.0, 7.0), claimed(2, 5.0, 6.0)],
]


@pytest.mark.parametrize("runs", WRONG_ORDERS, ids=["priority", "age"])
def test_a_claim_of_what_should_have_waited_is_found(runs: Sequence[RunInfo]) -> None:
    with pytest.raises(Unreconciled, match="was claimed after"):
        checks.in_order(runs)


def test_a_place_may_be_taken_in_the_moment_in_which_it_is_given_up() -> None:
    runs = [claimed(1, 5.0, 6.0, key="a"), claimed(2, 6.0, 7.0, key="a")]
    checks.within_limit(runs, 1)
    with pytest.raises(Unreconciled, match="2 tasks of a were running at once"):
        checks.within_limit([*runs, claimed(3, 6.5, 7.5, key="a")], 1)


def test_a_key_that_is_passed_over_is_found_unless_it_was_at_its_limit() -> None:
    first = claimed(1, 1.0, 4.0, key="a")
    others = [claimed(number, float(number), number + 0.5, key="b") for number in (2, 3)]
    second = claimed(4, 4.5, 5.0, key="a")
    checks.in_turns([first, *others, second], 1)
    with pytest.raises(Unreconciled, match="had two turns while a waited"):
        checks.in_turns([first, *others, second], 2)


def test_starts_beyond_a_burst_and_a_rate_are_found() -> None:
    kept = [claimed(1, 1.0, 2.0), claimed(2, 1.0, 2.0), claimed(3, 1.5, 2.0)]
    checks.within_rate(kept, rate=2, burst=2)
    with pytest.raises(Unreconciled, match="beyond the rate of 2"):
        checks.within_rate([*kept, claimed(4, 1.75, 2.0)], rate=2, burst=2)


def test_tokens_that_were_not_used_are_kept_only_up_to_a_burst() -> None:
    late = [claimed(number, 100.0, 101.0) for number in (1, 2, 3)]
    with pytest.raises(Unreconciled, match="beyond the rate"):
        checks.within_rate([claimed(0, 1.0, 2.0), *late], rate=2, burst=2)


def test_a_rate_that_binds_is_nearly_used_up(tmp_path: Path) -> None:
    found = report_of(
        tmp_path / "figures.json", *("queue", "--workload", "rate", "--rate", "50"), *SMALL
    )
    assert (found["rate_limit"], found["burst"]) == (50, 5)
    assert 0 < found["rate_used"] <= 1


def test_keys_with_room_for_several_reconcile(tmp_path: Path) -> None:
    keys = ("--keys", "3", "--key-limit", "2", "--concurrency", "4")
    found = report_of(tmp_path / "figures.json", *("queue", "--workload", "keys"), *keys, *SMALL)
    assert (found["keys"], found["key_limit"]) == (3, 2)


@pytest.mark.parametrize("mode", ["embedded", "tcp"])
def test_claims_are_measured_for_each_number_of_waiting_tasks(mode: str, tmp_path: Path) -> None:
    found = report_of(
        tmp_path / "figures.json",
        *("queue", "--workload", "pending", "--pending", "30,10", "--mode", mode),
        *SMALL,
    )
    assert (found["concurrency"], found["reconciled"]) == (1, True)
    rows = [(row["pending"], row["blocked"]) for row in found["rows"]]
    assert rows == [(10, False), (30, False), (10, True), (30, True)]
    for row in found["rows"]:
        assert (KEYS | OF_A_ROW) - row.keys() == KEYS & found.keys()
        assert 0 < row["p50_ms"] <= row["p95_ms"]
    assert [row["p50_ratio"] for row in found["rows"]][::2] == [1.0, 1.0]

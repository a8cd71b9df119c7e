"""Flags are refused with a reason, and the smaller measurements report what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import imports, memory
from bench.cli import main

REFUSED = [
    (["workflow", "--scenario", "linear", "--mode", "udp"], "invalid choice: 'udp'"),
    (["workflow", "--scenario", "linear", "--workers", "2"], "this needs --mode tcp"),
    (["queue", "--workload", "enqueue", "--mode", "tcp", "--workers", "2"], "nothing works"),
    (["queue", "--workload", "drain", "--mode", "tcp", "--workers", "0"], "a whole number from 1"),
    (["queue", "--workload", "drain", "--keys", "5"], "--keys is for --workload keys"),
    (["queue", "--workload", "rate", "--key-limit", "2"], "--key-limit is for --workload keys"),
    (["queue", "--workload", "keys", "--rate", "9"], "--rate is for --workload rate"),
    (["queue", "--workload", "rate", "--rate", "0"], "a whole number from 1"),
    (["queue", "--workload", "drain", "--pending", "9"], "--pending is for --workload pending"),
    (["queue", "--workload", "pending", "--pending", "9,many"], "'many' must be a whole number"),
    (["queue", "--workload", "pending", "--pending", "3", "--concurrency", "4"], "cannot block"),
    (["queue", "--workload", "pending", "--mode", "tcp", "--workers", "2"], "nothing works"),
    (["workflow", "--scenario", "spiral"], "invalid choice: 'spiral'"),
    (["workflow"], "--scenario"),
    (["queue", "--workload", "enqueue", "--executions", "0"], "a whole number from 1"),
    (["queue", "--workload", "enqueue", "--concurrency", "-3"], "a whole number from 1"),
    (["workflow", "--scenario", "linear", "--loop-load", "1.2"], "from 0 to 0.95"),
    (["workflow", "--scenario", "linear", "--loop-load", "much"], "from 0 to 0.95"),
    (["workflow", "--scenario", "linear", "--durability", "none"], "invalid choice: 'none'"),
    (["workflow", "--scenario", "linear", "--dir", "/no/such/folder"], "is no folder"),
]


@pytest.mark.parametrize(("arguments", "complaint"), REFUSED)
def test_a_flag_that_cannot_be_is_refused_with_a_reason(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complaint in refused(arguments, capsys)


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What the command says to flags that cannot be."""
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    return capsys.readouterr().err


def test_memory_is_watched_while_runs_park_and_end(tmp_path: Path) -> None:
    found = memory.measure(20, 40, "process", tmp_path)
    assert found.keys() == {
        *("parked", "finished", "durability", "start_mib", "parking_mib", "ending_mib"),
        *("growth_mib", "flat"),
    }
    assert len(found["parking_mib"]) == len(found["ending_mib"]) == memory.POINTS
    assert min(found["parking_mib"] + found["ending_mib"]) > 0


def test_memory_that_grows_is_not_flat() -> None:
    grown, part = memory.growth_of([10.0, 18.0, 20.0, 20.5, 23.0, 22.0])
    assert grown == 3.0
    assert part > memory.ALLOWED
    assert memory.growth_of([10.0, 20.0, 20.0, 20.1])[1] <= memory.ALLOWED


def test_memory_that_was_given_back_meanwhile_has_not_grown() -> None:
    grown, part = memory.growth_of([76.0, 78.0, 71.0, 78.0, 79.0, 78.0])
    assert grown == 1.0
    assert part <= memory.ALLOWED


def test_the_time_of_the_import_is_reported_beside_that_of_asyncio() -> None:
    found = imports.measure(2)
    assert found["asyncio_ms"] > 0
    difference = found["stepwell_ms"] - found["asyncio_ms"]
    assert abs(found["difference_ms"] - difference) <= 0.11  # each of them is rounded
    assert found["optional_imported"] == []

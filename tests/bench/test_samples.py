"""What the benchmark measures is what the store says has happened."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench import samples
from bench.cli import main
from bench.spec import SCENARIOS, WORKLOADS, Measured, Spec, Unreconciled
from tests.bench.conftest import EXECUTIONS, Sampled

KEYS = {
    "mode", "durability", "concurrency", "executions", "runs", "rate", "p50_ms", "p95_ms", "p99_ms",
    "cpu_us", "peak_rss_mib", "floor_rate", "floor_ratio", "reconciled", "versions",
}  # fmt: skip
OF_WORKLOAD = {
    "keys": {"keys", "key_limit"},
    "rate": {"rate_limit", "burst", "rate_used"},
    "payload": {"payload_bytes"},
}
WITH_ONE_ROW = [name for name in WORKLOADS if name != "pending"]


def report_of(file: Path, *arguments: str) -> dict[str, Any]:
    code = main([*arguments, "--json", str(file)])
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    assert code == 0
    return found


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_reconciles_and_reports_every_figure(scenario: str, tmp_path: Path) -> None:
    found = report_of(
        tmp_path / "figures.json",
        *("workflow", "--scenario", scenario, "--executions", str(EXECUTIONS)),
        *("--concurrency", "4", "--runs", "1", "--durability", "process", "--dir", str(tmp_path)),
    )
    assert found.keys() == KEYS | {"scenario"}
    assert found["scenario"] == scenario
    assert found["reconciled"] is True
    assert found["rate"].keys() == {"min", "median", "max"}
    assert found["versions"].keys() == {"stepwell", "python", "sqlite", "system"}
    assert 0 < found["p50_ms"] <= found["p95_ms"] <= found["p99_ms"]
    assert found["cpu_us"] > 0
    assert found["floor_rate"] > 0


@pytest.mark.parametrize("workload", WITH_ONE_ROW)
def test_a_workload_reconciles_and_reports_every_figure(workload: str, tmp_path: Path) -> None:
    found = report_of(
        tmp_path / "figures.json",
        *("queue", "--workload", workload, "--executions", str(EXECUTIONS)),
        *("--concurrency", "4", "--runs", "2", "--mode", "embedded"),
    )
    assert found.keys() == KEYS | {"workload"} | OF_WORKLOAD.get(workload, set())
    assert (found["workload"], found["runs"], found["durability"]) == (workload, 2, "full")


def test_a_signal_to_an_idle_run_reports_the_time_of_the_wake_up(tmp_path: Path) -> None:
    found = report_of(
        tmp_path / "figures.json",
        *("workflow", "--scenario", "signal", "--executions", "5", "--concurrency", "1"),
        *("--runs", "1"),
    )
    assert found.keys() == KEYS | {"scenario", "wake_ms"}
    assert found["wake_ms"] > 0


def test_other_work_on_the_loop_is_part_of_the_report(tmp_path: Path) -> None:
    found = report_of(
        tmp_path / "figures.json",
        *("workflow", "--scenario", "linear", "--executions", "5", "--concurrency", "1"),
        *("--runs", "1", "--durability", "process", "--loop-load", "0.6"),
    )
    assert found["loop_load"] == 0.6


def test_the_measuring_process_starts_with_an_empty_file(sampled: Sampled) -> None:
    _, folder = sampled("linear")
    measured = msgspec.json.decode((folder / "measured.json").read_bytes(), type=Measured)
    assert len(measured.ids) == len(set(measured.ids)) == EXECUTIONS
    assert rows(folder, "SELECT count(*) FROM runs") == [(EXECUTIONS,)]


def rows(folder: Path, sql: str) -> list[Any]:
    db = sqlite3.connect(folder / "sample.db")
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def tamper(folder: Path, sql: str) -> None:
    db = sqlite3.connect(folder / "sample.db")
    try:
        assert db.execute(sql).rowcount > 0
        db.commit()
    finally:
        db.close()


SWAP_UNDOS = """
    UPDATE journal SET name = CASE name WHEN 'refund' THEN 'release' ELSE 'refund' END
    WHERE run = 3 AND path LIKE '~%'
"""
CHANGE_A_RESULT = """
    UPDATE blobs SET value = CAST(replace(value, 'payload.', 'payment.') AS BLOB)
    WHERE run = 3 AND role = 1
"""
TAMPERED = [
    ("linear", "UPDATE runs SET status = 11 WHERE run = 3", "completed"),
    ("linear", "DELETE FROM runs WHERE run = 3", "missing in the store"),
    ("linear", "DELETE FROM journal WHERE run = 3 AND seq = 2", "must be"),
    ("linear", "UPDATE journal SET seq = 7 WHERE run = 3 AND seq = 2", "not sound"),
    ("linear", "UPDATE runs SET value = (SELECT value FROM runs WHERE run = 4) WHERE run = 3",
     "different orders"),
    ("parallel", "UPDATE journal SET name = 'stock' WHERE run = 3 AND name = 'route'", "must be"),
    ("compensation", "UPDATE runs SET rollback = 2 WHERE run = 3", "incomplete"),
    ("compensation", SWAP_UNDOS, "must be"),
    ("signal", "UPDATE runs SET fence = 1 WHERE run = 3", "claims=1"),
    ("signal", "UPDATE inbox SET absorbed = 0 WHERE run = 3", "left something open"),
    ("enqueue", "UPDATE runs SET fence = 1 WHERE run = 3", "never claimed"),
    ("enqueue-each", "DELETE FROM runs WHERE run = 3", "missing in the store"),
    ("drain", "UPDATE runs SET fence = 2 WHERE run = 3", "first claim"),
    ("drain", "UPDATE runs SET value = (SELECT value FROM runs WHERE run = 4) WHERE run = 3",
     "each once"),
    ("priorities", "UPDATE runs SET priority = 11 WHERE run = 3", "must have priority"),
    ("priorities", "UPDATE runs SET started = 0 WHERE priority = 0", "was claimed after"),
    ("keys", "UPDATE terms SET key = 'nobody' WHERE run = 3", "must have key"),
    ("keys", "UPDATE runs SET updated = updated + 60 WHERE run = 3", "were running at once"),
    ("rate", "UPDATE runs SET started = 0", "beyond the rate"),
    ("payload", CHANGE_A_RESULT, "is not its argument"),
    ("pending", "DELETE FROM runs WHERE run = 25", "8 tasks must wait"),
    ("pending", "UPDATE runs SET fence = 2 WHERE run = 3", "first claim"),
    ("pending", "UPDATE runs SET status = 12, ended = 9 WHERE run = 25", "7 do"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "tampering", "complaint"), TAMPERED)
def test_a_store_that_was_tampered_with_does_not_reconcile(
    name: str, tampering: str, complaint: str, sampled: Sampled
) -> None:
    spec, folder = sampled(name)
    tamper(folder, tampering)
    with pytest.raises(Unreconciled, match=complaint):
        samples.part("reconcile", spec, folder, list[float])


def test_a_sample_that_claims_more_than_the_store_has_does_not_reconcile(
    sampled: Sampled,
) -> None:
    spec, folder = sampled("linear")
    kept = folder / "measured.json"
    measured = msgspec.json.decode(kept.read_bytes(), type=Measured)
    more = msgspec.structs.replace(measured, ids=[*measured.ids[:-1], "invented"])
    kept.write_bytes(msgspec.json.encode(more))
    with pytest.raises(Unreconciled, match="1 acknowledged runs are missing"):
        samples.part("reconcile", spec, folder, list[float])


def test_the_command_prints_no_figure_of_a_sample_that_does_not_reconcile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    take_part = samples.part

    def tampering(name: str, spec: Spec, folder: Path, kind: type[Any]) -> Any:
        if name == "reconcile":
            tamper(folder, "DELETE FROM journal WHERE run = 3")
        return take_part(name, spec, folder, kind)

    monkeypatch.setattr(samples, "part", tampering)
    arguments = ["workflow", "--scenario", "linear", "--executions", "5", "--runs", "1"]
    figures = tmp_path / "figures.json"
    assert main([*arguments, "--json", str(figures)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "not reconciled" in said.err
    assert not figures.exists()


def test_a_sample_that_dies_is_reported_with_what_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unknown(*given: object) -> Spec:
        return Spec("no-such-thing", 5, 4, "process")

    monkeypatch.setattr("bench.cli.Spec", unknown)
    assert main(["workflow", "--scenario", "linear", "--runs", "1", "--dir", str(tmp_path)]) == 1
    assert "KeyError: 'no-such-thing'" in capsys.readouterr().err

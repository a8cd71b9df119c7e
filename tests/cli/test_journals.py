"""Runs are written to files and read back by commands."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Cli


def test_runs_are_exported_by_id_or_by_options_and_imported_into_a_new_store(
    cli: Cli, address: str, tmp_path: Path
) -> None:
    said = cli("export", "parked", "asking", "-o", "runs.jsonl", "--store", address)
    assert said.stdout == "wrote 3 runs to runs.jsonl\n"
    assert [path.name for path in tmp_path.glob("runs*")] == ["runs.jsonl"]
    printed = cli("export", "--status", "failed", "--no-children", "--store", address)
    lines = [json.loads(line) for line in printed.stdout.splitlines()]
    assert [line["id"] for line in lines if line["line"] == "run"] == ["lost", "failed"]
    copy = tmp_path / "copy.db"
    taken = cli("import", "runs.jsonl", "--store", copy, "--actor", "ann", "--json")
    assert taken.json["imported"][:2] == ["parked", "asking"]
    assert {run["status"] for run in cli("runs", "--store", copy, "--json").json} == {"paused"}
    [audit] = cli("show", "parked", "--store", copy, "--json").json["audit"]
    assert (audit["action"], audit["actor"], audit["reason"]) == (
        "import", "ann", "from runs.jsonl",
    )  # fmt: skip
    again = cli("import", "runs.jsonl", "--store", copy)
    assert again.code == 1
    assert "run id 'parked' is taken" in again.stderr
    assert cli("resume", "parked", "--store", copy).stdout == "parked: parked\n"


def test_what_cannot_be_written_or_read_is_said_in_a_line(cli: Cli, store: Path) -> None:
    Path("good.jsonl").write_text("kept")
    answers = [
        cli("export", "nobody", "-o", "good.jsonl", "--store", store),
        cli("export", "parked", "-o", "no/such/folder.jsonl", "--store", store),
        cli("import", "missing.jsonl", "--store", store),
        cli("import", "good.jsonl", "--store", store),
    ]
    assert [one.code for one in answers] == [1, 1, 1, 1]
    for one, why in zip(
        answers,
        ("nobody", "cannot write no/such", "cannot read missing", "good.jsonl, line 1"),
        strict=True,
    ):
        assert why in one.stderr
        assert one.stderr.count("\n") == 1
    assert Path("good.jsonl").read_text() == "kept"
    assert cli("export", "parked", "--name", "x", "--store", store).code == 2

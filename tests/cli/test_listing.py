"""`runs`, `workers`, `doctor` and `prune`."""

from __future__ import annotations

import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.conftest import RUNS, Cli

RUN_KEYS = {
    "id", "kind", "name", "version", "queue", "status", "rollback", "waiting", "attempts",
    "crashes", "priority", "created_at", "started_at", "ended_at", "due_at", "deadline_at",
    "parent_id", "has_code", "error", "key", "generation", "code",
}  # fmt: skip


@pytest.mark.parametrize("status", RUNS)
def test_runs_are_found_by_their_status(cli: Cli, address: str, status: str) -> None:
    found = cli("runs", "--store", address, "--status", status, "--json").json
    assert status in [run["id"] for run in found]
    assert {run["status"] for run in found} == {status}
    [run] = [run for run in found if run["id"] == status]
    assert run["name"] == RUNS[status]
    assert set(run) == RUN_KEYS


def test_several_statuses_give_the_runs_of_each(cli: Cli, address: str) -> None:
    found = cli("runs", "--store", address, "--status", "held", "--status", "stuck", "--json").json
    assert {run["id"] for run in found} == {"held", "stuck"}


def test_runs_without_code_are_found_when_no_worker_lives(cli: Cli, address: str) -> None:
    found = cli("runs", "--store", address, "--status", "no_code", "--json").json
    assert {"ready", "scheduled", "parked"} <= {run["id"] for run in found}
    assert not {"completed", "failed"} & {run["id"] for run in found}


def test_runs_are_listed_newest_first_and_by_pages(cli: Cli, address: str) -> None:
    everything = [run["id"] for run in cli("runs", "--store", address, "--json").json]
    first = cli("runs", "--store", address, "--limit", "3", "--json")
    pages = [run["id"] for run in first.json]
    assert first.stderr == ""
    while page := cli(
        "runs", "--store", address, "--limit", 3, "--after", pages[-1], "--json"
    ).json:
        pages += [run["id"] for run in page]
    assert everything[0] == "scheduled"
    assert everything[-1] == "parked"
    assert pages == everything


def test_a_full_page_says_how_to_get_the_next(cli: Cli, address: str) -> None:
    answer = cli("runs", "--store", address, "--limit", "2")
    assert answer.stderr == "there may be more: --after ready\n"
    assert "shop_note" in answer.stdout


def test_runs_are_found_by_name_queue_and_parent(cli: Cli, address: str) -> None:
    def ids(*filters: str) -> set[str]:
        return {run["id"] for run in cli("runs", "--store", address, "--json", *filters).json}

    assert ids("--name", "shop_approve") == {"parked", "cancelled", "asking/0"}
    assert ids("--queue", "later") == {"completed/1"}
    assert ids("--parent", "asking") == {"asking/0"}
    assert ids("--name", "nobody") == set()


def test_times_are_iso_with_their_zone_in_json_and_local_in_tables(
    cli: Cli, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = cli("runs", "--store", address, "--name", "shop_hold", "--json").json[0]
    created = datetime.fromisoformat(found["created_at"])
    assert created.utcoffset() is not None
    local = created.astimezone().replace(tzinfo=None).isoformat(" ", "milliseconds")
    assert local in cli("runs", "--store", address, "--name", "shop_hold").stdout


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_a_time_beyond_all_calendars_breaks_no_table(
    cli: Cli, store: Path, address: str, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    with sqlite3.connect(store) as db:
        db.execute("UPDATE runs SET due = 1e15 WHERE id = 'scheduled'")
    db.close()
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert "9999-12-31" in cli("runs", "--store", address).stdout
    finally:
        monkeypatch.undo()
        time.tzset()


def test_the_table_says_what_a_run_waits_for_and_why_it_failed(cli: Cli, address: str) -> None:
    lines = {line.split()[0]: line for line in cli("runs", "--store", address).stdout.splitlines()}
    assert "waits for signal approval" in lines["parked"]
    assert "Declined: the card of o-1" in lines["failed"]
    assert "rollback incomplete; Declined" in lines["lost"]
    assert "NotDurable" in lines["stuck"]
    assert "sold out" in lines["cancelled"]
    assert "due 20" in lines["scheduled"]
    assert "no live worker has its code" in lines["ready"]


def test_an_empty_listing_says_so(cli: Cli, address: str) -> None:
    assert cli("runs", "--store", address, "--name", "nobody").stdout == "no runs\n"
    assert cli("workers", "--store", address).stdout == "no workers\n"
    assert cli("workers", "--store", address, "--json").json == []


def test_the_store_may_be_named_by_the_environment(
    cli: Cli, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPWELL_STORE", address)
    assert cli("runs", "--status", "held", "--json").json[0]["id"] == "held"


def test_the_store_may_be_named_by_its_url(cli: Cli, store: Path) -> None:
    found = cli("runs", "--store", f"sqlite:///{store}", "--status", "held", "--json").json
    assert found[0]["id"] == "held"


def test_doctor_finds_nothing_in_a_sound_store(cli: Cli, address: str) -> None:
    said = cli("doctor", "--store", address)
    assert said.stdout == "sound: no invariant is broken\n"
    assert "1 stuck: stepwell runs --status stuck\n" in said.stderr
    assert "without code in a live worker: stepwell runs --status no_code\n" in said.stderr
    assert cli("doctor", "--store", address, "--json").json == []


def test_doctor_names_what_is_broken_and_exits_with_3(cli: Cli, store: Path, address: str) -> None:
    with sqlite3.connect(store) as db:
        db.execute("UPDATE runs SET status = 3, due = NULL, waiting = '' WHERE id = 'ready'")
    db.close()
    told = cli("doctor", "--store", address)
    assert told.code == 3
    assert "ready" in told.stdout
    listed = cli("doctor", "--store", address, "--json")
    assert listed.code == 3
    assert '"run_id": "ready"' in listed.stdout


def test_prune_deletes_ended_runs_and_says_how_many(cli: Cli, address: str) -> None:
    ended = [run["id"] for run in cli("runs", "--store", address, "--json").json if run["ended_at"]]
    assert cli("prune", "--store", address, "--older-than", "2w").stdout == "deleted 0 runs\n"
    gone = cli("prune", "--store", address, "--keep", "1", "--json").json
    left = {run["id"] for run in cli("runs", "--store", address, "--json").json}
    assert gone == {"deleted": len(set(ended) - left)}
    assert gone["deleted"] >= 1
    assert "held" in left


def test_prune_chooses_by_name_and_status(cli: Cli, address: str) -> None:
    options = ("prune", "--store", address, "--older-than", "0s")
    assert cli(*options, "--name", "shop_hold").stdout == "deleted 0 runs\n"
    cancelled = cli(*options, "--name", "shop_approve", "--status", "cancelled")
    assert cancelled.stdout == "deleted 1 run\n"
    refused = cli(*options, "--status", "parked")
    assert refused.code == 2
    assert "'parked' is not one of completed, failed" in refused.stderr


ARCHIVING = """
from asyncio import to_thread
from collections.abc import Sequence
from pathlib import Path
from stepwell import ArchivedRun, Stepwell

async def archive(runs: Sequence[ArchivedRun]) -> None:
    [run] = runs
    await to_thread(Path("archive.jsonl").write_bytes, run.document)

app = Stepwell("elsewhere.db", archive=archive)
"""


def test_prune_archives_by_the_app_of_a_module(cli: Cli, address: str, tmp_path: Path) -> None:
    (tmp_path / "shop_archive.py").write_text(ARCHIVING)
    options = ("prune", "--module", "shop_archive:app", "--older-than", "0s")
    gone = cli(*options, "--store", address, "--status", "cancelled", "--json").json
    assert gone == {"deleted": 1}
    imported = cli("import", "archive.jsonl", "--store", "another.db", "--json").json
    assert imported == {"imported": ["cancelled"]}
    without = cli("prune", "--older-than", "0s")
    assert (without.code, "Missing option '--store'" in without.stderr) == (2, True)


@pytest.mark.parametrize("span", ["soon", "-1d", "1y", ""])
def test_prune_refuses_a_span_that_is_none(cli: Cli, address: str, span: str) -> None:
    answer = cli("prune", "--store", address, f"--older-than={span}")
    assert answer.code == 2
    assert "write 90, 90s, 15m, 12h, 30d or 2w" in answer.stderr


def test_prune_without_a_limit_deletes_nothing(cli: Cli, address: str) -> None:
    answer = cli("prune", "--store", address)
    assert answer.code == 2
    assert "--older-than or --keep" in answer.stderr
    assert datetime.now(UTC) > datetime.fromisoformat(
        cli("show", "completed", "--store", address, "--json").json["ended_at"]
    )

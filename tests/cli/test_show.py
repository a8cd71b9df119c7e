"""`show`: everything that the store knows of a run."""

from __future__ import annotations

from typing import Any

from tests.cli.conftest import Cli

JOURNAL_KEYS = {
    "seq", "path", "kind", "name", "outcome", "undo", "attempt", "started_at", "at", "value",
    "failure", "voided",
}  # fmt: skip


def test_a_completed_run_shows_arguments_result_and_every_step(cli: Cli, address: str) -> None:
    run = cli("show", "completed", "--store", address, "--json").json
    assert run["status"] == "completed"
    assert run["arguments"] == {
        "positional": [{"id": "o-1", "total": "9.50", "due": "2030-01-31"}],
        "named": {},
    }
    assert run["result"] == "9.50"
    assert run["failure"] is None
    assert [set(one) for one in run["journal"]] == [JOURNAL_KEYS] * 3
    assert [(one["path"], one["kind"], one["name"], one["value"]) for one in run["journal"]] == [
        ("0.0.0", "step", "reserve", "shelf of o-1"),
        ("0.1.0", "step", "reserve", "shelf of o-1"),
        ("1", "started", "shop_note", "completed/1"),
    ]
    assert [child["id"] for child in run["children"]] == ["completed/1"]


def test_a_rolled_back_run_shows_its_failure_and_its_undos(cli: Cli, address: str) -> None:
    run = cli("show", "failed", "--store", address, "--json").json
    assert run["rollback"] == "complete"
    assert [(one["kind"], one["name"], one["outcome"], one["undo"]) for one in steps(run)] == [
        ("step", "reserve", "ok", False),
        ("step", "pay", "failed", False),
        ("step", "release", "ok", True),
    ]
    failure = steps(run)[1]["failure"]
    assert (failure["type"], failure["message"]) == ("Declined", "the card of o-1")
    assert failure["module"] == "tests.cli.shop"
    assert failure["frames"][-1]["function"] == "pay"
    assert run["failure"]["type"] == "Declined"
    table = cli("show", "failed", "--store", address).stdout
    assert "failed, rollback complete" in table
    assert "undo: step release" in table


def test_an_incomplete_rollback_shows_both_errors(cli: Cli, address: str) -> None:
    run = cli("show", "lost", "--store", address, "--json").json
    assert run["rollback"] == "incomplete"
    assert [one["failure"]["type"] for one in steps(run)] == ["Declined", "OSError"]
    assert any("OSError" in note for note in run["failure"]["notes"])


def test_a_parked_run_shows_what_it_waits_for_and_until_when(cli: Cli, address: str) -> None:
    run = cli("show", "parked", "--store", address, "--json").json
    assert run["waiting"] == "signal approval"
    [wait] = run["open"]
    assert (wait["path"], wait["kind"], wait["name"]) == ("0", "wait", "approval")
    assert wait["due_at"] == run["due_at"] is not None
    table = cli("show", "parked", "--store", address).stdout
    assert "Open operations" in table
    assert "signal approval" in table


def test_a_retried_step_shows_its_failures_last_error_and_next_attempt(
    cli: Cli, address: str
) -> None:
    run = cli("show", "retrying", "--store", address, "--json").json
    assert run["arguments"] == {"positional": ["34"], "named": {"loud": True}}
    [retry] = run["open"]
    assert (retry["kind"], retry["name"], retry["failures"]) == ("retry", "phone", 1)
    assert retry["failure"]["message"] == "34 is busy"
    assert retry["due_at"] is not None
    assert "OSError: 34 is busy" in cli("show", "retrying", "--store", address).stdout


def test_an_undo_that_is_tried_again_is_shown_as_one(cli: Cli, address: str) -> None:
    run = cli("show", "rolling_back", "--store", address, "--json").json
    assert run["status"] == "rolling_back"
    assert [one["undo"] for one in run["open"]] == [True]
    assert "undo: retry of step phone" in cli("show", "rolling_back", "--store", address).stdout


def test_a_parent_shows_its_open_child_and_the_child_its_parent(cli: Cli, address: str) -> None:
    parent = cli("show", "asking", "--store", address, "--json").json
    assert [(one["kind"], one["run_id"]) for one in parent["open"]] == [("child", "asking/0")]
    assert [(one["parent_path"], one["id"]) for one in parent["children"]] == [("0", "asking/0")]
    child = cli("show", "asking/0", "--store", address, "--json").json
    assert (child["parent_id"], child["parent_path"]) == ("asking", "0")
    assert "asking at 0" in cli("show", "asking/0", "--store", address).stdout


def test_a_signal_that_was_not_taken_is_shown(cli: Cli, address: str) -> None:
    cli("signal", "parked", "colour", "--json", '{"shade": ["red"]}', "--store", address)
    [unread] = cli("show", "parked", "--store", address, "--json").json["unread"]
    assert (unread["kind"], unread["name"]) == ("signal", "colour")
    assert unread["value"] == {"shade": ["red"]}
    table = cli("show", "parked", "--store", address).stdout
    assert "Sent to it and not taken" in table
    assert '{"shade": ["red"]}' in table


def test_what_operators_asked_for_is_shown(cli: Cli, address: str) -> None:
    run = cli("show", "cancelled", "--store", address, "--json").json
    assert [(one["action"], one["actor"]) for one in run["audit"]] == [("cancel", "ann")]
    assert run["error"] == "sold out"
    table = cli("show", "cancelled", "--store", address).stdout
    assert "Asked by operators" in table
    assert "ann" in table


def test_a_stuck_run_says_why(cli: Cli, address: str) -> None:
    run = cli("show", "stuck", "--store", address, "--json").json
    assert run["failure"]["type"] == "NotDurable"
    assert "NotDurable" in cli("show", "stuck", "--store", address).stdout


def test_long_values_are_shortened_unless_full(cli: Cli, address: str) -> None:
    long = "x" * 300
    cli("signal", "parked", "note", "--json", f'"{long}"', "--store", address)
    assert long not in cli("show", "parked", "--store", address).stdout
    assert long in cli("show", "parked", "--store", address, "--full").stdout


def test_full_shows_the_traceback(cli: Cli, address: str) -> None:
    assert "Traceback" not in cli("show", "failed", "--store", address).stdout
    told = cli("show", "failed", "--store", address, "--full").stdout
    assert "Traceback, outermost call first:" in told
    assert "shop.py:" in told


def test_what_is_stored_cannot_steer_the_terminal(cli: Cli, address: str) -> None:
    nasty = "\\u001b[2J\\r\\n\\u202ebad [red]x[/red]"
    cli("signal", "parked", "note", "--json", f'"{nasty}"', "--store", address)
    told = cli("show", "parked", "--store", address).stdout
    assert "\x1b" not in told
    assert "\u202e" not in told
    assert "[red]x[/red]" in told


def steps(run: Any) -> list[Any]:
    return [one for one in run["journal"] if one["kind"] == "step"]

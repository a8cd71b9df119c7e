"""`signal`, `cancel` and what operators ask of runs that rest."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli

MODULE = "tests.cli.shop"


def test_a_signal_is_made_to_fit_the_type_that_the_module_gives_it(cli: Cli, address: str) -> None:
    answer = cli(
        "signal", "parked", "approval", "--json", '{"approved": "yes"}', "--module", MODULE,
        "--store", address,
    )  # fmt: skip
    assert answer.json == {"id": "parked", "signal": "approval"}
    [unread] = cli("show", "parked", "--store", address, "--json").json["unread"]
    assert unread["value"] == {"approved": True}


def test_a_signal_that_does_not_fit_is_refused_and_not_sent(cli: Cli, address: str) -> None:
    answer = cli(
        "signal", "parked", "approval", "--json", '{"approved": "perhaps"}', "--module", MODULE,
        "--store", address,
    )  # fmt: skip
    assert answer.code == 1
    assert "signal 'approval', at ['approved']" in answer.stderr
    assert cli("show", "parked", "--store", address, "--json").json["unread"] == []


def test_a_signal_needs_no_value(cli: Cli, address: str) -> None:
    assert (
        cli("signal", "parked", "go", "--store", address).stdout == "parked: signal go is stored\n"
    )
    [unread] = cli("show", "parked", "--store", address, "--json").json["unread"]
    assert unread["value"] is None


def test_a_signal_that_the_module_does_not_define_is_refused(cli: Cli, address: str) -> None:
    answer = cli("signal", "parked", "aproval", "--module", MODULE, "--store", address)
    assert answer.code == 1
    assert "has no Signal named 'aproval'; it has: approval" in answer.stderr


def test_a_signal_to_an_ended_run_is_refused(cli: Cli, address: str) -> None:
    answer = cli("signal", "completed", "approval", "--store", address)
    assert answer.code == 1
    assert "has ended (completed)" in answer.stderr


def test_a_run_that_was_never_executed_is_cancelled_at_once(cli: Cli, address: str) -> None:
    asked = cli("cancel", "scheduled", "--store", address, "--reason", "too late", "--json")
    assert asked.json == {"id": "scheduled", "status": "cancelled"}
    run = cli("show", "scheduled", "--store", address, "--json").json
    assert (run["status"], run["error"]) == ("cancelled", "too late")
    assert [(one["action"], one["reason"]) for one in run["audit"]] == [("cancel", "too late")]


def test_a_parked_run_is_asked_to_cancel(cli: Cli, address: str) -> None:
    assert cli("cancel", "parked", "--store", address).stdout == "parked: ready\n"
    [told] = cli("show", "parked", "--store", address, "--json").json["unread"]
    assert told["kind"] == "cancel"


def test_an_ended_run_is_not_cancelled(cli: Cli, address: str) -> None:
    answer = cli("cancel", "completed", "--store", address)
    assert answer.code == 1
    assert "has ended (completed)" in answer.stderr


@pytest.mark.parametrize(
    ("command", "id", "action"),
    [
        ("retry", "held", "retry"),
        ("rollback", "held", "roll_back"),
        ("resume-rollback", "lost", "resume_rollback"),
        ("resume", "stuck", "resume"),
    ],
)
def test_a_request_makes_the_run_ready_and_is_audited(
    cli: Cli, address: str, command: str, id: str, action: str
) -> None:
    answer = cli(
        command, id, "--store", address, "--reason", "it is fixed", "--actor", "bob", "--json"
    )
    assert answer.json == {"id": id, "status": "ready"}
    audit = cli("show", id, "--store", address, "--json").json["audit"]
    assert [(one["action"], one["actor"], one["reason"]) for one in audit] == [
        (action, "bob", "it is fixed")
    ]


def test_the_audit_names_who_is_logged_in(
    cli: Cli, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "carol")
    assert cli("retry", "held", "--store", address).stdout == "held: ready\n"
    [row] = cli("show", "held", "--store", address, "--json").json["audit"]
    assert row["actor"] == "carol"


@pytest.mark.parametrize("command", ["retry", "rollback", "resume-rollback", "resume"])
def test_a_request_that_does_not_fit_the_status_is_refused_and_changes_nothing(
    cli: Cli, address: str, command: str
) -> None:
    before = cli("show", "completed", "--store", address, "--json").json
    answer = cli(command, "completed", "--store", address)
    assert answer.code == 1
    assert "run 'completed' is completed" in answer.stderr
    assert cli("show", "completed", "--store", address, "--json").json == before

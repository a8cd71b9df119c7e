"""`terminate`, `pause`, `resume`, and what is done to all runs that fit."""

from __future__ import annotations

from tests.cli.conftest import Cli

MODULE = "tests.cli.shop"


def test_a_terminated_run_has_who_and_why_and_it_is_said_that_no_undo_ran(
    cli: Cli, address: str
) -> None:
    said = cli("terminate", "parked", "--reason", "broken", "--actor", "ann", "--store", address)
    assert said.stdout == "parked: terminated; undos that it had registered have not run\n"
    run = cli("show", "parked", "--store", address, "--json").json
    assert (run["status"], run["error"]) == ("terminated", "broken")
    [act] = run["audit"]
    assert (act["action"], act["actor"], act["reason"]) == ("terminate", "ann", "broken")
    assert "terminate" in cli("show", "parked", "--store", address).stdout
    assert "has ended (completed)" in cli("terminate", "completed", "--store", address).stderr


def test_a_paused_run_goes_on_where_it_was(cli: Cli, address: str) -> None:
    assert cli("pause", "parked", "--store", address).stdout == "parked: paused\n"
    assert cli("show", "parked", "--store", address, "--json").json["status"] == "paused"
    assert cli("doctor", "--store", address).code == 0
    assert cli("resume", "parked", "--store", address).stdout == "parked: parked\n"


def test_all_that_fit_are_steered_after_a_confirmation(cli: Cli, address: str) -> None:
    all_parked = ("pause", "--all", "--status", "parked", "--store", address)
    count = cli(*all_parked, "--dry-run", "--json").json["matched"]
    assert count > 0
    assert cli(*all_parked, "--dry-run").stdout == f"would pause {count} runs\n"
    assert cli(*all_parked).code == 1  # nobody says yes
    assert cli("runs", "--status", "paused", "--store", address, "--json").json == []
    done = cli(*all_parked, "--yes", "--json", "--reason", "why").json
    assert (done["matched"], done["changed"], done["refused"]) == (count, {"paused": count}, 0)
    again = cli(
        "resume",
        "--all",
        "--status",
        "paused",
        "--status",
        "completed",
        "--yes",
        "--store",
        address,
    )
    assert "refused" in again.stdout
    assert "only a stuck or paused run" in again.stderr


def test_it_is_one_run_or_many(cli: Cli, address: str) -> None:
    for wrong in (
        ("cancel",),
        ("cancel", "parked", "--all"),
        ("pause", "parked", "--workflow", "x"),
    ):
        assert cli(*wrong, "--store", address).code == 2


def test_a_workflow_is_paused_by_name(cli: Cli, address: str) -> None:
    said = cli("pause", "--workflow", "checkout", "--reason", "why", "--store", address)
    assert said.stdout == "checkout: paused\n"
    [one] = cli("paused", "--store", address, "--json").json
    assert set(one) == {"name", "paused_at", "actor", "reason"}
    assert (one["name"], one["reason"]) == ("checkout", "why")
    assert "checkout" in cli("paused", "--store", address).stdout
    assert cli("resume", "--workflow", "checkout", "--store", address).stdout == "checkout: open\n"
    assert cli("paused", "--store", address).stdout == "no workflow is paused\n"


def test_a_run_is_forked_from_a_step(cli: Cli, address: str) -> None:
    run = cli("show", "completed", "--store", address, "--json").json
    step = next(record for record in run["journal"] if record["path"])
    said = cli(
        "fork", "completed", "--from", step["path"], "--id", "fork", "--store", address, "--json"
    )
    assert said.json == {"id": "fork", "forked_from": "completed"}
    assert len(cli("show", "fork", "--store", address, "--json").json["journal"]) == step["seq"]
    refused = cli("fork", "completed", "--from", "nothing", "--store", address)
    assert refused.code == 1
    assert "has recorded no step 'nothing'" in refused.stderr


def test_a_fork_has_arguments_that_fit_the_code_of_its_module(cli: Cli, address: str) -> None:
    fork = ("fork", "completed", "--from", "shop_note", "--id", "fork", "--store", address)
    order = '{"id": "43", "total": "1.25", "due": "2030-01-31"}'
    for wrong, why in (
        (("--changes", order), "--changes needs --module"),
        (("--module", MODULE, "--changes", "[1]"), "takes an object"),
        (("--module", MODULE, "--changes", '{"order": 3}'), "argument 'order' of shop_sell"),
        (("--module", MODULE, "--changes", '{"oder": 3}'), "which is no argument of shop_sell"),
    ):
        refused = cli(*fork, *wrong)
        assert refused.code != 0
        assert why in refused.stderr
    made = cli(*fork, "--module", MODULE, "--changes", f'{{"order": {order}}}')
    assert made.stdout == "fork\n"
    [shown] = cli("show", "fork", "--store", address, "--json").json["arguments"]["positional"]
    assert (shown["id"], shown["total"]) == ("43", "1.25")

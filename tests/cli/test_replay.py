"""Code is tried on stored journals by a command, whose exit code CI can take."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Cli
from tests.cli.test_reference import keys

SHOP = "tests.cli.shop"


def test_runs_that_would_not_go_on_are_listed_and_fail_the_command(cli: Cli, address: str) -> None:
    said = cli("replay", SHOP, "--store", address)
    assert said.code == 3
    assert said.stdout.startswith("stuck (shop_jam v1, stuck): not durable\n  workflow code ")
    assert said.stdout.endswith(" runs replayed: 1 not durable, 6 ok\n")
    fine = cli("replay", SHOP, "--store", address, "--status", "parked", "--status", "held")
    assert fine.code == 0
    assert fine.stdout.endswith("replayed: 5 ok\n")
    assert cli("replay", SHOP, "--store", address, "--name", "shop_hold").code == 0
    assert cli("replay", SHOP, "--store", address, "--since", "2100-01-01").stdout == (
        "0 runs replayed: none\n"
    )


def test_missing_code_fails_the_command_unless_it_is_allowed(cli: Cli, store: Path) -> None:
    Path("empty.py").write_text("from stepwell import Stepwell\napp = Stepwell('x.db', include=[])")
    asked = ("replay", "empty", "--store", store, "--name", "shop_hold")
    missing = cli(*asked)
    assert missing.code == 3
    assert "no workflow 'shop_hold' of version 1 in this code" in missing.stdout
    allowed = cli(*asked, "--allow-no-code")
    assert (allowed.code, allowed.stdout) == (0, "1 run replayed: 1 no code\n")


def test_files_are_replayed_without_a_store_and_shown_as_json(cli: Cli, store: Path) -> None:
    cli("export", "-o", "runs.jsonl", "--store", store)
    answer = cli("replay", SHOP, "--file", "runs.jsonl", "--json")
    assert answer.code == 3
    shown = json.loads(answer.stdout)
    assert set(shown) == keys("A replay")
    assert shown["counts"]["not_durable"] == 1
    [bad] = shown["failed"]
    assert set(bad) == keys("A replayed run")
    refused = cli("replay", SHOP, "--file", "missing.jsonl")
    assert (refused.code, "cannot read missing.jsonl" in refused.stderr) == (1, True)
    assert cli("replay", SHOP, "--file", "runs.jsonl", "--name", "x").code == 1
    assert cli("replay", SHOP, "--store", "missing.db").code == 1

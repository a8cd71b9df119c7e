"""docs/reference/cli.md names every command, option and JSON key that there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from stepwell.cli._root import app
from stepwell.cli._shapes import finding_shape, worker_shape
from stepwell_queue.contract import Finding, WorkerInfo
from tests.cli.conftest import RUNS, Cli
from tests.cli.served import ROOT

PAGE = (ROOT / "docs/reference/cli.md").read_text()
# Any: typer hands out click's objects, which in newer versions are its own and untyped.
GROUP: Any = typer.main.get_command(app)


def commands(group: Any, before: str = "") -> dict[str, Any]:
    """Return all commands by what is typed for them."""
    found: dict[str, Any] = {}
    for name, one in group.commands.items():
        inner = hasattr(one, "commands")
        found |= commands(one, f"{before}{name} ") if inner else {f"{before}{name}": one}
    return found


COMMANDS = commands(GROUP)


def section(heading: str) -> str:
    found = re.search(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^## |^### |\Z)", PAGE, re.MULTILINE | re.DOTALL
    )
    assert found is not None, f"docs/reference/cli.md has no section {heading!r}"
    return found[1]


def options(command: Any) -> set[str]:
    flags = {flag for one in command.params for flag in one.opts if one.param_type_name == "option"}
    return {flag for flag in flags if flag.startswith("--")} - {"--help"}


def test_the_page_has_a_section_for_each_command_and_no_other() -> None:
    assert set(re.findall(r"^## stepwell (\S.*)$", PAGE, re.MULTILINE)) == set(COMMANDS)
    for name in options(GROUP):
        assert f"stepwell {name}" in PAGE


@pytest.mark.parametrize("name", COMMANDS)
def test_the_section_lists_each_option_and_no_other(name: str) -> None:
    listed = re.findall(r"^\| `(--[\w-]+)", section(f"stepwell {name}"), re.MULTILINE)
    assert set(listed) == options(COMMANDS[name])
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_section_and_the_help_name_each_argument(name: str) -> None:
    for one in COMMANDS[name].params:
        if one.param_type_name == "argument":
            assert f"`stepwell {name} " in section(f"stepwell {name}")
            assert str(one.metavar) in section(f"stepwell {name}")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_explains_itself(name: str) -> None:
    assert COMMANDS[name].help
    for one in COMMANDS[name].params:
        assert one.help, f"{name} {one.name} has no help"


def keys(heading: str) -> set[str]:
    rows = re.findall(r"^\| (`.*?) \|", section(heading), re.MULTILINE)
    return {key for row in rows for key in re.findall(r"`(\w+)`", row)}


def test_the_keys_of_a_run_are_listed(cli: Cli, store: Path) -> None:
    for run in cli("runs", "--store", store, "--json").json:
        assert set(run) == keys("A run")


def test_the_keys_of_a_history_and_its_parts_are_listed(cli: Cli, store: Path) -> None:
    cli("signal", "parked", "go", "--store", store)
    histories = [cli("show", id, "--store", store, "--json").json for id in (*RUNS, "asking")]
    parts = {"A record": "journal", "An open operation": "open"}
    for heading, key in parts.items():
        found = [part for history in histories for part in history[key]]
        assert found
        assert all(set(part) == keys(heading) for part in found)
    for history in histories:
        assert set(history) == keys("A run") | keys("A history")
        for child in history["children"]:
            assert set(child) == keys("A run") | {"parent_path"}
    failures = [history["failure"] for history in histories if history["failure"]]
    assert failures
    assert all(set(failure) == keys("A failure") for failure in failures)
    for key in ("unread", "audit"):
        [row] = re.findall(rf"^\| `{key}` \| (.*) \|$", section("A history"), re.MULTILINE)
        found = [part for history in histories for part in history[key]]
        assert found
        assert all(f"`{name}`" in row for part in found for name in part)


def test_the_keys_of_workers_findings_starts_and_answers_are_listed(cli: Cli, store: Path) -> None:
    worker = WorkerInfo(1, "w", "host", 1, 0.0, ["default"], ["flow"], True, 0)
    assert set(worker_shape(worker)) == keys("A worker")
    assert set(finding_shape(Finding("rule", None, ""))) == keys("A finding")
    begun = cli("start", "tests.cli.shop:shop_jam", "--json", "[]", "--store", store).json
    assert set(begun) == keys("A start")
    assert set(cli("cancel", begun["id"], "--store", store, "--json").json) == keys("An answer")


def test_the_keys_of_queues_are_listed(cli: Cli, store: Path) -> None:
    for queue in cli("queues", "--store", store, "--json").json:
        assert set(queue) == keys("A queue")
        [row] = re.findall(r"^\| `settings` \| (.*) \|$", section("A queue"), re.MULTILINE)
        assert all(f"`{name}`" in row for name in queue["settings"])
        assert all(set(one) == {"window", "ended", "failed"} for one in queue["throughput"])
    changed = cli("queue", "pause", "default", "--store", store, "--json").json
    assert set(changed) == keys("A change of a queue")

"""What is refused is one clear line on stderr, a non-zero exit code, and no change."""

from __future__ import annotations

import socket
import sqlite3
from pathlib import Path

import pytest
import structlog

from tests.cli.conftest import Cli

CLIENT_COMMANDS = [
    ["runs"], ["show", "x"], ["signal", "x", "go"], ["cancel", "x"], ["retry", "x"],
    ["rollback", "x"], ["resume-rollback", "x"], ["resume", "x"], ["prune", "--keep", "1"],
    ["workers"], ["doctor"],
]  # fmt: skip
SHOP = "tests.cli.shop"


@pytest.mark.parametrize("command", CLIENT_COMMANDS, ids=lambda command: command[0])
def test_a_store_that_is_not_there_is_refused_and_not_made(
    cli: Cli, tmp_path: Path, command: list[str]
) -> None:
    answer = cli(*command, "--store", "missing.db")
    assert answer.code == 1
    assert answer.stdout == ""
    assert answer.stderr.count("\n") == 1
    assert f"no store at {tmp_path / 'missing.db'}" in answer.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", CLIENT_COMMANDS, ids=lambda command: command[0])
def test_a_command_without_a_store_says_how_to_name_it(cli: Cli, command: list[str]) -> None:
    answer = cli(*command)
    assert answer.code == 2
    assert "Missing option '--store' (env var: 'STEPWELL_STORE')" in answer.stderr


@pytest.mark.parametrize(
    "command", [command for command in CLIENT_COMMANDS if "x" in command], ids=lambda one: one[0]
)
def test_an_unknown_run_is_refused(cli: Cli, address: str, command: list[str]) -> None:
    answer = cli(*command, "--store", address)
    assert answer.code == 1
    assert answer.stderr.count("\n") == 1
    assert answer.stderr.startswith("stepwell: no run has the id 'x'")


@pytest.mark.parametrize("command", CLIENT_COMMANDS, ids=lambda command: command[0])
def test_a_server_that_is_not_there_is_named(cli: Cli, command: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"tcp://127.0.0.1:{other.getsockname()[1]}"
    answer = cli(*command, "--store", address)
    assert (answer.code, answer.stdout) == (1, "")
    assert answer.stderr.count("\n") == 1
    assert answer.stderr.startswith(f"stepwell: cannot connect to {address} (")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("tcp://", "is no address of a server: write tcp://host:7878"),
        ("tcp://host:99999", "the port is no number up to 65535"),
        ("tcp://me:secret@host", "an address holds no secrets; give the token by"),
        ("tls://host/path", "is no address of a server: write tls://host:7878"),
    ],
)
def test_an_address_that_is_none_is_refused(cli: Cli, address: str, message: str) -> None:
    for command in (["runs"], ["ping"], ["worker", SHOP]):
        answer = cli(*command, "--store", address)
        assert (answer.code, answer.stdout) == (1, "")
        assert message in answer.stderr
        assert "secret@" not in answer.stderr


@pytest.mark.parametrize("command", [["runs"], ["worker", SHOP], ["start", f"{SHOP}:shop_jam"]])
def test_what_the_environment_says_of_access_is_refused_if_it_cannot_be(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("STEPWELL_TOKEN_FILE", "nowhere")
    answer = cli(*command, "--store", "tcp://127.0.0.1")
    assert (answer.code, answer.stdout) == (1, "")
    assert "stepwell: the token file nowhere cannot be read" in answer.stderr


def test_an_empty_file_is_not_made_into_a_store(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "empty.db"
    file.touch()
    answer = cli("runs", "--store", file)
    assert answer.code == 1
    assert "is an empty file, not a store" in answer.stderr
    assert file.stat().st_size == 0


def test_another_programs_database_is_refused(cli: Cli, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as db:
        db.execute("CREATE TABLE mine (it)")
    db.close()
    answer = cli("runs", "--store", tmp_path / "other.db")
    assert answer.code == 1
    assert "is a database of another program" in answer.stderr


def test_a_file_that_is_no_database_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("milk, eggs\n" * 100)
    answer = cli("runs", "--store", tmp_path / "notes.txt")
    assert answer.code == 1
    assert "is not an SQLite database" in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["runs", "--store", "gopher://x"], 1, "--store 'gopher://x': unknown address"),
        (["runs", "--status", "sad"], 2, "'sad' is not one of scheduled, ready"),
        (["runs", "--limit", "0"], 2, "--limit"),
        (["runs", "--after", "nobody"], 1, "no run has the id 'nobody'"),
        (["signal", "parked", "go", "--json", "{"], 1, "--json '{' is no JSON"),
        (["signal", "parked", ""], 1, "signal= takes 1 to 255 printable characters"),
        (["start", "shop_sell"], 1, "Write MODULE:shop_sell or give --module"),
        (["start", f"{SHOP}:"], 1, "write MODULE:WORKFLOW"),
        (["start", "tests/cli/shop.py:shop_sell"], 1, "is a file: give the module's name"),
        (["start", "no_such_module:it"], 1, "no module 'no_such_module'"),
        (["start", "tests.cli.nothing:it"], 1, "no module 'tests.cli.nothing'"),
        (["start", f"{SHOP}:shop_sel"], 1, "has no workflow or task 'shop_sel'; it has: shop_app"),
        (["start", f"{SHOP}:reserve"], 1, "'reserve' is a step: a step runs in a workflow"),
        (["start", f"{SHOP}:shop_sell", "--json", "7"], 1, "as a list or an object"),
        (["start", f"{SHOP}:shop_sell", "--json", "[7"], 1, "'[7' is no JSON"),
        (["start", f"{SHOP}:shop_sell"], 1, "missing a required argument: 'order'"),
        (["start", f"{SHOP}:shop_knit", "--json", "[1, 2]"], 1, "too many positional arguments"),
        (["start", f"{SHOP}:shop_knit", "--json", '["a"]'], 1, "argument 'rows' of shop_knit"),
        (
            ["start", f"{SHOP}:shop_sell", "--json", '[{"id": "a", "total": 1, "due": "soon"}]'],
            1,
            "argument 'order' of shop_sell, at ['due']",
        ),
        (["start", f"{SHOP}:shop_jam", "--id", "a\0b"], 1, "a run id has 1 to 200 characters"),
        (["start", f"{SHOP}:shop_jam", "--priority", "x"], 2, "--priority"),
        (["start", f"{SHOP}:shop_jam", "--delay", "soon"], 2, "is no span"),
        (["start", "shop_jam", "--module", f"{SHOP}:nope"], 1, "there is no 'nope'"),
        (["start", "shop_jam", "--module", f"{SHOP}:ORDER"], 1, "is a Order, not a Stepwell"),
        (["worker", f"{SHOP}:nope"], 1, "there is no 'nope' in that module; its apps: app"),
        (["worker", f"{SHOP}:"], 1, "write MODULE or MODULE:app"),
        (["worker", "no_such_module"], 1, "no module 'no_such_module'"),
        (["worker", SHOP, "--queue", ""], 1, "queues= takes 1 to 255 printable characters"),
        (["worker", SHOP, "--concurrency", "0"], 2, "--concurrency"),
        (["worker", SHOP, "--log-level", "loud"], 2, "'loud' is not one of debug, info"),
    ],
)
def test_bad_input_is_refused(
    cli: Cli, store: Path, arguments: list[str], code: int, message: str
) -> None:
    given = arguments if "--store" in arguments else [*arguments, "--store", str(store)]
    before = cli("runs", "--store", store, "--json").json
    answer = cli(*given)
    assert answer.code == code
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr
    assert answer.stdout == ""
    if code == 1:
        refusal = answer.stderr.splitlines()[-1]
        assert refusal.startswith("stepwell: ")
    assert cli("runs", "--store", store, "--json").json == before


BROKEN = {
    "broken_import": ("import broken_part_that_is_missing", "ModuleNotFoundError: No module named"),
    "broken_call": ("x = 1\n\n\n1 / 0", "ZeroDivisionError: division by zero (/"),
    "broken_syntax": ("def", "SyntaxError: invalid syntax (broken_syntax.py, line 1)"),
    "broken_exit": ("import sys\nsys.exit(4)", "SystemExit: 4"),
    "no_app": ("x = 1", "has no Stepwell instance: give --store, or write"),
    "blocking": (
        "import stepwell\nit = stepwell.BlockingStepwell('a.db')",
        "it has a BlockingStepwell, which serves threads: give --store",
    ),
    "two_apps": (
        "import stepwell\na = stepwell.Stepwell('a.db')\nb = stepwell.Stepwell('b.db')",
        "has several apps: say which, two_apps:a or two_apps:b",
    ),
    "nothing_served": (
        "import stepwell\napp = stepwell.Stepwell('a.db', include=[__name__])",
        "defines no workflow or task: there is nothing to serve",
    ),
    "undecorated": (
        "import stepwell\n@stepwell.workflow\ndef plain(): pass",
        "DefinitionError: @workflow plain is a plain function",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_module_that_cannot_be_served_is_refused_in_one_line(
    cli: Cli, tmp_path: Path, name: str
) -> None:
    source, message = BROKEN[name]
    (tmp_path / f"{name}.py").write_text(source)
    answer = cli("worker", name)
    assert answer.code == 1
    assert answer.stderr.count("\n") == 1
    assert message in answer.stderr
    assert not list(tmp_path.glob("*.db"))


def test_a_value_whose_type_json_cannot_make_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "odd_types.py").write_text(
        "import stepwell\n"
        "class Thing: pass\n"
        "app = stepwell.Stepwell('a.db', include=[__name__])\n"
        "@stepwell.workflow\n"
        "async def odd_flow(thing: Thing) -> None: pass\n"
    )
    answer = cli("start", "odd_types:odd_flow", "--json", '[{"a": 1}]')
    assert answer.code == 1
    assert answer.stderr.count("\n") == 1
    assert answer.stderr.startswith("stepwell: argument 'thing' of odd_flow: ")
    assert not list(tmp_path.glob("*.db"))


def test_a_module_that_configures_its_logs_is_left_alone(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "own_logs.py").write_text(
        "import stepwell, structlog\n"
        "structlog.configure(processors=[structlog.processors.JSONRenderer()])\n"
        "app = stepwell.Stepwell('a.db', include=[__name__])\n"
        "@stepwell.workflow\n"
        "async def own_logs_flow() -> None: pass\n"
    )
    assert cli("start", "own_logs:own_logs_flow", "--store", tmp_path / "a.db").code == 0
    [processor] = structlog.get_config()["processors"]
    assert isinstance(processor, structlog.processors.JSONRenderer)

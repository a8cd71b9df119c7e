"""The settings of `stepwell server`: by flag, environment and file, in this order."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stepwell.cli._refusal import Refusal
from stepwell.cli._server import config_of
from stepwell.cli._server_settings import ServerSettings, read_settings
from stepwell_queue.tcp.server import ServerConfig
from tests.cli.served import serving_store, shell
from tests.cli.test_reference import COMMANDS, options, section

GIVEN = {
    "store": "given.db",
    "host": "127.0.0.2",
    "port": "1234",
    "durability": "process",
    "lease": "2.5",
    "token": "secret",
    "certificate": "pem",
    "key": "pem",
    "client_ca": "pem",
    "max_connections": "7",
    "max_in_flight": "8",
    "max_queued": "2MiB",
    "grace": "3",
    "log_level": "error",
}
READ = {
    **GIVEN,
    "port": 1234,
    "lease": 2.5,
    "token_file": None,
    "certificate": Path("pem"),
    "key": Path("pem"),
    "client_ca": Path("pem"),
    "max_connections": 7,
    "max_in_flight": 8,
    "max_queued": 2 * 1024 * 1024,
    "grace": 3.0,
}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("STEPWELL_"):
            monkeypatch.delenv(name)
    Path("pem").touch()
    Path("token").write_text("of the file\n")


def file_with(text: str) -> Path:
    file = Path("server.toml")
    file.write_text(text)
    return file


def test_every_field_can_be_given_in_every_way() -> None:
    fields = {field.name for field in dataclasses.fields(ServerConfig)}
    own = {"token_file", "grace", "log_level"}
    assert set(ServerSettings.model_fields) == fields | own == set(GIVEN) | {"token_file"}
    flags = {name.removeprefix("--").replace("-", "_") for name in options(COMMANDS["server"])}
    assert flags == (fields | own | {"config", "json"}) - {"token"}  # `ps` shows flags to all


def test_all_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in GIVEN.items():
        monkeypatch.setenv(f"STEPWELL_SERVER_{name.upper()}", value)
    assert read_settings({}, None).model_dump() == READ


def test_all_settings_come_from_the_file() -> None:
    numbers = ("port", "lease", "max_connections", "max_in_flight", "grace")
    lines = [
        f"{name} = {value}" if name in numbers else f'{name} = "{value}"'
        for name, value in GIVEN.items()
    ]
    assert read_settings({}, file_with("\n".join(lines))).model_dump() == READ


def test_what_is_not_given_is_as_the_server_has_it() -> None:
    settings = read_settings({"store": "a.db"}, None)
    assert config_of(settings) == ServerConfig(Path("a.db").absolute())
    assert (settings.grace, settings.log_level) == (10.0, "info")


def test_flags_go_before_the_environment_and_that_before_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STEPWELL_SERVER_PORT", "2")
    monkeypatch.setenv("STEPWELL_SERVER_LEASE", "2")
    file = file_with('store = "file.db"\nport = 3\nlease = 3\nmax_in_flight = 3\n')
    settings = read_settings({"port": 1}, file)
    assert (settings.port, settings.lease, settings.max_in_flight) == (1, 2.0, 3)
    assert settings.store == "file.db"


@pytest.mark.parametrize(
    ("flags", "environment", "text", "token"),
    [
        ({}, {}, 'token = "t"', "t"),
        ({}, {}, 'token_file = "token"', "of the file"),
        ({}, {"STEPWELL_TOKEN": "e"}, 'token = "t"', "e"),
        ({}, {"STEPWELL_TOKEN": "e"}, 'token_file = "token"', "e"),
        ({}, {"STEPWELL_TOKEN_FILE": "token"}, 'token = "t"', "of the file"),
        ({}, {"STEPWELL_TOKEN": "e", "STEPWELL_SERVER_TOKEN": "s"}, "", "s"),
        ({}, {"STEPWELL_TOKEN": "e", "STEPWELL_SERVER_TOKEN_FILE": "token"}, "", "of the file"),
        ({"token_file": "token"}, {"STEPWELL_TOKEN": "e"}, 'token = "t"', "of the file"),
        ({}, {"STEPWELL_TOKEN": ""}, "", None),
    ],
)
def test_the_token_is_one_setting_in_whichever_form_it_comes(
    monkeypatch: pytest.MonkeyPatch,
    flags: dict[str, object],
    environment: dict[str, str],
    text: str,
    token: str | None,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = read_settings({"store": "a.db", **flags}, file_with(text))
    assert config_of(settings).token == token


def refusal(flags: dict[str, object], file: Path | None = None) -> str:
    with pytest.raises(Refusal) as refused:
        config_of(read_settings({"store": "a.db", **flags}, file))
    return str(refused.value)


def test_a_token_beside_a_token_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "token and token_file are given side by side: give one of them"
    assert refusal({}, file_with('token = "t"\ntoken_file = "token"')) == said
    monkeypatch.setenv("STEPWELL_TOKEN", "e")
    monkeypatch.setenv("STEPWELL_TOKEN_FILE", "token")
    assert refusal({}) == said


def test_an_unknown_key_of_the_file_is_named_with_those_that_there_are() -> None:
    said = refusal({}, file_with("prot = 1\n[limits]\nit = 2"))
    assert "server.toml: unknown key 'prot'; the keys are store, host, port, " in said
    assert "server.toml: unknown key 'limits'" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "port = 70000",
            "server.toml: port: Input should be less than or equal to 65535, not 7000",
        ),
        ('lease = "long"', "server.toml: lease: Input should be a valid number"),
        ("max_connections = 0", "server.toml: max_connections: Input should be greater than or"),
        ("port: 7", "server.toml: this is no TOML: "),
        ("token = 7", "server.toml: token: Input should be a valid string"),
        ('key = "nothing"', "server.toml: key: Path does not point to a file, not 'nothing'"),
    ],
)
def test_a_bad_value_of_the_file_is_refused(text: str, said: str) -> None:
    assert refusal({}, file_with(text)).startswith(said)


def test_a_file_that_is_no_text_is_refused() -> None:
    Path("server.toml").write_bytes(b"\xff\xfe")
    assert "server.toml: " in refusal({}, Path("server.toml"))


def test_a_bad_value_is_named_by_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPWELL_SERVER_PORT", "tcp://10.0.0.1:7878")  # by Kubernetes, say
    assert refusal({}, file_with("port = 1")).startswith("STEPWELL_SERVER_PORT: Input should be")
    monkeypatch.setenv("STEPWELL_KEY", "pem")  # of a client
    assert "server.toml: key: " in refusal({}, file_with('port = 1\nkey = "nothing"'))
    monkeypatch.delenv("STEPWELL_SERVER_PORT")
    assert refusal({"max_queued": "x"}).startswith("--max-queued: could not parse")


def test_a_token_that_is_refused_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "12345" not in refusal({}, file_with("token = 12345"))
    monkeypatch.setenv("STEPWELL_TOKEN", "open-sesame")
    assert "open-sesame" not in repr(read_settings({"store": "a.db"}, None))


def test_names_in_the_environment_that_mean_nothing_are_logged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STEPWELL_SERVER_PROT", "1")
    monkeypatch.setenv("STEPWELL_SERVER_CONFIG", "server.toml")
    read_settings({"store": "a.db"}, None)
    said = capsys.readouterr()
    assert "STEPWELL_SERVER_PROT" in said.out + said.err
    assert "STEPWELL_SERVER_CONFIG" not in said.out + said.err


def test_a_server_is_started_from_a_file(tmp_path: Path) -> None:
    file_with('durability = "process"\ntoken_file = "token"\nhost = "0.0.0.0"\nmax_connections = 5')
    with serving_store(Path("a.db"), cwd=tmp_path, STEPWELL_SERVER_CONFIG="server.toml") as server:
        address = f"tcp://127.0.0.1:{server.port}"
        told = shell("ping", "--store", address, "--json", STEPWELL_TOKEN="of the file").json
        assert told["durability"] == "process"
        server.stop(signal.SIGTERM)


def test_other_commands_do_not_load_what_reads_the_settings() -> None:
    code = "import stepwell.cli, sys; print('pydantic_settings' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-Ic", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False\n"


def shown(default: object) -> str:
    if default is None:
        return "none"
    if isinstance(default, float):
        return f"{default:g}"
    return "64MiB" if default == 64 * 1024 * 1024 else str(default)


def test_the_page_and_the_help_say_the_defaults_of_the_server() -> None:
    row = r"^\| `--([\w-]+)[^|]*\| ([^|]+?) \|"
    rows = dict(re.findall(row, section("stepwell server"), re.MULTILINE))
    helped = {one.name: one.show_default for one in COMMANDS["server"].params}
    for field in dataclasses.fields(ServerConfig):
        name = field.name.replace("_", "-")
        if name not in rows:
            assert name == "token"
        elif field.default is dataclasses.MISSING:
            assert rows[name] == "needed"
        else:
            assert rows[name].strip("`") == shown(field.default)
            if field.default is not None:
                assert helped[field.name] == shown(field.default)

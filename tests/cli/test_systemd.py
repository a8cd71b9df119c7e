"""docs/how-to/run-it-under-systemd.md: its units are understood, and its commands do as it says."""

from __future__ import annotations

import configparser
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stepwell.cli._server_settings import read_settings
from tests.cli.served import PATIENCE, ROOT, STEPWELL, environment, shell
from tests.cli.test_command import SHOP
from tests.cli.test_reference import COMMANDS
from tests.docs.pages import blocks

PAGE = blocks(ROOT / "docs/how-to/run-it-under-systemd.md")
FILES = {Path(block.words[0]).name: block.text for block in PAGE if block.words}
UNITS = [name for name in FILES if name.endswith(".service")]


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[method-assign,assignment]  # how the docs say to
    parser.read_string(FILES[name])
    return parser


def command(name: str) -> list[str]:
    """Return what the unit executes, without the path."""
    program, *arguments = shlex.split(unit(name)["Service"]["ExecStart"])
    assert program.endswith("/bin/stepwell")
    return arguments


def seconds(arguments: list[str], flag: str) -> float:
    return float(arguments[arguments.index(flag) + 1])


@pytest.mark.parametrize("name", UNITS)
def test_the_command_of_a_unit_is_understood(name: str) -> None:
    called, *arguments = command(name)
    context = COMMANDS[called].make_context(called, list(arguments))
    given = [key for key in context.params if str(context.get_parameter_source(key)) != "DEFAULT"]
    assert given


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_waits_longer_than_its_command_may_take_to_stop(name: str) -> None:
    service = unit(name)["Service"]
    assert float(service["TimeoutStopSec"]) > seconds(command(name), "--grace") + 10
    assert service["Restart"] == "always"
    assert service["Type"] == "notify"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_understands_the_unit(name: str, tmp_path: Path) -> None:
    text = FILES[name].replace("/srv/shop/.venv/bin/stepwell", str(STEPWELL))
    (tmp_path / name).write_text(text.replace("/srv/shop", str(tmp_path)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / name],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_file_of_the_server_is_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPWELL_TOKEN", "as EnvironmentFile= has it")
    (tmp_path / "server.toml").write_text(FILES["server.toml"])
    settings = read_settings({}, tmp_path / "server.toml")
    assert settings.token == "as EnvironmentFile= has it"
    address = f"tcp://{settings.host}:{settings.port}"
    assert address in command("shop-worker.service")
    assert any(address in block.text for block in PAGE if block.language == "sh")


@contextmanager
def service(manager: socket.socket, *arguments: str, **env: str) -> Generator[None]:
    """Start a command as `Type=notify` does, and stop it as `KillMode=mixed` does."""
    with subprocess.Popen(
        [STEPWELL, *arguments],
        cwd=ROOT,
        env=environment(NOTIFY_SOCKET=manager.getsockname(), **env),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert manager.recv(100) == b"READY=1"
            yield
            process.send_signal(signal.SIGTERM)
            _, stderr = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, stderr
            assert manager.recv(100) == b"STOPPING=1"
        finally:
            if process.poll() is None:
                process.kill()


def test_the_commands_of_the_units_work_together(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    store, file = tmp_path / "orders.db", tmp_path / "server.toml"
    here = {
        "/var/lib/stepwell/orders.db": str(store),
        "/etc/stepwell/server.toml": str(file),
        "10.0.0.5": "127.0.0.1",
        "7878": str(port),
        "shop.workflows:app": SHOP,
    }

    def moved(text: str) -> str:
        for there, place in here.items():
            text = text.replace(there, place)
        return text

    file.write_text(moved(FILES["server.toml"]))
    address, token = f"tcp://127.0.0.1:{port}", {"STEPWELL_TOKEN": "0123456789abcdef"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE)
        server, worker = (
            [moved(one) for one in command(name)]
            for name in ("stepwell-server.service", "shop-worker.service")
        )
        with service(manager, *server, **token):
            assert shell("ping", "--store", address, cwd=ROOT, **token).code == 0
            assert shell("ping", "--store", address).code == 1
            with service(manager, *worker, **token):
                listed = shell("workers", "--store", address, "--json", cwd=ROOT, **token).json
                assert len(listed) == 4

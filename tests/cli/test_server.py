"""`stepwell server` and `stepwell ping`: real processes, and what they refuse."""

from __future__ import annotations

import asyncio
import signal
import socket
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from stepwell import Stepwell
from stepwell_queue.tcp.client.store import TcpStore
from tests.cli import shop
from tests.cli.served import PATIENCE, ROOT, STEPWELL, Served, environment, serving_store, shell
from tests.cli.test_reference import keys

TOKEN = "a-token-of-tests"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_prints_its_address_and_stops_on_a_signal(store: Path, number: int) -> None:
    with serving_store(store) as server:
        assert server.address == f"tcp://127.0.0.1:{server.port}"
        assert shell("ping", "--store", server.address).code == 0
        log = server.stop(number)
    assert server.process.returncode == 0, log
    assert "server_starts" in log
    assert "server_stopped" in log


def test_people_are_told_the_address_in_a_line(store: Path) -> None:
    with subprocess.Popen(
        [STEPWELL, "server", "--store", store, "--port", "0"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            address = line.split()[-1]
            assert line == f"serving {store} at {address}\n"
            assert shell("ping", "--store", address).code == 0
        finally:
            server.terminate()
    assert server.returncode == 0


def test_the_service_manager_is_told_when_it_listens_and_when_it_stops(
    store: Path, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE)
        with serving_store(store, NOTIFY_SOCKET=str(tmp_path / "notify")) as server:
            assert manager.recv(100) == b"READY=1"
            assert shell("ping", "--store", server.address).code == 0
            server.stop(signal.SIGTERM)
            assert manager.recv(100) == b"STOPPING=1"


def test_a_service_manager_that_is_not_there_is_no_reason_to_fail(
    store: Path, tmp_path: Path
) -> None:
    with serving_store(store, NOTIFY_SOCKET=str(tmp_path / "nobody")) as server:
        log = server.stop(signal.SIGTERM)
    assert server.process.returncode == 0
    assert "service_manager_not_told" in log


def test_a_second_signal_does_not_wait_for_what_is_not_answered(store: Path) -> None:
    async def stopped(server: Served) -> str:
        async with Stepwell(server.address) as app:
            asking = asyncio.create_task(app.enqueue(shop.shop_note("hi")))
            client = app.engine.store
            assert isinstance(client, TcpStore)
            await client.ping()  # so what was said before has arrived
            server.process.send_signal(signal.SIGTERM)
            server.process.send_signal(signal.SIGINT)
            stopped = await asyncio.to_thread(server.logged, "stopped_at_once")
            asking.cancel()
            return stopped

    with (
        serving_store(store, "--grace", "500") as server,
        closing(sqlite3.connect(store, isolation_level=None)) as db,
    ):
        db.execute("BEGIN IMMEDIATE")  # nothing can be committed, so nothing be answered
        assert "clients repeat what was not answered" in asyncio.run(stopped(server))
        db.execute("ROLLBACK")  # the store is closed when its last transaction is over
        assert server.process.wait(PATIENCE) == 0


def test_a_port_in_use_is_said_in_one_line(store: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused = shell("server", "--store", store, "--port", str(port))
    assert (refused.code, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"stepwell: 127.0.0.1:{port} is in use by another program: choose another --port\n"
    )


def test_a_store_that_another_server_serves_is_refused(store: Path) -> None:
    with serving_store(store):
        refused = shell("server", "--store", store, "--port", "0")
    assert (refused.code, refused.stdout) == (1, "")
    assert "serves this file already" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_it_listens_where_it_is_told_and_nowhere_else(store: Path) -> None:
    with serving_store(store, "--host", "127.0.0.1") as server:
        with pytest.raises(OSError):  # noqa: PT011 - which one depends on the system
            socket.create_connection(("127.0.0.2", server.port), timeout=2.0).close()
        socket.create_connection(("127.0.0.1", server.port)).close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "localhost.example"])
def test_without_a_token_only_this_machine_is_served(store: Path, host: str) -> None:
    refused = shell("server", "--store", store, "--host", host, "--port", "0")
    assert (refused.code, refused.stdout) == (1, "")
    assert refused.stderr.count("\n") == 1
    assert f"a server on {host!r} can be reached from other machines" in refused.stderr
    assert "token" in refused.stderr
    assert not store.exists()


def test_clients_need_the_token_of_the_file(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    with serving_store(store, "--host", "0.0.0.0", "--token-file", file) as server:
        address = f"tcp://127.0.0.1:{server.port}"
        assert shell("ping", "--store", address, STEPWELL_TOKEN=TOKEN).code == 0
        assert shell("ping", "--store", address, STEPWELL_TOKEN_FILE=str(file)).code == 0
        for wrong in ({}, {"STEPWELL_TOKEN": TOKEN[:-1]}, {"STEPWELL_TOKEN": "other"}):
            refused = shell("ping", "--store", address, cwd=ROOT, **wrong)
            assert (refused.code, refused.stdout) == (1, "")
            assert refused.stderr.startswith(f"stepwell: {address} does not let this client in")
            assert refused.stderr.count("\n") == 1
        log = server.stop(signal.SIGTERM)
    assert TOKEN not in log


def test_the_token_is_found_in_the_environment_of_either_side(store: Path) -> None:
    for name in ("STEPWELL_TOKEN", "STEPWELL_SERVER_TOKEN"):
        with serving_store(store, port=0, cwd=ROOT, **{name: TOKEN}) as server:
            assert shell("ping", "--store", server.address).code == 1
            assert shell("ping", "--store", server.address, STEPWELL_TOKEN=TOKEN).code == 0


def test_no_flag_takes_the_token_itself() -> None:
    refused = shell("server", "--store", "a.db", "--token", TOKEN)
    assert refused.code == 2
    assert "--token" in refused.stderr


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ([], 1, "no store: give --store, STEPWELL_SERVER_STORE, or `store = …` in the file"),
        (["--prot", "1"], 2, "No such option: --prot"),
        (["--port", "65536"], 2, "--port"),
        (["--store", "a.db", "--lease", "0"], 1, "lease must be at least"),
        (["--store", "a.db", "--durability", "some"], 1, "--durability: Input should be 'full' or"),
        (["--store", "a.db", "--max-queued", "much"], 1, "--max-queued: could not parse value"),
        (["--store", "a.db", "--token-file", "none"], 1, "--token-file: Path does not point to a"),
        (["--store", "a.db", "--token-file", "empty"], 1, "the token file empty is empty"),
        (["--store", "a.db", "--certificate", "cert"], 1, "a certificate needs its key"),
        (["--store", "a.db", "--client-ca", "cert"], 1, "client_ca is for TLS"),
        (
            ["--store", "a.db", "--certificate", "cert", "--key", "cert"],
            1,
            "the certificates of the server cannot be used",
        ),
        (["--store", "tcp://127.0.0.1"], 1, "is the address of a server; this needs a file"),
        (["--store", "a.db", "--host", "127.0.0.999"], 1, "'127.0.0.999' can be reached from"),
        (["--store", "a.db", "--config", "none.toml"], 1, "--config none.toml: there is no such"),
        (["--store", "a.db", "--log-level", "loud"], 2, "'loud' is not one of debug, info"),
    ],
)
def test_bad_settings_are_refused(
    tmp_path: Path, options: list[str], code: int, message: str
) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "cert").write_text("no certificate")
    refused = shell("server", *options, cwd=tmp_path)
    assert (refused.code, refused.stdout) == (code, "")
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "a.db").exists()


def test_the_page_lists_the_keys_of_what_is_printed(store: Path) -> None:
    with serving_store(store) as server:
        assert set(server.told) == keys("An address")
        told = shell("ping", "--store", server.address, "--json").json
        assert set(told) == keys("A ping")


def test_ping_says_what_is_there(store: Path) -> None:
    with serving_store(store, "--durability", "process") as server:
        told = shell("ping", "--store", server.address, "--count", "3", "--json").json
        assert told["address"] == server.address
        assert told["durability"] == "process"
        assert told["workers"] == 0
        assert told["version"] == shell("--version").stdout.split()[1]
        assert 0 < told["fastest_ms"] <= told["round_trip_ms"]
        said = shell("ping", "--store", server.address).stdout
    assert said.startswith(f"{server.address} is there: Stepwell {told['version']}, ")
    assert "durability process" in said
    assert said.count("\n") == 1


def test_ping_says_who_does_not_answer_and_why(store: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"tcp://127.0.0.1:{other.getsockname()[1]}"
    refused = shell("ping", "--store", address)
    assert (refused.code, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"stepwell: cannot connect to {address} (")
    assert refused.stderr.count("\n") == 1


def test_ping_is_not_for_files(store: Path) -> None:
    refused = shell("ping", "--store", store)
    assert (refused.code, refused.stdout) == (1, "")
    assert "is a file, which nobody serves" in refused.stderr
    assert not store.exists()

"""Who is let in: tokens and certificates."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from stepwell_queue import RandomIds, StoreRefused, StoreUnavailable, SystemClock, open_store
from stepwell_queue.tcp.access import Access
from stepwell_queue.tcp.protocol import BEATS, REQUESTS, VERSION, Turned, Welcome, encode, framed
from stepwell_queue.tcp.server import ServerConfig
from tests.cli.certificates import make_authority, make_certificate, openssl
from tests.serving import serving
from tests.tcp.kit import LONG, client_of, wire_to

pytestmark = pytest.mark.anyio
TOKEN = "correct horse battery staple"
WRONG = ["", "wrong", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "é" * 20]


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ours.pem signed server and client, theirs.pem a stranger; elsewhere is for another host."""
    folder = tmp_path_factory.mktemp("certificates")
    for authority in ("ours", "theirs"):
        make_authority(folder, authority)
    for name, authority in (("server", "ours"), ("client", "ours"), ("stranger", "theirs")):
        make_certificate(folder, name, authority)
    extensions = folder / "elsewhere.txt"
    extensions.write_text("subjectAltName=DNS:elsewhere.example\nauthorityKeyIdentifier=keyid\n")
    signer = ("-CA", "ours.pem", "-CAkey", "ours.key", "-CAcreateserial")
    request = ("req", "-in", "server.csr", "-noout", "-verify")
    openssl(folder, *request)
    made = ("-out", "elsewhere.pem", "-days", "2", "-extfile", "elsewhere.txt")
    openssl(folder, "x509", "-req", "-in", "server.csr", *signer, *made)
    return folder


@pytest.mark.parametrize("channel", [REQUESTS, BEATS])
@pytest.mark.parametrize("token", WRONG)
async def test_nobody_is_let_in_without_the_whole_token(
    tmp_path: Path, token: str, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path / "runs.db", token=TOKEN) as server:
        async with wire_to(server) as wire:
            said = await wire.greet(token=token, channel=channel)
            assert said == Turned("the token is missing or wrong")
            assert await wire.rest() == []
        async with wire_to(server) as wire:
            assert isinstance(await wire.greet(token=TOKEN, channel=channel), Welcome)
    assert TOKEN not in caplog.text
    assert "is turned away: the token is missing or wrong" in caplog.text


@pytest.mark.parametrize("channel", [REQUESTS, BEATS])
async def test_nothing_is_read_of_what_comes_with_a_wrong_token(
    tmp_path: Path, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    # The body after the greeting is no msgpack: had it been decoded, that would be the complaint.
    async with serving(tmp_path / "runs.db", token=TOKEN) as server, wire_to(server) as wire:
        wire.writer.write(
            framed(encode(["stepwell", VERSION, [], "c", channel, "wrong"])) + framed(b"\xc1\xc1")
        )
        (only,) = await wire.rest()
        assert only == encode(Turned("the token is missing or wrong"))
    assert "not understood" not in caplog.text


async def test_a_client_says_that_it_was_not_let_in(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with serving(path, token=TOKEN) as server:
        url = "tcp://{}:{}".format(*server.address)
        for access in (Access(), Access(token="wrong")):
            with pytest.raises(StoreRefused, match=r"tcp://.* does not let this client in: the to"):
                await client_of(url, path, access=access)
        client = await client_of(url, path, access=Access(token=TOKEN))
        await client.claimed(await client.session(), "run")
        await client.store.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "example.org"])
def test_a_server_that_others_can_reach_needs_a_token(tmp_path: Path, host: str) -> None:
    with pytest.raises(ValueError, match="needs a token"):
        ServerConfig(tmp_path / "runs.db", host=host).check()
    ServerConfig(tmp_path / "runs.db", host=host, token=TOKEN).check()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_a_server_on_loopback_needs_none_but_no_empty_one(tmp_path: Path, host: str) -> None:
    ServerConfig(tmp_path / "runs.db", host=host).check()
    with pytest.raises(ValueError, match="empty token"):
        ServerConfig(tmp_path / "runs.db", host=host, token="").check()


async def test_a_server_listens_where_it_was_told_and_nowhere_else(tmp_path: Path) -> None:
    async with serving(tmp_path / "runs.db", host="127.0.0.2") as server:
        assert server.address[0] == "127.0.0.2"
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.address[1])


# --- TLS ---


def shown_by_server(certificates: Path, name: str = "server") -> dict[str, Any]:
    return {"certificate": certificates / f"{name}.pem", "key": certificates / "server.key"}


async def connect(url: str, access: Access) -> None:
    """Open a store, register a worker, so that both channels are in use, and close it."""
    clock = SystemClock()
    store = await open_store(url, clock=clock, ids=RandomIds(clock), access=access, timeout=5)
    try:
        assert await store.doctor() == []
    finally:
        await store.close()


async def test_a_server_with_a_certificate_is_trusted_by_its_authority_only(
    tmp_path: Path, certificates: Path
) -> None:
    files: dict[str, Any] = {
        "certificate": certificates / "server.pem",
        "key": certificates / "server.key",
    }
    async with serving(tmp_path / "runs.db", **files) as server:
        url = "tls://{}:{}".format(*server.address)
        await connect(url, Access(ca=certificates / "ours.pem"))
        for ca in (certificates / "theirs.pem", None):
            with pytest.raises(StoreUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
                await connect(url, Access(ca=ca))


async def test_a_certificate_for_another_host_is_refused(
    tmp_path: Path, certificates: Path
) -> None:
    files: dict[str, Any] = {
        "certificate": certificates / "elsewhere.pem",
        "key": certificates / "server.key",
    }
    async with serving(tmp_path / "runs.db", **files) as server:
        with pytest.raises(StoreUnavailable, match="IP address mismatch"):
            await connect(
                "tls://{}:{}".format(*server.address), Access(ca=certificates / "ours.pem")
            )


async def test_a_server_that_wants_certificates_lets_in_those_of_its_authority(
    tmp_path: Path, certificates: Path
) -> None:
    files = shown_by_server(certificates)
    files["client_ca"] = certificates / "ours.pem"
    ours = certificates / "ours.pem"
    async with serving(tmp_path / "runs.db", **files) as server:
        url = "tls://{}:{}".format(*server.address)
        shown = {name: certificates / f"client.{name}" for name in ("pem", "key")}
        await connect(url, Access(ca=ours, certificate=shown["pem"], key=shown["key"]))
        with pytest.raises(StoreUnavailable):
            await connect(url, Access(ca=ours))
        stranger = {name: certificates / f"stranger.{name}" for name in ("pem", "key")}
        with pytest.raises(StoreUnavailable):
            await connect(url, Access(ca=ours, certificate=stranger["pem"], key=stranger["key"]))


async def test_runs_are_worked_on_over_tls(tmp_path: Path, certificates: Path) -> None:
    path = tmp_path / "runs.db"
    files: dict[str, Any] = {
        "certificate": certificates / "server.pem",
        "key": certificates / "server.key",
    }
    async with serving(path, token=TOKEN, lease=0.3, **files) as server:
        url = "tls://{}:{}".format(*server.address)
        client = await client_of(
            url, path, access=Access(token=TOKEN, ca=certificates / "ours.pem")
        )
        run = await client.claimed(await client.session(), "run")
        await client.signal("run", "uid", bytes(3_000_000))
        assert [row.uid for row in await client.park(run.run, run.fence)] == ["uid"]
        await client.store.close()


async def test_a_plain_client_and_a_server_with_tls_say_what_is_wrong(
    tmp_path: Path, certificates: Path
) -> None:
    files: dict[str, Any] = {
        "certificate": certificates / "server.pem",
        "key": certificates / "server.key",
    }
    async with serving(tmp_path / "runs.db", **files) as server:
        url = "tcp://{}:{}".format(*server.address)
        with pytest.raises(StoreUnavailable, match=r"it hung up.*write tls://"):
            await connect(url, Access())


async def test_a_client_with_tls_and_a_plain_server_say_what_is_wrong(
    tmp_path: Path, certificates: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path / "runs.db") as server:
        url = "tls://{}:{}".format(*server.address)
        with pytest.raises(StoreUnavailable, match=r"cannot connect to tls://.*WRONG_VERSION"):
            await connect(url, Access(ca=certificates / "ours.pem"))
    assert "is turned away: this is a Stepwell server" in caplog.text


@pytest.mark.blocking
def test_old_versions_of_tls_are_refused(tmp_path: Path, certificates: Path) -> None:
    files: dict[str, Any] = {
        "certificate": certificates / "server.pem",
        "key": certificates / "server.key",
    }
    context = ServerConfig(tmp_path / "runs.db", **files).context()
    assert context is not None
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\n\r\n"])
async def test_who_does_not_shake_hands_is_closed_and_costs_nobody_else_a_thing(
    tmp_path: Path,
    certificates: Path,
    begun: bytes,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("stepwell_queue.tcp.server.server.GREET_WITHIN", 0.2)
    async with serving(tmp_path / "runs.db", **shown_by_server(certificates)) as server:
        async with wire_to(server) as wire:
            wire.writer.write(begun)
            async with asyncio.timeout(LONG):
                assert len(await wire.reader.read()) < 10  # an alert, at most
        await connect("tls://{}:{}".format(*server.address), Access(ca=certificates / "ours.pem"))
    assert [one for one in caplog.records if one.levelname == "ERROR"] == []

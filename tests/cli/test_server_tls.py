"""`stepwell server` with certificates, and what the other commands need then."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.cli.certificates import make_authority, make_certificate
from tests.cli.served import serving_store, shell


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    for authority in ("ours", "theirs"):
        make_authority(folder, authority)
    make_certificate(folder, "server", "ours")
    make_certificate(folder, "client", "ours")
    make_certificate(folder, "stranger", "theirs")
    return folder


def client(folder: Path, name: str) -> dict[str, str]:
    return {
        "STEPWELL_CERTIFICATE": str(folder / f"{name}.pem"),
        "STEPWELL_KEY": str(folder / f"{name}.key"),
    }


def test_a_server_with_a_certificate_is_trusted_by_its_authority(
    tmp_path: Path, certificates: Path
) -> None:
    files = (
        "--certificate", certificates / "server.pem", "--key", certificates / "server.key",
    )  # fmt: skip
    ours, theirs = (str(certificates / f"{name}.pem") for name in ("ours", "theirs"))
    with serving_store(tmp_path / "a.db", *files) as server:
        assert server.address == f"tls://127.0.0.1:{server.port}"
        assert shell("ping", "--store", server.address, STEPWELL_CA=ours).code == 0
        for authority in (theirs, ""):
            refused = shell("ping", "--store", server.address, STEPWELL_CA=authority)
            assert (refused.code, refused.stdout) == (1, "")
            assert refused.stderr.count("\n") == 1
            assert "CERTIFICATE_VERIFY_FAILED" in refused.stderr
        plain = shell("ping", "--store", f"tcp://127.0.0.1:{server.port}")
        assert (plain.code, plain.stdout) == (1, "")
        assert plain.stderr.count("\n") == 1
        server.stop(signal.SIGTERM)
        assert server.process.returncode == 0


def test_a_server_that_wants_certificates_of_its_clients_lets_in_no_other(
    tmp_path: Path, certificates: Path
) -> None:
    files = (
        "--certificate", certificates / "server.pem", "--key", certificates / "server.key",
        "--client-ca", certificates / "ours.pem",
    )  # fmt: skip
    ca = str(certificates / "ours.pem")
    with serving_store(tmp_path / "a.db", *files) as server:
        ping = ("ping", "--store", server.address)
        ours = {"STEPWELL_CA": ca, **client(certificates, "client")}
        assert shell(*ping, cwd=tmp_path, **ours).code == 0
        theirs = {"STEPWELL_CA": ca, **client(certificates, "stranger")}
        for other in (theirs, {"STEPWELL_CA": ca}):
            refused = shell(*ping, cwd=tmp_path, **other)
            assert (refused.code, refused.stdout) == (1, "")
            assert refused.stderr.count("\n") == 1
            assert refused.stderr.startswith(f"stepwell: cannot connect to {server.address}")
        assert shell(*ping, cwd=tmp_path, **ours).code == 0

"""Certificates for the tests: an authority, and what it signs, made by the openssl command."""

from __future__ import annotations

import subprocess
from pathlib import Path

EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
SIGNED = "subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\nkeyUsage=digitalSignature\n"


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def make_authority(folder: Path, name: str) -> None:
    """Make `name`.pem and `name`.key."""
    files = ("-keyout", f"{name}.key", "-out", f"{name}.pem")
    usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
    openssl(folder, "req", "-x509", *EC, *files, "-subj", f"/CN={name}", "-days", "2", *usage)


def make_certificate(folder: Path, name: str, authority: str) -> None:
    """Make `name`.pem and `name`.key for 127.0.0.1, signed by the authority."""
    files = ("-keyout", f"{name}.key", "-out", f"{name}.csr")
    openssl(folder, "req", *EC, *files, "-subj", f"/CN={name}")
    (folder / "extensions").write_text(SIGNED)
    signer = ("-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial")
    made = ("-out", f"{name}.pem", "-days", "2", "-extfile", "extensions")
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signer, *made)

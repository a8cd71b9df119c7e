"""Where a server is, and what lets a client in: a token, and certificates for TLS."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

DEFAULT_PORT = 7878


@dataclass(frozen=True, slots=True)
class Address:
    """A server: `tcp://host:port`, or `tls://host:port` where the server has a certificate."""

    host: str
    port: int
    tls: bool

    @classmethod
    def of(cls, url: str) -> Self:
        """Read an address. Raises ValueError."""
        parts = urlsplit(url)
        example = f"write {parts.scheme}://host:{DEFAULT_PORT}"
        if parts.username is not None or parts.password is not None:
            raise ValueError(
                f"{parts.scheme}://…@{parts.hostname}: an address holds no secrets; "
                "give the token by Access(token=…) or STEPWELL_TOKEN"
            )
        if not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ValueError(f"{url!r} is no address of a server: {example}")
        try:
            port = DEFAULT_PORT if parts.port is None else parts.port
        except ValueError:
            raise ValueError(f"{url!r}: the port is no number up to 65535: {example}") from None
        return cls(parts.hostname, port, parts.scheme == "tls")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.tls else 'tcp'}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Access:
    """What lets a client in to a server.

    `token`: what the server was given as its token. For `tls://`: `ca`, a PEM file of authorities
    to trust (None: those of the system); `certificate` and `key`, PEM files that the client shows.
    """

    token: str | None = field(default=None, repr=False)
    ca: str | Path | None = None
    certificate: str | Path | None = None
    key: str | Path | None = None

    @classmethod
    def from_environment(cls, address: Address) -> Self:
        """Read STEPWELL_TOKEN or STEPWELL_TOKEN_FILE, STEPWELL_CA, _CERTIFICATE and _KEY.

        The last three are for `tls://` and not looked at for `tcp://`. Raises ValueError if the
        file of the token cannot be read.
        """
        token = os.environ.get("STEPWELL_TOKEN") or None
        file = os.environ.get("STEPWELL_TOKEN_FILE")
        if token is None and file:
            token = token_in(file)
        if not address.tls:
            return cls(token)
        names = ("STEPWELL_CA", "STEPWELL_CERTIFICATE", "STEPWELL_KEY")
        return cls(token, *(os.environ.get(name) or None for name in names))

    def context(self, address: Address) -> ssl.SSLContext | None:
        """Return what a connection to this server needs; None without TLS.

        Raises ValueError for certificates that cannot be used.
        """
        if not address.tls:
            if self.ca or self.certificate or self.key:
                raise ValueError(f"{address}: certificates are for tls:// addresses")
            return None
        if bool(self.certificate) != bool(self.key):
            raise ValueError("a certificate needs its key, and a key its certificate")
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise ValueError(f"the certificates for {address} cannot be used: {error}") from error
        return context


def token_in(file: str | Path) -> str:
    """Return the token that a file holds. Raises ValueError."""
    try:
        token = Path(file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"the token file {file} cannot be read: {error}") from error
    if not token:
        raise ValueError(f"the token file {file} is empty")
    return token

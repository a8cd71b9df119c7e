"""What a server is told when it starts."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from stepwell_queue.open import Durability, check_options
from stepwell_queue.tcp.access import DEFAULT_PORT

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Where a server listens, whom it lets in, and how much it takes.

    `port` 0 = any that is free. `lease`: seconds after which a worker that shows no life loses its
    runs. `token`: what clients must show; None = nothing, which only a loopback address allows.
    `certificate` and `key`: PEM files, which turn TLS on; `client_ca`: a PEM file of authorities,
    one of which must have signed the certificate that each client then has to show.
    `max_connections`: at once. `max_in_flight`: requests of one connection that are not answered
    yet; then it is not read on. `max_queued`: bytes that the peer of one connection has not read;
    over that the connection is closed.
    """

    store: Path
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    durability: Durability = "full"
    lease: float = 15.0
    token: str | None = field(default=None, repr=False)
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    max_connections: int = 1000
    max_in_flight: int = 10_000
    max_queued: int = 64 * _MIB

    def check(self) -> None:
        """Raise ValueError for settings that cannot be."""
        check_options(self.durability, self.lease)
        if not 0 <= self.port <= 65_535:
            raise ValueError(f"port must be from 0 to 65535, got {self.port}")
        for name in ("max_connections", "max_in_flight", "max_queued"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.token == "":
            raise ValueError("an empty token lets everybody in: give one, or none on loopback")
        if self.token is None and not _is_loopback(self.host):
            raise ValueError(
                f"a server on {self.host!r} can be reached from other machines, so it needs a "
                "token; without one, listen on 127.0.0.1"
            )
        if bool(self.certificate) != bool(self.key):
            raise ValueError("a certificate needs its key, and a key its certificate")
        if self.client_ca and not self.certificate:
            raise ValueError("client_ca is for TLS: give the server a certificate and a key")

    def context(self) -> ssl.SSLContext | None:
        """Return what TLS needs; None without it. Raises ValueError for files that do not fit."""
        if self.certificate is None:
            return None
        try:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.client_ca)
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise ValueError(f"the certificates of the server cannot be used: {error}") from error
        if self.client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

"""From an address to an open store."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote

from stepwell_queue.errors import StoreRefused

if TYPE_CHECKING:
    from stepwell_queue.clock import Clock, Ids
    from stepwell_queue.contract import Store
    from stepwell_queue.tcp.access import Access

Durability = Literal["full", "process"]
_SHORTEST_LEASE = 0.1


async def open_store(
    url: str | Path,
    *,
    durability: Durability | None = None,
    clock: Clock,
    ids: Ids,
    lease: float | None = None,
    access: Access | None = None,
    timeout: float = 30.0,
) -> Store:
    """Open the store at a path, `sqlite:///path`, `tcp://host:port` or `tls://host:port`.

    A file is made if it is missing. `durability`: "full" = what is acknowledged survives a power
    cut, "process" = the death of the process; None = "full". `lease`: seconds after which a worker
    that shows no life loses its runs; it beats at a third of this; None = 15. For a server both are
    its own business. `access`: what lets this client in, None = as the environment says.
    `timeout`: seconds that a server may take to answer. Raises ValueError for an address or option
    that is not understood, StoreRefused if the file cannot be used or the server does not let this
    client in, StoreUnavailable if there is no server.
    """
    if sys.platform not in ("linux", "darwin"):
        raise StoreRefused(f"Stepwell runs on Linux and macOS, not on {sys.platform}")
    if is_server(url):
        from stepwell_queue.tcp.access import Access, Address
        from stepwell_queue.tcp.client.store import open_tcp

        if durability is not None or lease is not None:
            raise ValueError(f"{url}: durability and lease are settings of the server")
        address = Address.of(str(url))
        access = Access.from_environment(address) if access is None else access
        return await open_tcp(address, access, clock=clock, ids=ids, timeout=timeout)
    if access is not None:
        raise ValueError(f"{url}: a file needs no access; that is for tcp:// and tls:// addresses")
    chosen = "full" if durability is None else durability
    lease = 15.0 if lease is None else lease
    check_options(chosen, lease)
    path = path_of(url)
    from stepwell_queue.sqlite.store import open_sqlite  # costs an import of sqlite3 only here

    return await open_sqlite(path, durability=chosen, clock=clock, ids=ids, lease=lease)


def is_server(url: str | Path) -> bool:
    """Whether an address is that of a server, and not of a file."""
    return isinstance(url, str) and url.startswith(("tcp://", "tls://"))


def check_options(durability: str, lease: float) -> None:
    """Raise ValueError for what no store can be opened with."""
    if durability not in ("full", "process"):
        raise ValueError(f'durability must be "full" or "process", got {durability!r}')
    if not lease >= _SHORTEST_LEASE:
        raise ValueError(f"lease must be at least {_SHORTEST_LEASE} seconds, got {lease!r}")


def path_of(url: str | Path) -> Path:
    """Return the file that an address names; nothing is opened. Raises ValueError."""
    if isinstance(url, Path):
        return url
    scheme, separator, rest = url.partition("://")
    if separator and scheme in ("tcp", "tls"):
        raise ValueError(f"{url!r} is the address of a server; this needs a file")
    if separator and scheme in ("postgresql", "postgres"):
        raise ValueError(
            f"{url!r}: {scheme}:// is not available in this version; use a file, "
            "as in 'orders.db' or 'sqlite:///orders.db', or a server, as in 'tcp://host:7878'"
        )
    if separator and scheme != "sqlite":
        raise ValueError(
            f"{url!r}: unknown address; use a file, as in 'orders.db' or 'sqlite:///orders.db', "
            "or a server, as in 'tcp://host:7878'"
        )
    name = url
    if separator:
        if not rest.startswith("/"):
            raise ValueError(
                f"{url!r}: write sqlite:///orders.db (relative) "
                "or sqlite:////var/orders.db (absolute)"
            )
        name = unquote(rest[1:])
    if name == ":memory:":
        raise ValueError(
            "':memory:' is no store: nothing would survive the process; "
            "use a file in a temporary folder"
        )
    if not name:
        raise ValueError("an empty path is no store: give the name of a file, as in 'orders.db'")
    return Path(name)

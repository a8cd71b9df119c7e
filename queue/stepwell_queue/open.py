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

Durability = Literal["full", "process"]
_SHORTEST_LEASE = 0.1


async def open_store(
    url: str | Path,
    *,
    durability: Durability = "full",
    clock: Clock,
    ids: Ids,
    lease: float = 15.0,
) -> Store:
    """Open the store at a path or `sqlite:///path`; the file is made if it is missing.

    `durability`: "full" = what is acknowledged survives a power cut, "process" = the death of the
    process. `lease`: seconds after which a worker that shows no life loses its runs; it beats at a
    third of this. Raises ValueError for an address or option that is not understood, StoreRefused
    if the file cannot be used.
    """
    if sys.platform not in ("linux", "darwin"):
        raise StoreRefused(f"Stepwell runs on Linux and macOS, not on {sys.platform}")
    if durability not in ("full", "process"):
        raise ValueError(f'durability must be "full" or "process", got {durability!r}')
    if not lease >= _SHORTEST_LEASE:
        raise ValueError(f"lease must be at least {_SHORTEST_LEASE} seconds, got {lease!r}")
    path = path_of(url)
    from stepwell_queue.sqlite.store import open_sqlite  # costs an import of sqlite3 only here

    return await open_sqlite(path, durability=durability, clock=clock, ids=ids, lease=lease)


def path_of(url: str | Path) -> Path:
    """Return the file that an address names; nothing is opened. Raises ValueError."""
    if isinstance(url, Path):
        return url
    scheme, separator, rest = url.partition("://")
    if separator and scheme in ("tcp", "postgresql", "postgres"):
        raise ValueError(
            f"{url!r}: {scheme}:// is not available in this version; "
            "use a file, as in 'orders.db' or 'sqlite:///orders.db'"
        )
    if separator and scheme != "sqlite":
        raise ValueError(
            f"{url!r}: unknown address; use a file, as in 'orders.db' or 'sqlite:///orders.db'"
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

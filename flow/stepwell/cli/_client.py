"""A store that exists, opened by a command that needs no user code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from stepwell._app.app import Stepwell
from stepwell.cli._refusal import Refusal, refusals
from stepwell_queue.open import is_server, path_of
from stepwell_queue.tcp.access import Address

T = TypeVar("T")


def in_store(store: str, work: Callable[[Stepwell], Awaitable[T]], *, new: bool = False) -> T:
    """Open the store, do the work and close it; refuse a store that is not there, unless `new`."""

    async def inside(found: str | Path) -> T:
        async with opened(Stepwell(found)) as app:
            return await work(app)

    with refusals():
        return asyncio.run(inside(store_address(store) if new else existing(store)))


@asynccontextmanager
async def opened(app: Stepwell) -> AsyncGenerator[Stepwell]:
    """Open an app whose settings may come from the environment, and refuse those that cannot be."""
    try:
        await app.__aenter__()
    except ValueError as error:
        raise Refusal(str(error)) from None
    try:
        yield app
    finally:
        await app.__aexit__(None, None, None)


def existing(store: str) -> str | Path:
    found = store_address(store)
    if isinstance(found, str):
        return found  # whether it is there turns out when it is opened
    if not found.exists():
        raise Refusal(f"no store at {found}: check --store; `stepwell worker` and `start` make one")
    if found.is_file() and not found.stat().st_size:
        raise Refusal(f"{found} is an empty file, not a store: check --store")
    return found


def store_address(store: str) -> str | Path:
    """Return the absolute path of a file, or the address of a server."""
    return server_address(store) if is_server(store) else store_path(store)


def server_address(store: str) -> str:
    try:
        return str(Address.of(store))
    except ValueError as error:
        raise Refusal(f"--store {error}") from None


def store_path(store: str) -> Path:
    try:
        return path_of(store).absolute()
    except ValueError as error:
        raise Refusal(f"--store {error}") from None

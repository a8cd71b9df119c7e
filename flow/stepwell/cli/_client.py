"""A store that exists, opened by a command that needs no user code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from stepwell._app.app import Stepwell
from stepwell.cli._refusal import Refusal, refusals
from stepwell_queue.open import path_of

T = TypeVar("T")


def in_store(store: str, work: Callable[[Stepwell], Awaitable[T]]) -> T:
    """Open the store, do the work and close it; refuse a store that is not there."""

    async def inside(path: Path) -> T:
        async with Stepwell(path) as app:
            return await work(app)

    with refusals():
        return asyncio.run(inside(existing(store)))


def existing(store: str) -> Path:
    path = store_path(store)
    if not path.exists():
        raise Refusal(f"no store at {path}: check --store; `stepwell worker` and `start` make one")
    if path.is_file() and not path.stat().st_size:
        raise Refusal(f"{path} is an empty file, not a store: check --store")
    return path


def store_path(store: str) -> Path:
    try:
        return path_of(store).absolute()
    except ValueError as error:
        raise Refusal(f"--store {error}") from None

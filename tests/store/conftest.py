from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stepwell_queue import Clock, StoreUnavailable, SystemClock
from tests.serving import serving
from tests.store.kit import Bench, ManualClock, open_bench


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture(params=["full", "process", "tcp"])
async def bench(request: pytest.FixtureRequest, path: Path) -> AsyncIterator[Bench]:
    """An open store; at the end its invariants must hold."""
    async with _open(path, request.param, SystemClock()) as bench:
        yield bench


@contextlib.asynccontextmanager
async def _open(path: Path, how: Any, clock: Clock) -> AsyncGenerator[Bench]:
    async with contextlib.AsyncExitStack() as stack:
        if how == "tcp":
            server = await stack.enter_async_context(serving(path, clock=clock))
            bench = await open_bench(path, clock=clock, server=server)
        else:
            bench = await open_bench(path, clock=clock, durability=how)
        yield bench
        with contextlib.suppress(StoreUnavailable):  # the test has closed it
            assert await bench.store.doctor() == []
        await bench.store.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["process", "tcp"])
async def timed(
    request: pytest.FixtureRequest, path: Path, clock: ManualClock
) -> AsyncIterator[Bench]:
    """An open store on a clock that the test moves."""
    async with _open(path, request.param, clock) as bench:
        yield bench

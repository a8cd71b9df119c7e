from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stepwell_queue import StoreUnavailable
from tests.store.kit import Bench, ManualClock, open_bench


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture(params=["full", "process"])
async def bench(request: pytest.FixtureRequest, path: Path) -> AsyncIterator[Bench]:
    """An open store; at the end its invariants must hold."""
    durability: Any = request.param
    bench = await open_bench(path, durability=durability)
    yield bench
    with contextlib.suppress(StoreUnavailable):  # the test has closed it
        assert await bench.store.doctor() == []
    await bench.store.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def timed(path: Path, clock: ManualClock) -> AsyncIterator[Bench]:
    """An open store on a clock that the test moves."""
    bench = await open_bench(path, clock=clock)
    yield bench
    assert await bench.store.doctor() == []
    await bench.store.close()

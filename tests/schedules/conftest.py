from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stepwell import Stepwell
from tests.serving import serving, url_of
from tests.store.kit import ManualClock


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_779_998_400.0)  # a full hour


@pytest.fixture(params=["file", "tcp"])
async def app(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[Stepwell]:
    """An open app whose store has a clock that the test moves; in the end the store is sound."""
    node: Any = request.node
    modules = [node.module.__name__]
    path = tmp_path / "runs.db"
    if request.param == "file":
        async with Stepwell(path, include=modules, durability="process", clock=clock) as app:
            yield app
            assert await app.doctor() == []
        return
    async with (
        serving(path, clock=clock) as server,
        Stepwell(url_of(server), include=modules, clock=clock) as app,
    ):
        yield app
        assert await app.doctor() == []

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from stepwell import Stepwell
from tests.behaviour.stage import stage


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
async def _clear_stage(anyio_backend: str) -> None:
    stage.clear()
    stage.enter()


@pytest.fixture
def make_app(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[], Stepwell]:
    """Make apps on one store, which serve only what the module of the test defines."""
    node: Any = request.node
    module: str = node.module.__name__

    def make(include: Iterable[str] = (module,)) -> Stepwell:
        return Stepwell(tmp_path / "runs.db", include=include, durability="process")

    return make


@pytest.fixture
async def app(make_app: Callable[[], Stepwell]) -> AsyncIterator[Stepwell]:
    """An open app without a worker; in the end its store is sound."""
    async with make_app() as app:
        yield app
        assert await app.doctor() == []

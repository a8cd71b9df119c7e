from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from stepwell import Stepwell
from tests.behaviour.stage import stage
from tests.serving import serving, url_of


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
async def _clear_stage(anyio_backend: str) -> None:
    stage.clear()
    stage.enter()


@pytest.fixture(params=["file", "tcp"])
async def address(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The store of a test: a file, or a server that has it."""
    path = tmp_path / "runs.db"
    if request.param == "file":
        yield str(path)
    else:
        async with serving(path) as server:
            yield url_of(server)


@pytest.fixture
def make_app(address: str, request: pytest.FixtureRequest) -> Callable[[], Stepwell]:
    """Make apps on one store, which serve only what the module of the test defines."""
    node: Any = request.node
    module: str = node.module.__name__
    durability: Any = None if address.startswith("tcp:") else "process"

    def make(include: Iterable[str] = (module,)) -> Stepwell:
        return Stepwell(address, include=include, durability=durability)

    return make


@pytest.fixture
async def app(make_app: Callable[[], Stepwell]) -> AsyncIterator[Stepwell]:
    """An open app without a worker; in the end its store is sound."""
    async with make_app() as app:
        yield app
        assert await app.doctor() == []

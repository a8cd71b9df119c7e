from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stepwell import Stepwell
from tests.serving import serving_in_a_thread


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["file", "tcp"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The store of a test: a file, or a server that has it, in a thread of its own."""
    path = tmp_path / "runs.db"
    if request.param == "file":
        yield str(path)
    else:
        with serving_in_a_thread(path) as address:
            yield address


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
def app(make_app: Callable[[], Stepwell]) -> Stepwell:
    """An app that is not open."""
    return make_app()

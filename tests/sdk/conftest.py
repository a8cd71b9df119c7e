from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from stepwell import Stepwell


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def make_app(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[], Stepwell]:
    """Make apps on one store, which serve only what the module of the test defines."""
    node: Any = request.node
    module: str = node.module.__name__

    def make(include: Iterable[str] = (module,)) -> Stepwell:
        return Stepwell(tmp_path / "runs.db", include=include, durability="process")

    return make


@pytest.fixture
def app(make_app: Callable[[], Stepwell]) -> Stepwell:
    """An app that is not open."""
    return make_app()

"""No coroutine is left to the garbage collector, which would run its `finally` blocks anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.replay.driver import Code, Drive, Driven


@pytest.fixture
def drive() -> Iterator[Drive]:
    """`drive(code, *arguments)` runs workflow code to its first durable operation."""
    driven: list[Driven] = []

    def begin(code: Code, *args: Any, seed: str = "run/1/0") -> Driven:
        run = Driven(code, *args, seed=seed)
        driven.append(run)
        return run

    yield begin
    for run in driven:
        run.close()

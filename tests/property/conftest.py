"""Lives are short and many: they commit on the loop, copy files there, and need no log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True, scope="package")
def _quiet() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(processors=[_drop])
    yield
    structlog.configure(**before)


def _drop(
    logger: object, method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    raise structlog.DropEvent

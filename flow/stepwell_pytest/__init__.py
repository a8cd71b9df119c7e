"""The pytest plugin of Stepwell: apps for tests, as fixtures.

It is found by pytest wherever Stepwell is installed, so it is a package of its own, and imports
Stepwell only for the tests that ask for a fixture.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from stepwell.testing import BlockingTestApp, TestApp


@pytest.fixture
def stepwell_settings() -> dict[str, Any]:
    """Settings of the apps below: override it in a module or conftest, to return keywords."""
    return {}


@pytest.fixture
async def stepwell_app(stepwell_settings: dict[str, Any]) -> AsyncGenerator[TestApp, None]:
    """An open TestApp for an async test, under anyio's plugin or pytest-asyncio in auto mode."""
    from stepwell.testing import TestApp

    async with TestApp(**stepwell_settings) as app:
        yield app


@pytest.fixture
def stepwell_blocking_app(
    stepwell_settings: dict[str, Any],
) -> Generator[BlockingTestApp, None, None]:
    """An open BlockingTestApp for a test that is a plain function."""
    from stepwell.testing import BlockingTestApp

    with BlockingTestApp(**stepwell_settings) as app:
        yield app

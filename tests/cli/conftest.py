from __future__ import annotations

import asyncio
import logging
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner

from stepwell import Stepwell
from stepwell.cli._root import app as command
from tests.cli import shop
from tests.cli.served import Answer, serving_store
from tests.cli.shop import ORDER

RUNS = {
    "scheduled": "shop_note",
    "ready": "shop_note",
    "parked": "shop_approve",
    "held": "shop_hold",
    "stuck": "shop_jam",
    "rolling_back": "shop_undo_slowly",
    "completed": "shop_sell",
    "failed": "shop_decline",
    "cancelled": "shop_approve",
}
"""Status and name of the runs in the store; each has its status as its id."""

Cli = Callable[..., Answer]


async def fill(path: Path) -> None:
    """Leave a run in every status in which it can rest, and some that show more."""
    async with Stepwell(path, include=[shop.__name__], durability="process") as app:
        async with app.worker() as worker:
            await app.start(shop.shop_approve(ORDER), id="parked")
            await app.start(shop.shop_hold(ORDER), id="held")
            await app.start(shop.shop_jam(), id="stuck")
            await app.start(shop.shop_undo_slowly(ORDER), id="rolling_back")
            await app.start(shop.shop_sell(ORDER), id="completed")
            await app.start(shop.shop_decline(ORDER), id="failed")
            await app.start(shop.shop_lose(ORDER), id="lost")
            await app.start(shop.shop_ring("34", loud=True), id="retrying")
            await app.start(shop.shop_ask(ORDER), id="asking")
            await app.start(shop.shop_approve(ORDER), id="cancelled")
            await worker.drain()
            await app.cancel("cancelled", reason="sold out", actor="ann")
            await worker.drain()
        await app.enqueue(shop.shop_note("soon"), id="ready")
        await app.enqueue(shop.shop_note("later"), id="scheduled", delay=86_400.0)


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled") / "shop.db"
    asyncio.run(fill(path))
    return path


@pytest.fixture
def store(filled: Path, tmp_path: Path) -> Path:
    """A store of its own for the test, with a run in every status."""
    for file in filled.parent.glob("shop.db*"):
        shutil.copy(file, tmp_path / file.name)
    return tmp_path / "shop.db"


@pytest.fixture(params=["file", "server"])
def address(request: pytest.FixtureRequest, store: Path) -> Generator[str]:
    """That store as commands are told it: as a file, and as the address of its server."""
    yield from addresses(request.param, store)


@pytest.fixture(params=["file", "server"])
def new_address(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    """A new store, likewise."""
    yield from addresses(request.param, tmp_path / "new.db")


def addresses(kind: str, store: Path) -> Generator[str]:
    if kind == "file":
        yield str(store)
        return
    with serving_store(store, "--durability", "process") as server:
        yield server.address


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """Run a command in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delenv("STEPWELL_STORE", raising=False)

    def run(*arguments: str | Path) -> Answer:
        result = CliRunner().invoke(command, [str(one) for one in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    level = logging.getLogger().level
    yield run
    structlog.reset_defaults()
    logging.getLogger().setLevel(level)

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner

from stepwell import Stepwell
from stepwell.cli._root import app as command
from tests.cli import shop
from tests.cli.shop import ORDER

ROOT = Path(__file__).resolve().parents[2]
STEPWELL = Path(sys.executable).with_name("stepwell")

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


@dataclass(frozen=True)
class Answer:
    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.stderr
        return json.loads(self.stdout)


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


def environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("STEPWELL_")}
    return {**kept, **more}


def shell(*arguments: str | Path, cwd: Path = ROOT, **env: str) -> Answer:
    """Run the installed command in a process of its own."""
    done = subprocess.run(
        [STEPWELL, *arguments],
        cwd=cwd,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Answer(done.returncode, done.stdout, done.stderr)

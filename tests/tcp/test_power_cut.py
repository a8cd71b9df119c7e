"""The server's machine loses power under durability "process", and workers elsewhere live on."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest

from stepwell import Stepwell, step, workflow
from stepwell_queue.sqlite import files
from tests.behaviour.stage import stage
from tests.serving import serving, url_of

pytestmark = pytest.mark.anyio


@step
async def first() -> str:
    stage.note("first")
    return "a"


@step
async def second() -> str:
    await stage.hold("before second")
    stage.note("second")
    return "b"


@step
async def third() -> str:
    await stage.hold("in third")
    stage.note("third")
    return "c"


@workflow
async def spelling() -> str:
    return await first() + await second() + await third()


def copy(path: Path, to: Path) -> None:
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)


def put_back(kept: Path, path: Path) -> None:
    for companion in path.parent.glob(f"{path.name}-*"):
        companion.unlink()
    kept.replace(path)


async def after_a_restart(path: Path, durability: str, *, cut: bool) -> None:
    """Have the machine of the server restart during the third step; `cut` = with an older file."""
    stage.clear()
    stage.enter()
    kept = path.with_name("kept.db")
    async with contextlib.AsyncExitStack() as client:
        async with serving(path, durability=durability) as server:
            port = server.address[1]
            app = await client.enter_async_context(Stepwell(url_of(server), include=[__name__]))
            await client.enter_async_context(app.worker())
            run = await app.start(spelling())
            await stage.reached("before second")
            await asyncio.to_thread(copy, path, kept)
            stage.release("before second")
            await stage.reached("in third")
        if cut:
            await asyncio.to_thread(put_back, kept, path)
        with mock.patch.object(files, "boot_id", return_value="the next boot"):
            async with serving(path, durability=durability, port=port):
                stage.release("in third")
                assert await run.result(timeout=20) == "abc"
                assert await app.doctor() == []
                await client.aclose()


async def test_what_a_worker_remembers_and_the_file_does_not_is_done_again(tmp_path: Path) -> None:
    await after_a_restart(tmp_path / "runs.db", "process", cut=True)
    assert [stage.count(name) for name in ("first", "second")] == [1, 2]


async def test_when_the_file_is_durable_nothing_is_done_again(tmp_path: Path) -> None:
    await after_a_restart(tmp_path / "runs.db", "full", cut=False)
    assert stage.done == ["first", "second", "third"]

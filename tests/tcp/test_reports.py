"""What jobs report over a bad network: all of it arrives, once, and in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stepwell import Stepwell, current_job, task
from tests.serving import serving
from tests.tcp.proxy import Lose, Proxy, proxy_to

pytestmark = pytest.mark.anyio
LONG = 30.0
LINES = 12
turns: asyncio.Queue[int]


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[Proxy]:
    async with serving(tmp_path / "runs.db") as server, proxy_to(server.address) as proxy:
        yield proxy


@task
async def talks() -> None:
    job = current_job()
    while (turn := await turns.get()) < LINES:
        job.log(f"line {turn}")
        job.report(turn / LINES, f"line {turn}")


async def test_lines_whose_answers_are_lost_are_stored_once(proxy: Proxy) -> None:
    global turns
    turns = asyncio.Queue()
    app = Stepwell(proxy.url, include=[__name__])
    async with app, app.worker(), asyncio.timeout(LONG):
        run = await app.enqueue(talks())
        for turn in range(LINES):
            proxy.rule = rule = Lose()
            turns.put_nowait(turn)
            await rule.lost.wait()
        turns.put_nowait(LINES)
        await run.result()
        lines = await run.logs()
        assert [line.text for line in lines] == [f"line {turn}" for turn in range(LINES)]
        progress = await run.progress()
        assert progress is not None
        assert progress.note == f"line {LINES - 1}"
    assert len(proxy.pairs) > LINES

"""Who follows a run over a bad network hears of what it says, though the news itself is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stepwell import Signal, Stepwell, emit, set_value, wait_for_signal, workflow
from tests.serving import serving, url_of
from tests.tcp.proxy import Lose, proxy_to

pytestmark = pytest.mark.anyio
LONG = 30.0
go = Signal("go", int)


@workflow
async def says() -> None:
    for number in range(3):
        set_value("number", number)
        emit("numbers", number)
        await wait_for_signal(go)


async def test_news_that_got_lost_is_made_up_for(tmp_path: Path) -> None:
    async with (
        serving(tmp_path / "runs.db") as server,
        proxy_to(server.address) as proxy,
        Stepwell(url_of(server), include=[__name__]) as near,
        Stepwell(proxy.url, include=[__name__]) as far,
        near.worker(),
        asyncio.timeout(LONG),
    ):
        run = await near.start(says())
        there = far.get(run.id, says)
        stream = there.stream("numbers", int)
        assert (await anext(stream)).value == 0
        for number in (1, 2):
            item = asyncio.ensure_future(anext(stream))
            value = asyncio.ensure_future(there.wait_value("number", int, until=number.__eq__))
            await there.status()  # so both wait by now
            proxy.rule = rule = Lose()
            await run.signal(go, 0)
            await rule.lost.wait()
            assert (await item).value == number
            assert await value == number
        await run.signal(go, 0)
        assert [item.value async for item in stream] == []

"""Code that is put aside (parked, or handed back) leaves no trace of it."""

from __future__ import annotations

import gc

import pytest

from stepwell import Signal, Stepwell, parallel, race, step, wait_for_signal, workflow
from tests.behaviour.stage import LONG, stage

pytestmark = pytest.mark.anyio
go = Signal("go", str)


@step
async def work(what: str) -> str:
    stage.note(what)
    return what


async def several(what: str) -> str:
    return await work(what)


@workflow
async def cleans_in_branches() -> str:
    try:
        return await wait_for_signal(go)
    finally:
        await parallel(several("a"), work("b"))
        await race(several("c"), several("d"))


@pytest.mark.filterwarnings("error")
async def test_branches_that_cleanup_asks_for_while_code_is_put_aside_are_not_warned_of(
    app: Stepwell,
) -> None:
    async with app.worker(cache=0) as worker:
        run = await app.start(cleans_in_branches())
        await worker.drain()
        gc.collect()
        assert stage.done == []
        await run.signal(go, "went")
        assert await run.result(timeout=LONG) == "went"

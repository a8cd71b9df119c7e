"""A replayed step whose arguments are no longer those it was recorded with is noticed."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from stepwell import Stepwell, sleep, step, workflow

state = {"amount": 1}


@step
async def pay(amount: int) -> int:
    return amount


@workflow
async def pays() -> int:
    paid = await pay(state["amount"])
    await sleep(0.05)
    return paid


@pytest.mark.anyio
async def test_other_arguments_at_replay_are_logged_and_the_result_stays(tmp_path: object) -> None:
    state["amount"] = 1
    async with Stepwell(f"{tmp_path}/runs.db", include=[__name__], durability="process") as app:
        with capture_logs() as lines:
            async with app.worker(cache=0):
                run = await app.start(pays())
                while not (await run.history()).events:
                    await run.info()
                state["amount"] = 2
                assert await run.result(timeout=20) == 1
    assert [one["step"] for one in lines if one["event"].startswith("step_replayed")] == ["pay"]

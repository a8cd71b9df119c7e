"""What a worker is about, as others see it."""

from __future__ import annotations

import pytest

from stepwell_queue.contract import SayState, WorkerInfo, WorkerState
from stepwell_queue.errors import RequestRefused
from tests.store.kit import Bench

pytestmark = pytest.mark.anyio


async def the_worker(bench: Bench) -> WorkerInfo:
    (worker,) = await bench.store.workers()
    return worker


async def test_a_worker_starts_until_it_says_otherwise(bench: Bench) -> None:
    session = await bench.session()
    assert (await the_worker(bench)).state == "starting"
    for state in (WorkerState.RUNNING, WorkerState.STOPPING):
        for _ in range(2):
            await bench.store.do(SayState(session.worker, state))
            assert (await the_worker(bench)).state == state.name.lower()


async def test_it_is_seen_how_many_runs_of_each_name_a_worker_holds(bench: Bench) -> None:
    session = await bench.session()
    assert (await the_worker(bench)).holding == {}
    for id in ("a", "b"):
        await bench.claimed(session, id)
    found = await the_worker(bench)
    assert found.held == sum(found.holding.values()) == 2
    assert len(found.holding) == 1


async def test_nothing_can_be_said_of_a_worker_that_is_not_registered(bench: Bench) -> None:
    with pytest.raises(RequestRefused, match="not registered"):
        await bench.store.do(SayState(77, WorkerState.RUNNING))

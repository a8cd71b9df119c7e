"""Stuck runs wait for fitting code: each newly opened session tries them once."""

from __future__ import annotations

import pytest

from stepwell_queue import Ask, CancelRun, Identity, Kind, Settle, Status
from tests.store.kit import Bench

pytestmark = pytest.mark.anyio


async def stuck(bench: Bench) -> None:
    run = await bench.claimed(await bench.session(), "run")
    await bench.store.do(Settle(run.run, run.fence, Status.STUCK, b"it diverged"))


async def test_a_new_session_that_serves_it_makes_a_stuck_run_ready_once(bench: Bench) -> None:
    await stuck(bench)
    run = await bench.claim_one(await bench.session())
    assert (run.id, run.fence) == ("run", 2)
    await bench.store.do(Settle(run.run, run.fence, Status.STUCK, b"it diverged again"))
    assert await bench.status("run") == "stuck"


async def test_a_new_session_without_its_code_leaves_a_stuck_run_alone(bench: Bench) -> None:
    await stuck(bench)
    await bench.session(Identity(Kind.WORKFLOW, "something else", 1))
    assert await bench.status("run") == "stuck"


@pytest.mark.parametrize("rest", [Status.STUCK, Status.HELD])
async def test_a_run_that_was_to_pause_before_it_came_to_rest_does_not_go_on_unless_cancelled(
    bench: Bench, rest: Status
) -> None:
    now = bench.clock.now()
    run = await bench.claimed(await bench.session(), "run")
    await bench.store.do(Ask("run", "p", "pause", "", "", now))
    await bench.store.do(Settle(run.run, run.fence, rest, b"it diverged"))
    session = await bench.session()
    assert await bench.status("run") == ("paused" if rest == Status.STUCK else "held")
    assert await bench.store.doctor() == []
    assert await bench.store.do(CancelRun("run", "c", b"", now)) == Status.READY
    assert await bench.store.doctor() == []
    assert [row.uid for row in (await bench.claim_one(session)).inbox] == ["c"]

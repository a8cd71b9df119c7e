"""A run that begins anew: its journal goes, and what nobody took of its inbox stays, in order."""

from __future__ import annotations

import asyncio

import pytest

from stepwell_queue import (
    Append,
    Ask,
    Finish,
    InboxKind,
    OpenOp,
    RequestRefused,
    SendSignal,
    StaleFence,
    Status,
)
from stepwell_queue.contract import Continue
from tests.store.kit import Bench

pytestmark = pytest.mark.anyio


async def test_what_was_absorbed_and_not_taken_comes_back_before_what_came_later(
    bench: Bench,
) -> None:
    session = await bench.session()
    run = (await bench.claimed(session, "run")).run
    for uid in "123":
        await bench.signal("run", uid, uid.encode())
    history = await bench.store.history("run")
    assert history is not None
    ids = [row.id for row in history.inbox]
    records = [bench.record(0), bench.record(1)]
    await bench.store.do(Append(run, 1, records, [], [OpenOp("9", "wait", "go", None)], ids))
    await bench.signal("run", "4", b"4")
    args, now = b"x" * 5000, bench.clock.now()
    await bench.store.do(Continue(run, 1, args, [(InboxKind.SIGNAL, "go", 2)], now))
    again = await bench.claim_one(session)
    assert (again.run, again.fence, again.generation, again.args) == (run, 2, 1, args)
    assert (list(again.journal), list(again.open_ops)) == ([], [])
    assert [row.value for row in again.inbox] == [b"2", b"3", b"4"]
    await bench.signal("run", "1", b"1")  # sent again, since its answer got lost
    with pytest.raises(StaleFence):
        await bench.store.do(Continue(run, 1, b"", [], now))
    history = await bench.store.history("run")
    assert history is not None
    assert [row.value for row in history.inbox] == [b"2", b"3", b"4"]


async def test_an_endless_run_takes_no_more_room_with_each_generation(bench: Bench) -> None:
    session = await bench.session()
    claimed = await bench.claimed(session, "run")
    sizes: list[tuple[int, int]] = []
    for generation in range(1, 4):
        await bench.signal("run", f"{generation}")
        history = await bench.store.history("run")
        assert history is not None
        absorbed = [row.id for row in history.inbox]
        fence = claimed.fence
        await bench.store.do(Append(claimed.run, fence, [bench.record(0)], absorbed=absorbed))
        await bench.store.do(Continue(claimed.run, fence, b"a", [], bench.clock.now()))
        claimed = await bench.claim_one(session)
        history = await bench.store.history("run")
        assert history is not None
        assert history.run.generation == generation
        sizes.append((len(history.journal), len(history.inbox)))
    assert sizes == [(0, 0)] * 3


async def test_an_outcome_that_an_earlier_generation_has_taken_stays_taken_though_forgotten(
    bench: Bench,
) -> None:
    session = await bench.session()
    run = await bench.claimed(session, "run")
    child = ("0", bench.new("child"))
    await bench.store.do(Append(run.run, 1, [bench.record(0, "1")], children=[child]))
    ended = await bench.claim_one(session)
    now = bench.clock.now()
    await bench.store.do(Finish(ended.run, 1, Status.FAILED, b"", now, parent=run.run))
    signals = [SendSignal("run", f"{number}", "go", b"", now) for number in range(1001)]
    await asyncio.gather(*map(bench.store.do, signals))
    history = await bench.store.history("run")
    assert history is not None
    absorbed = [row.id for row in history.inbox]
    await bench.store.do(Append(run.run, 1, [bench.record(1)], absorbed=absorbed))
    await bench.store.do(Continue(run.run, 1, b"", [], now))
    assert await bench.store.doctor() == []
    with pytest.raises(RequestRefused, match="has taken its outcome"):
        await bench.store.do(Ask("child", "u", "retry", "", "", now))

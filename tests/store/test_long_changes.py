"""What changes a great many runs is done in passes, and no crash in between leaves it half done."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepwell_queue import RandomIds, StartMany
from stepwell_queue.contract import QueueSettings, SetQueue
from stepwell_queue.sqlite import ageing
from stepwell_queue.sqlite.store import SqliteStore, open_sqlite
from tests.store.kit import TASK, Bench, ManualClock

pytestmark = pytest.mark.anyio


async def opened(path: Path, clock: ManualClock) -> Bench:
    store: SqliteStore = await open_sqlite(
        path, durability="process", clock=clock, ids=RandomIds(clock), lease=15.0
    )
    return Bench(store, clock, path)


@pytest.mark.parametrize("crash", [False, True])
async def test_priorities_are_given_back_in_passes_between_which_work_goes_on(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, crash: bool
) -> None:
    monkeypatch.setattr(ageing, "AT_ONCE", 10)
    bench = await opened(path, clock)
    await bench.store.do(SetQueue("default", QueueSettings(ageing=1.0)))
    clock.move(100)
    old = [bench.new(f"old-{number:02}", identity=TASK, priority=number) for number in range(35)]
    await bench.store.do(StartMany(old))
    await bench.store.do(SetQueue("default", QueueSettings()))
    if crash:  # all that is known is in the file
        await bench.store.close()
        bench = await opened(path, clock)
    await bench.start("new", identity=TASK, priority=20)
    session = await bench.session()
    claimed: list[tuple[str, int]] = []
    while runs := (await bench.claim(session, 1)).runs:
        claimed.append((runs[0].id, runs[0].priority))
    expected = [(f"old-{number:02}", number) for number in reversed(range(35))]
    expected.insert(15, ("new", 20))
    assert claimed == expected
    await bench.store.close()


async def test_ageing_that_is_set_anew_meanwhile_holds_for_what_comes_later(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ageing, "AT_ONCE", 10)
    bench = await opened(path, clock)
    await bench.store.do(SetQueue("default", QueueSettings(ageing=1.0)))
    await bench.store.do(StartMany([bench.new(identity=TASK, priority=3) for _ in range(25)]))
    await bench.store.do(SetQueue("default", QueueSettings(ageing=10.0)))
    clock.move(30)
    await bench.start("late", identity=TASK, priority=5)
    claimed = (await bench.claim(await bench.session(), 100)).runs
    assert [run.id for run in claimed][-1] == "late"
    assert [run.priority for run in claimed] == [3] * 25 + [2]
    info = await bench.store.info("late")
    assert info is not None
    assert info.priority == 5
    await bench.store.close()

"""Claims from queues that are paused or limited."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell_queue import Finish, Hello, Reschedule, Start, StartMany, Status
from stepwell_queue.contract import (
    Claimed,
    PauseQueue,
    QueueSettings,
    RateLimit,
    ResumeQueue,
    Session,
    SetQueue,
)
from tests.store.kit import TASK, WORKFLOW, Bench, Listener, ManualClock

pytestmark = pytest.mark.anyio

TWO_A_SECOND = RateLimit(2, 1.0, 2)


async def settings(bench: Bench, **chosen: Any) -> None:
    await bench.store.do(SetQueue("default", QueueSettings(**chosen)))


async def starts(bench: Bench, count: int, **fields: Any) -> list[str]:
    return [(await bench.start(**fields)).id for _ in range(count)]


async def claimed(bench: Bench, session: Session, limit: int = 10) -> list[str]:
    return [run.id for run in (await bench.claim(session, limit)).runs]


async def end(bench: Bench, run: Claimed) -> None:
    now = bench.clock.now()
    await bench.store.do(Finish(run.run, run.fence, Status.COMPLETED, b"", now))


# --- pauses ---


async def test_nothing_of_a_paused_queue_is_claimed_until_it_is_resumed(bench: Bench) -> None:
    await bench.store.do(PauseQueue("default", None))
    ids = await starts(bench, 2)
    elsewhere = (await bench.start(queue="other")).id
    session = await bench.session(queues=["default", "other"])
    assert await claimed(bench, session) == [elsewhere]
    await bench.store.do(ResumeQueue("default"))
    assert await claimed(bench, session) == ids


async def test_a_resumed_queue_wakes_those_who_wait(bench: Bench) -> None:
    listener = Listener()
    session = await bench.session(listener=listener)
    await bench.store.do(PauseQueue("default", None))
    [id] = await starts(bench, 1)
    assert await claimed(bench, session) == []
    listener.ready.clear()
    await bench.store.do(ResumeQueue("default"))
    await listener.wait_ready()
    assert await claimed(bench, session) == [id]


async def test_a_pause_with_an_end_ends_by_itself(timed: Bench, clock: ManualClock) -> None:
    listener = Listener()
    session = await timed.session(listener=listener)
    await timed.store.do(PauseQueue("default", clock.now() + 60))
    [id] = await starts(timed, 1)
    assert await claimed(timed, session) == []
    listener.ready.clear()
    clock.move(59)
    assert await claimed(timed, session) == []
    clock.move(1)
    await listener.wait_ready()
    assert await claimed(timed, session) == [id]


async def test_what_is_running_goes_on_through_a_pause(bench: Bench) -> None:
    session = await bench.session()
    run = await bench.claimed(session)
    await bench.store.do(PauseQueue("default", None))
    await end(bench, run)
    assert await bench.status(run.id) == "completed"


async def test_a_run_started_for_a_worker_in_a_paused_queue_is_not_handed_to_it(
    bench: Bench,
) -> None:
    session = await bench.session()
    await bench.store.do(PauseQueue("default", None))
    started = await bench.store.do(Start(bench.new(), session.worker))
    assert started.claimed is None
    assert started.status == Status.READY


async def test_a_queue_that_nobody_has_used_yet_can_be_paused(bench: Bench) -> None:
    await bench.store.do(PauseQueue("default", None))
    session = await bench.session()
    await starts(bench, 1)
    assert await claimed(bench, session) == []


async def test_what_comes_due_in_a_paused_queue_waits_and_is_not_lost(
    timed: Bench, clock: ManualClock
) -> None:
    session = await timed.session()
    delayed = (await timed.start(due=clock.now() + 5)).id
    retried = await timed.claimed(session)
    await timed.store.do(Reschedule(retried.run, retried.fence, clock.now() + 5, 1, b"error"))
    await timed.store.do(PauseQueue("default", None))
    clock.move(10)
    assert await claimed(timed, session) == []
    await timed.store.do(ResumeQueue("default"))
    assert sorted(await claimed(timed, session)) == sorted([delayed, retried.id])


# --- limits ---


async def test_no_more_than_its_limit_run_in_a_queue(bench: Bench) -> None:
    await settings(bench, limit=2)
    ids = await starts(bench, 3)
    one, other = await bench.session(), await bench.session()
    [first] = (await bench.claim(one, 1)).runs
    assert await claimed(bench, other) == [ids[1]]
    assert await claimed(bench, one) == []
    await end(bench, first)
    assert await claimed(bench, one) == [ids[2]]


async def test_a_place_that_is_free_again_wakes_those_who_wait(bench: Bench) -> None:
    await settings(bench, limit=1)
    listener = Listener()
    one, other = await bench.session(), await bench.session(listener=listener)
    ids = await starts(bench, 2)
    [first] = (await bench.claim(one)).runs
    assert await claimed(bench, other) == []
    listener.ready.clear()
    await end(bench, first)
    await listener.wait_ready()
    assert await claimed(bench, other) == [ids[1]]


async def test_a_limit_counts_what_ran_before_it_was_set(bench: Bench) -> None:
    session = await bench.session()
    await starts(bench, 2)
    run, _ = (await bench.claim(session)).runs
    await settings(bench, limit=2)
    [waits] = await starts(bench, 1)
    assert await claimed(bench, session) == []
    await end(bench, run)
    assert await claimed(bench, session) == [waits]


async def test_a_limit_holds_for_all_names_of_a_queue_together(bench: Bench) -> None:
    await settings(bench, limit=2)
    await starts(bench, 2, identity=TASK)
    await starts(bench, 2, identity=WORKFLOW)
    session = await bench.session()
    assert len(await claimed(bench, session)) == 2


async def test_a_parked_run_holds_no_place(bench: Bench) -> None:
    await settings(bench, limit=1)
    session = await bench.session()
    run = await bench.claimed(session)
    await bench.park(run.run, run.fence)
    assert len(await starts(bench, 1)) == len(await claimed(bench, session)) == 1


async def test_a_limit_that_is_taken_away_is_gone(bench: Bench) -> None:
    await settings(bench, limit=1)
    session = await bench.session()
    ids = await starts(bench, 3)
    assert await claimed(bench, session) == ids[:1]
    await settings(bench)
    assert await claimed(bench, session) == ids[1:]


async def test_the_places_of_a_closed_worker_are_free(bench: Bench) -> None:
    await settings(bench, limit=1)
    one = await bench.session()
    ids = await starts(bench, 1)
    assert await claimed(bench, one) == ids
    await one.close()
    other = await bench.session()
    assert await claimed(bench, other) == ids


async def test_priority_decides_across_limited_and_open_queues(bench: Bench) -> None:
    await settings(bench, limit=5)
    low = (await bench.start(priority=1)).id
    high = (await bench.start(priority=3, queue="other")).id
    middle = (await bench.start(priority=2)).id
    session = await bench.session(queues=["default", "other"])
    assert await claimed(bench, session, 2) == [high, middle]
    assert await claimed(bench, session, 2) == [low]


async def test_a_worker_takes_no_more_of_a_queue_than_it_said(bench: Bench) -> None:
    hello = Hello("worker", ["default", "other"], (WORKFLOW, TASK), {"default": 2})
    listener = Listener()
    session = await bench.store.open_session(hello, listener)
    ids = await starts(bench, 3)
    others = await starts(bench, 2, queue="other")
    first, second = (await bench.claim(session, 2)).runs
    assert [first.id, second.id] == ids[:2]
    assert await claimed(bench, session) == others
    listener.ready.clear()
    await end(bench, second)
    await listener.wait_ready()
    assert await claimed(bench, session) == ids[2:]


# --- rates ---


async def test_a_rate_lets_a_burst_start_and_then_one_after_another(
    timed: Bench, clock: ManualClock
) -> None:
    await settings(timed, rate=TWO_A_SECOND)
    listener = Listener()
    session = await timed.session(listener=listener)
    ids = await starts(timed, 4)
    assert await claimed(timed, session) == ids[:2]
    assert await claimed(timed, session) == []
    listener.ready.clear()
    clock.move(0.4)
    assert await claimed(timed, session) == []
    clock.move(0.2)
    await listener.wait_ready()
    assert await claimed(timed, session) == ids[2:3]
    clock.move(0.5)
    assert await claimed(timed, session) == ids[3:]


async def test_at_a_high_rate_one_wake_up_brings_several_and_none_is_lost(
    timed: Bench, clock: ManualClock
) -> None:
    await timed.store.do(SetQueue("default", QueueSettings(rate=RateLimit(1000, 1.0, 100))))
    listener = Listener()
    session = await timed.session(listener=listener)
    await timed.store.do(StartMany([timed.new(identity=TASK) for _ in range(400)]))
    runs = (await timed.claim(session, 200)).runs
    assert len(runs) == 100
    listener.ready.clear()
    now = clock.now()
    for run in runs:  # a place that is free brings no token
        await timed.store.do(Finish(run.run, run.fence, Status.COMPLETED, b"", now))
    assert not listener.ready.is_set()
    started = 0
    for _ in range(10):
        clock.move(0.0201)
        await listener.wait_ready()
        listener.ready.clear()
        started += len((await timed.claim(session, 200)).runs)
    assert started in (200, 201)  # a part of one may be left


async def test_a_rate_holds_for_all_workers_together(timed: Bench, clock: ManualClock) -> None:
    await settings(timed, rate=TWO_A_SECOND)
    sessions = [await timed.session() for _ in range(3)]
    await starts(timed, 20)
    count = 0
    for _ in range(4):
        for session in sessions:
            count += len(await claimed(timed, session, 5))
        clock.move(1.0)
    assert count == 8


async def test_what_was_not_begun_gives_its_token_back(timed: Bench) -> None:
    await settings(timed, rate=TWO_A_SECOND)
    session = await timed.session()
    ids = await starts(timed, 2)
    one, _ = (await timed.claim(session)).runs
    assert await claimed(timed, session) == []
    await timed.store.do(Reschedule(one.run, one.fence, None, unstarted=True))
    assert await claimed(timed, session) == ids[:1]


async def test_a_token_that_is_there_again_anyhow_is_not_given_back(
    timed: Bench, clock: ManualClock
) -> None:
    await settings(timed, rate=TWO_A_SECOND)
    session = await timed.session()
    await starts(timed, 6)
    (early,) = (await timed.claim(session, 1)).runs
    clock.move(10)
    assert len(await claimed(timed, session)) == 2
    await timed.store.do(Reschedule(early.run, early.fence, None, unstarted=True))
    assert await claimed(timed, session) == []
    clock.move(0.5)
    assert await claimed(timed, session) == [early.id]


async def test_what_was_claimed_before_there_was_a_rate_gives_no_token_back(
    timed: Bench, clock: ManualClock
) -> None:
    session = await timed.session()
    await starts(timed, 4)
    (early,) = (await timed.claim(session, 1)).runs
    clock.move(1)
    await settings(timed, rate=TWO_A_SECOND)
    assert len(await claimed(timed, session)) == 2
    await timed.store.do(Reschedule(early.run, early.fence, None, unstarted=True))
    assert await claimed(timed, session) == []


async def test_what_was_begun_keeps_its_token(timed: Bench) -> None:
    await settings(timed, rate=TWO_A_SECOND)
    session = await timed.session()
    await starts(timed, 2)
    one, _ = (await timed.claim(session)).runs
    await timed.store.do(Reschedule(one.run, one.fence, None))
    assert await claimed(timed, session) == []


async def test_a_rate_keeps_the_order_of_priorities(timed: Bench, clock: ManualClock) -> None:
    await settings(timed, rate=RateLimit(2, 1.0, 1))
    session = await timed.session()
    for number in range(40):
        await timed.start(f"job-{number}", priority=number % 4)
    order: list[str] = []
    for _ in range(40):
        order += await claimed(timed, session)
        clock.move(0.5)
    best = sorted(range(40), key=lambda number: (-(number % 4), number))
    assert order == [f"job-{number}" for number in best]


async def test_a_changed_rate_holds_at_once(timed: Bench, clock: ManualClock) -> None:
    await settings(timed, rate=RateLimit(1, 3600.0, 1))
    session = await timed.session()
    ids = await starts(timed, 5)
    assert await claimed(timed, session) == ids[:1]
    await settings(timed, rate=RateLimit(3, 1.0, 3))
    assert await claimed(timed, session) == ids[1:4]


async def test_a_clock_that_is_set_back_stops_no_rate(timed: Bench, clock: ManualClock) -> None:
    await settings(timed, rate=TWO_A_SECOND)
    session = await timed.session()
    ids = await starts(timed, 3)
    assert await claimed(timed, session) == ids[:2]
    clock.move(-3600)
    assert await claimed(timed, session) == []
    clock.move(1)
    assert await claimed(timed, session) == ids[2:]


# --- declarations ---


async def test_declaring_the_same_again_leaves_what_was_set_since(bench: Bench) -> None:
    declared = SetQueue("default", QueueSettings(limit=5), "digest-1")
    await bench.store.do(declared)
    await settings(bench, limit=1)
    await bench.store.do(declared)
    session = await bench.session()
    await starts(bench, 3)
    assert len(await claimed(bench, session)) == 1
    await bench.store.do(SetQueue("default", QueueSettings(limit=2), "digest-2"))
    assert len(await claimed(bench, session)) == 1


async def test_a_run_is_not_handed_to_a_worker_that_takes_only_so_many_of_its_queue(
    bench: Bench,
) -> None:
    hello = Hello("worker", ["default"], (WORKFLOW, TASK), {"default": 1})
    session = await bench.store.open_session(hello, Listener())
    first = await bench.store.do(Start(bench.new(), session.worker))
    second = await bench.store.do(Start(bench.new(), session.worker))
    assert first.claimed is second.claimed is None
    assert await claimed(bench, session) == [first.id]

"""Claims of runs with keys: turns, limits and rates of each key."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from stepwell_queue import Finish, Reschedule, Status
from stepwell_queue.contract import (
    Claimed,
    PauseQueue,
    QueueSettings,
    RateLimit,
    ResumeQueue,
    Session,
    SetQueue,
    Terms,
)
from tests.store.kit import TASK, WORKFLOW, Bench, Listener, ManualClock

pytestmark = pytest.mark.anyio


async def settings(bench: Bench, **chosen: Any) -> None:
    await bench.store.do(SetQueue("default", QueueSettings(**chosen)))


async def keyed(bench: Bench, key: str, count: int, **fields: Any) -> list[str]:
    terms = Terms(key=key)
    at = bench.count
    return [
        (await bench.start(f"{key}-{at + number}", terms=terms, **fields)).id
        for number in range(count)
    ]


async def claim(bench: Bench, session: Session, limit: int = 10) -> list[Claimed]:
    return (await bench.claim(session, limit)).runs


async def claimed(bench: Bench, session: Session, limit: int = 10) -> list[str]:
    return [run.id for run in await claim(bench, session, limit)]


async def end(bench: Bench, run: Claimed) -> None:
    now = bench.clock.now()
    await bench.store.do(Finish(run.run, run.fence, Status.COMPLETED, b"", now))


def keys(ids: list[str]) -> list[str]:
    return [id.partition("-")[0] for id in ids]


async def test_the_backlog_of_one_key_does_not_starve_another(bench: Bench) -> None:
    await keyed(bench, "big", 50)
    await keyed(bench, "small", 2)
    session = await bench.session()
    first = await claimed(bench, session, 4)
    assert sorted(keys(first)) == ["big", "big", "small", "small"]


async def test_keys_take_turns_one_run_at_a_time(bench: Bench) -> None:
    for key in "abcde":
        await keyed(bench, key, 3)
    session = await bench.session()
    order: list[str] = []
    for _ in range(15):
        order += keys(await claimed(bench, session, 1))
    for turn in range(3):
        assert sorted(order[turn * 5 : turn * 5 + 5]) == list("abcde")


async def test_runs_without_a_key_take_their_turn_beside_the_keys(bench: Bench) -> None:
    await keyed(bench, "a", 4)
    plain = [(await bench.start()).id for _ in range(4)]
    session = await bench.session()
    order: list[str] = []
    for _ in range(8):
        order += await claimed(bench, session, 1)
    assert [id in plain for id in order] in ([True, False] * 4, [False, True] * 4)


async def test_within_a_key_the_oldest_goes_first(bench: Bench) -> None:
    ids = await keyed(bench, "a", 5)
    session = await bench.session()
    assert await claimed(bench, session) == ids


async def test_priority_goes_before_turns(bench: Bench) -> None:
    low = await keyed(bench, "a", 1)
    high = await keyed(bench, "b", 3, priority=1)
    session = await bench.session()
    assert await claimed(bench, session, 3) == high
    assert await claimed(bench, session, 3) == low


async def test_no_more_of_a_key_run_than_its_limit(bench: Bench) -> None:
    await settings(bench, key_limit=2)
    a = await keyed(bench, "a", 4)
    b = await keyed(bench, "b", 1)
    one, other = await bench.session(), await bench.session()
    runs = await claim(bench, one)
    assert sorted(run.id for run in runs) == sorted([*a[:2], *b])
    assert await claimed(bench, other) == []
    await end(bench, next(run for run in runs if run.id == a[0]))
    assert await claimed(bench, other) == a[2:3]


async def test_a_limit_of_a_key_holds_for_all_names_and_priorities(bench: Bench) -> None:
    await settings(bench, key_limit=1)
    await keyed(bench, "a", 2, identity=TASK, priority=5)
    await keyed(bench, "a", 2, identity=WORKFLOW)
    other = await keyed(bench, "b", 1)
    session = await bench.session()
    found = await claimed(bench, session)
    assert sorted(keys(found)) == ["a", "b"]
    assert other[0] in found


async def test_a_key_that_has_no_room_hides_nothing_behind_it(bench: Bench) -> None:
    await settings(bench, key_limit=1)
    session = await bench.session()
    await keyed(bench, "a", 300, priority=3)
    assert keys(await claimed(bench, session)) == ["a"]
    await keyed(bench, "b", 1, priority=3)
    await keyed(bench, "c", 1, priority=1)
    plain = (await bench.start()).id
    assert keys(await claimed(bench, session)) == ["b", "c", *keys([plain])]


async def test_runs_without_a_key_have_no_limit_of_a_key(bench: Bench) -> None:
    await settings(bench, key_limit=1)
    ids = [(await bench.start()).id for _ in range(5)]
    session = await bench.session()
    assert await claimed(bench, session) == ids


async def test_a_freed_place_of_a_key_wakes_those_who_wait(bench: Bench) -> None:
    await settings(bench, key_limit=1)
    listener = Listener()
    one, other = await bench.session(), await bench.session(listener=listener)
    ids = await keyed(bench, "a", 2)
    [run] = await claim(bench, one)
    assert await claimed(bench, other) == []
    listener.ready.clear()
    await end(bench, run)
    await listener.wait_ready()
    assert await claimed(bench, other) == ids[1:]


async def test_the_same_key_in_another_queue_is_another_key(bench: Bench) -> None:
    await settings(bench, key_limit=1)
    await keyed(bench, "a", 1)
    await keyed(bench, "a", 2, queue="other")
    session = await bench.session(queues=["default", "other"])
    assert len(await claimed(bench, session)) == 3


async def test_what_waits_again_for_a_retry_keeps_its_key(timed: Bench, clock: ManualClock) -> None:
    await settings(timed, key_limit=1)
    session = await timed.session()
    ids = await keyed(timed, "a", 2)
    [run] = await claim(timed, session)
    await timed.store.do(Reschedule(run.run, run.fence, clock.now() + 5, 1, b"error"))
    [second] = await claim(timed, session)
    assert second.id == ids[1]
    clock.move(6)
    assert await claimed(timed, session) == []
    await end(timed, second)
    assert await claimed(timed, session) == ids[:1]


async def test_a_rate_of_a_key_holds_for_each_key(timed: Bench, clock: ManualClock) -> None:
    await settings(timed, key_rate=RateLimit(1, 1.0, 2))
    listener = Listener()
    session = await timed.session(listener=listener)
    a, b = await keyed(timed, "a", 4), await keyed(timed, "b", 1)
    assert sorted(await claimed(timed, session)) == sorted([*a[:2], *b])
    listener.ready.clear()
    clock.move(1.1)
    await listener.wait_ready()
    assert await claimed(timed, session) == a[2:3]
    assert await claimed(timed, session) == []


async def test_a_key_starts_no_more_at_once_than_it_has_tokens_left(timed: Bench) -> None:
    await settings(timed, key_rate=RateLimit(1, 10.0, 3))
    session = await timed.session()
    a, b = await keyed(timed, "a", 5), await keyed(timed, "b", 4)
    assert await claimed(timed, session, 1) in (a[:1], b[:1])
    assert await claimed(timed, session, 1) in (a[:1], b[:1])
    assert sorted(await claimed(timed, session)) == sorted([*a[1:3], *b[1:3]])


async def test_a_worker_that_claims_no_more_is_woken_when_there_is_a_token(
    timed: Bench, clock: ManualClock
) -> None:
    await settings(timed, rate=RateLimit(1, 1.0, 1))
    listener = Listener()
    session = await timed.session(listener=listener)
    ids = await keyed(timed, "a", 2)
    assert await claimed(timed, session) == ids[:1]
    listener.ready.clear()
    clock.move(1.1)
    await listener.wait_ready()
    assert await claimed(timed, session) == ids[1:]


def have_crashed(bench: Bench, ids: list[str]) -> None:
    db = sqlite3.connect(bench.path)
    with db:
        db.executemany("UPDATE runs SET crashes = 2 WHERE id = ?", [(id,) for id in ids])
    db.close()


async def test_a_run_that_crashed_is_claimed_once_its_key_has_a_token(
    timed: Bench, clock: ManualClock
) -> None:
    await settings(timed, key_rate=RateLimit(1, 1.0, 1))
    listener = Listener()
    session = await timed.session(listener=listener)
    first, crashed = await keyed(timed, "a", 2)
    have_crashed(timed, [crashed])
    assert await claimed(timed, session) == [first]
    listener.ready.clear()
    clock.move(1.1)
    await listener.wait_ready()
    assert [run.id for run in (await timed.claim(session, idle=True)).runs] == [crashed]


async def test_many_that_crashed_of_a_key_without_room_hide_none_of_another(bench: Bench) -> None:
    await settings(bench, key_limit=1)
    session = await bench.session()
    _, *blocked = await keyed(bench, "a", 31)
    (other,) = await keyed(bench, "b", 1)
    assert len(await claim(bench, session, 1)) == 1
    have_crashed(bench, [*blocked, other])
    assert [run.id for run in (await bench.claim(session, idle=True)).runs] == [other]


async def test_limits_of_queue_and_key_hold_together(bench: Bench) -> None:
    await settings(bench, limit=3, key_limit=2)
    await keyed(bench, "a", 5)
    await keyed(bench, "b", 5)
    session = await bench.session()
    found = keys(await claimed(bench, session))
    assert sorted(found) in (["a", "a", "b"], ["a", "b", "b"])


async def test_a_thousand_keys_are_served_in_a_thousand_turns(bench: Bench) -> None:
    for number in range(1000):
        await keyed(bench, f"k{number}", 1)
    await keyed(bench, "k0", 50)
    session = await bench.session()
    found: list[str] = []
    while len(found) < 1000:
        found += keys(await claimed(bench, session, 50))
    assert len(set(found)) >= 999


async def test_the_first_key_has_no_more_turns_than_others_over_many_claims(bench: Bench) -> None:
    for key in "abc":
        await keyed(bench, key, 20)
    session = await bench.session()
    found: list[str] = []
    for _ in range(6):
        found += keys(await claimed(bench, session, 2))
    assert {key: found.count(key) for key in "abc"} == {"a": 4, "b": 4, "c": 4}


# --- names, other queues, pauses ---


async def test_the_keys_of_a_queue_take_turns_whatever_the_names_of_their_runs(
    bench: Bench,
) -> None:
    big = await keyed(bench, "big", 4, identity=TASK)
    small = await keyed(bench, "small", 2, identity=WORKFLOW)
    session = await bench.session()
    found = [await claimed(bench, session, 1) for _ in range(4)]
    assert sorted(id for ids in found for id in ids) == sorted([*big[:2], *small])
    assert len({ids[0] in big for ids in found[:2]}) == 2


async def test_a_key_with_runs_of_two_names_has_one_turn(bench: Bench) -> None:
    both = await keyed(bench, "both", 1, identity=TASK)
    both += await keyed(bench, "both", 1, identity=WORKFLOW)
    other = await keyed(bench, "other", 1)
    session = await bench.session()
    assert sorted(await claimed(bench, session, 2)) == sorted([both[0], *other])
    assert await claimed(bench, session, 2) == both[1:]


async def test_without_keys_the_oldest_goes_first_whatever_its_name(bench: Bench) -> None:
    await settings(bench, limit=10)
    ids = [(await bench.start(identity=TASK)).id for _ in range(2)]
    ids += [(await bench.start(identity=WORKFLOW)).id for _ in range(2)]
    session = await bench.session()
    assert await claimed(bench, session, 2) == ids[:2]
    assert await claimed(bench, session, 2) == ids[2:]


async def test_a_turn_that_older_work_of_another_queue_took_is_not_lost(bench: Bench) -> None:
    older = [(await bench.start(queue="other")).id for _ in range(3)]
    ids = [await keyed(bench, key, 3) for key in ("x", "y", "z")]
    session = await bench.session(queues=["default", "other"])
    for id in older:
        assert await claimed(bench, session, 1) == [id]
    first = await claimed(bench, session, 3)
    assert sorted(first) == sorted(some[0] for some in ids)


async def test_what_has_a_key_and_came_during_a_pause_is_claimed_after_it(bench: Bench) -> None:
    await bench.store.do(PauseQueue("default", None))
    ids = await keyed(bench, "k", 2)
    await bench.store.do(ResumeQueue("default"))
    session = await bench.session()
    assert await claimed(bench, session) == ids


async def test_what_has_a_key_is_claimed_once_the_limits_are_gone(bench: Bench) -> None:
    await settings(bench, key_limit=1)
    ids = await keyed(bench, "k", 2)
    await settings(bench)
    session = await bench.session()
    assert await claimed(bench, session) == ids

"""Schedules in a store, which knows when the next tick is and not why."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from typing import Any

import pytest

from stepwell_queue import (
    Claim,
    Finish,
    Kind,
    NewRun,
    RequestRefused,
    Start,
    Status,
    Store,
)
from stepwell_queue.contract import (
    DropSchedule,
    FindDue,
    ListSchedules,
    Overlap,
    PauseSchedule,
    PutSchedule,
    ResumeSchedule,
    RunSchedule,
    ScheduleHistory,
    ScheduleRow,
    Tick,
    TickRow,
)
from stepwell_queue.errors import ScheduleNotFound
from stepwell_queue.sqlite.statements import SQL
from tests.store.kit import TASK, Bench, Listener, open_bench

pytestmark = pytest.mark.anyio

FIRST = 2_000_000_000.0  # later than the tests run, so that nothing is claimed by chance
MINUTE = 60.0


def put(id: str = "nightly", **changes: Any) -> PutSchedule:
    fields: dict[str, Any] = {
        "digest": b"one",
        "plan": b"plan",
        "overlap": Overlap.SKIP,
        "source": "",
        "next": FIRST,
        "at": 1.0,
    }
    return PutSchedule(id=id, **{**fields, **changes})


def new_run(bench: Bench, tick: float, id: str = "nightly") -> NewRun:
    return bench.new(f"schedule:{id}@{tick}", identity=TASK)


def tick(bench: Bench, at: float = FIRST, id: str = "nightly", **changes: Any) -> Tick:
    fields: dict[str, Any] = {
        "digest": b"one",
        "expected": at,
        "tick": at,
        "following": at + MINUTE,
        "run": new_run(bench, at, id),
        "why": "",
        "at": at + 0.25,
    }
    return Tick(id=id, **{**fields, **changes})


async def row(store: Store, id: str = "nightly") -> ScheduleRow:
    (found,) = await store.read(ListSchedules(id))
    return found


async def history(store: Store, id: str = "nightly", limit: int = 100) -> list[TickRow]:
    found: Sequence[TickRow] = await store.read(ScheduleHistory(id, limit))
    return list(found)


async def end_all(bench: Bench) -> None:
    session = await bench.session()
    for run in (await bench.store.do(Claim(session.worker, 100, {}))).runs:
        verb = Finish(run.run, run.fence, Status.COMPLETED, b"", 1.0, clean=True)
        await bench.store.do(verb)
    await session.close()


async def test_a_schedule_is_kept_as_it_was_put(bench: Bench) -> None:
    await bench.store.do(put(source="reports", overlap=Overlap.QUEUE))
    assert await row(bench.store) == ScheduleRow(
        "nightly", b"one", b"plan", 1, "reports", 1.0, 1.0, FIRST, None, paused=False
    )
    assert await history(bench.store) == []
    assert await bench.store.read(ListSchedules("another")) == []


async def test_an_unchanged_declaration_changes_nothing(bench: Bench) -> None:
    await bench.store.do(put())
    before = await row(bench.store)
    await bench.store.do(put(plan=b"another", overlap=2, next=FIRST + 5, at=99.0))
    assert await row(bench.store) == before


async def test_a_changed_declaration_applies_and_keeps_pause_and_history(bench: Bench) -> None:
    store = bench.store
    await store.do(put())
    await store.do(tick(bench))
    await store.do(PauseSchedule("nightly"))
    await store.do(put(digest=b"two", plan=b"new", next=FIRST + 5, at=9.0))
    found = await row(store)
    assert (found.digest, found.plan, found.next, found.last) == (b"two", b"new", FIRST + 5, FIRST)
    assert (found.created, found.updated, found.paused) == (1.0, 9.0, True)
    assert len(await history(store)) == 1


@pytest.mark.parametrize(("there", "asked"), [("reports", ""), ("", "reports")])
async def test_code_and_run_time_do_not_take_schedules_from_each_other(
    bench: Bench, there: str, asked: str
) -> None:
    await bench.store.do(put(source=there))
    before = await row(bench.store)
    with pytest.raises(RequestRefused, match="asks for another one of this id"):
        await bench.store.do(put(source=asked, digest=b"two"))
    assert await row(bench.store) == before


async def test_a_plan_that_is_too_large_is_refused(bench: Bench) -> None:
    with pytest.raises(RequestRefused, match="65537 bytes with its arguments"):
        await bench.store.do(put(plan=bytes(65_537)))
    assert await bench.store.read(ListSchedules()) == []


async def test_a_tick_starts_its_run_and_sets_the_next(bench: Bench) -> None:
    await bench.store.do(put())
    run = f"schedule:nightly@{FIRST}"
    assert await bench.store.do(tick(bench)) == run
    info = await bench.store.info(run)
    assert info is not None
    assert (info.name, info.kind, info.status_name) == ("mail", Kind.TASK, "ready")
    found = await row(bench.store)
    assert (found.next, found.last) == (FIRST + MINUTE, FIRST)
    assert await history(bench.store) == [
        TickRow(FIRST, FIRST + 0.25, run, Status.READY, "", manual=False)
    ]


async def test_of_many_who_say_the_same_tick_one_is_heard(bench: Bench) -> None:
    await bench.store.do(put())
    said = [bench.store.do(tick(bench)) for _ in range(20)]
    assert set(await asyncio.gather(*said)) == {f"schedule:nightly@{FIRST}"}
    assert len(await history(bench.store)) == 1
    assert (await row(bench.store)).next == FIRST + MINUTE


async def test_of_two_processes_that_say_the_same_tick_one_is_heard(bench: Bench) -> None:
    other = await open_bench(bench.path) if not _is_remote(bench) else bench
    await bench.store.do(put(overlap=Overlap.ALLOW))
    at = FIRST
    for _ in range(5):
        await asyncio.gather(*(one.store.do(tick(one, at)) for one in (bench, other)))
        at += MINUTE
    if other is not bench:
        await other.store.close()
    assert [one.tick for one in await history(bench.store)] == [
        FIRST + MINUTE * number for number in (4, 3, 2, 1, 0)
    ]


def _is_remote(bench: Bench) -> bool:
    return type(bench.store).__name__ == "TcpStore"


@pytest.mark.parametrize(
    "changes",
    [
        {"expected": FIRST - MINUTE},
        {"expected": FIRST + MINUTE, "tick": FIRST + MINUTE},
        {"digest": b"two"},
        {"id": "another"},
    ],
)
async def test_a_tick_that_is_not_the_next_of_this_declaration_changes_nothing(
    bench: Bench, changes: dict[str, Any]
) -> None:
    await bench.store.do(put())
    before = await row(bench.store)
    assert await bench.store.do(tick(bench, **changes)) is None
    assert await row(bench.store) == before
    assert await bench.store.info(f"schedule:nightly@{FIRST}") is None


async def test_a_paused_schedule_does_not_tick_until_it_is_resumed(bench: Bench) -> None:
    store = bench.store
    await store.do(put())
    for _ in range(2):
        await store.do(PauseSchedule("nightly"))
    assert (await row(store)).paused
    assert await store.do(tick(bench)) is None
    assert (await store.read(FindDue(FIRST + 1))).due == []
    for _ in range(2):
        await store.do(ResumeSchedule("nightly", FIRST + 5 * MINUTE))
    assert await store.do(tick(bench)) is None
    assert (await row(store)).next == FIRST + 5 * MINUTE
    assert await store.do(tick(bench, FIRST + 5 * MINUTE)) is not None
    # it is not paused now, so this is no resume
    await store.do(ResumeSchedule("nightly", FIRST))
    assert (await row(store)).next == FIRST + 6 * MINUTE


async def test_a_schedule_without_a_next_tick_stays_so_when_it_is_resumed(bench: Bench) -> None:
    await bench.store.do(put())
    await bench.store.do(tick(bench, following=None))
    await bench.store.do(PauseSchedule("nightly"))
    await bench.store.do(ResumeSchedule("nightly", FIRST))
    assert (await row(bench.store)).next is None


async def test_what_is_due_is_found_earliest_first_and_when_the_next_comes(bench: Bench) -> None:
    store = bench.store
    for number, next_ in enumerate((FIRST + 2, FIRST + 1, FIRST + 9, None)):
        await store.do(put(f"s{number}", next=next_))
    found = await store.read(FindDue(FIRST + 2))
    assert [one.id for one in found.due] == ["s1", "s0"]
    assert found.next == FIRST + 9
    assert [one.id for one in (await store.read(FindDue(FIRST + 2, 1))).due] == ["s1"]
    nothing = await store.read(FindDue(1.0))
    assert (nothing.due, nothing.next) == ([], FIRST + 1)


async def test_schedules_are_listed_in_pages(bench: Bench) -> None:
    for number in range(5):
        await bench.store.do(put(f"s{number}"))
    first = await bench.store.read(ListSchedules(limit=3))
    rest = await bench.store.read(ListSchedules(after=first[-1].id, limit=3))
    assert [one.id for one in (*first, *rest)] == ["s0", "s1", "s2", "s3", "s4"]


async def test_a_tick_is_skipped_while_the_run_before_has_not_ended(bench: Bench) -> None:
    store = bench.store
    await store.do(put())
    first = await store.do(tick(bench))
    assert await store.do(tick(bench, FIRST + MINUTE)) is None
    skipped = (await history(store))[0]
    assert (skipped.tick, skipped.run_id) == (FIRST + MINUTE, None)
    assert skipped.why == f"run {first} had not ended"
    await end_all(bench)
    assert await store.do(tick(bench, FIRST + 2 * MINUTE)) is not None


async def test_a_queued_tick_waits_for_the_run_before_and_only_one_does(bench: Bench) -> None:
    store = bench.store
    await store.do(put(overlap=Overlap.QUEUE))
    session = await bench.session()
    first = await store.do(tick(bench))
    (held,) = (await store.do(Claim(session.worker, 10, {}))).runs
    assert held.id == first
    second = await store.do(tick(bench, FIRST + MINUTE))
    assert second is not None
    assert await bench.status(second) == "scheduled"
    assert (await store.do(Claim(session.worker, 10, {}))).runs == []
    assert await store.do(tick(bench, FIRST + 2 * MINUTE)) is None
    assert (await history(store))[0].why == f"run {second} was waiting already"
    await store.do(Finish(held.run, held.fence, Status.FAILED, b"", 1.0, clean=True))
    (claimed,) = (await store.do(Claim(session.worker, 10, {}))).runs
    assert claimed.id == second


async def test_ticks_may_overlap_where_that_is_allowed(bench: Bench) -> None:
    await bench.store.do(put(overlap=Overlap.ALLOW))
    for number in range(3):
        assert await bench.store.do(tick(bench, FIRST + number * MINUTE)) is not None


async def test_a_tick_that_is_left_out_says_why_and_moves_on(bench: Bench) -> None:
    await bench.store.do(put())
    assert await bench.store.do(tick(bench, run=None, why="nobody was there")) is None
    assert (await history(bench.store))[0].why == "nobody was there"
    assert (await row(bench.store)).next == FIRST + MINUTE


async def test_a_later_tick_may_stand_for_those_before_it(bench: Bench) -> None:
    await bench.store.do(put())
    last = FIRST + 7 * MINUTE
    verb = tick(bench, last, expected=FIRST, why="7 ticks before it were missed")
    assert await bench.store.do(verb) == f"schedule:nightly@{last}"
    assert (await row(bench.store)).last == last
    assert (await history(bench.store))[0].why == "7 ticks before it were missed"


async def test_a_run_that_cannot_be_started_does_not_stop_the_schedule(bench: Bench) -> None:
    run = f"schedule:nightly@{FIRST}"
    await bench.store.do(Start(bench.new(run)))  # a workflow
    await bench.store.do(put())
    assert await bench.store.do(tick(bench)) is None
    assert "is taken by checkout" in (await history(bench.store))[0].why
    assert await bench.store.do(tick(bench, FIRST + MINUTE)) is not None


async def test_a_run_now_leaves_the_ticks_alone_and_counts_as_a_run(bench: Bench) -> None:
    store = bench.store
    await store.do(put())
    verb = RunSchedule("nightly", new_run(bench, 5.0))
    started = await store.do(verb)
    assert started.created
    assert started == await store.do(verb)
    (found,) = await history(store)
    assert (found.run_id, found.manual) == (started.id, True)
    assert (await row(store)).next == FIRST
    assert await store.do(tick(bench)) is None
    assert (await history(store))[0].why == f"run {started.id} had not ended"


async def test_what_is_not_there_is_said_not_to_be(bench: Bench) -> None:
    verbs: list[Any] = [
        PauseSchedule("x"), ResumeSchedule("x", None), RunSchedule("x", bench.new()),
    ]  # fmt: skip
    for verb in verbs:
        with pytest.raises(ScheduleNotFound, match="no schedule has the id 'x'"):
            await bench.store.do(verb)
    await bench.store.do(DropSchedule("x"))
    assert await history(bench.store, "x") == []


async def test_a_dropped_schedule_is_gone_with_its_history_and_its_runs_stay(bench: Bench) -> None:
    store = bench.store
    await store.do(put())
    run = await store.do(tick(bench))
    assert run is not None
    await store.do(DropSchedule("nightly"))
    await store.do(DropSchedule("nightly"))
    assert await store.read(ListSchedules("nightly")) == []
    assert await history(store) == []
    assert await store.info(run) is not None


async def test_a_schedule_that_was_made_again_does_not_repeat_a_tick(bench: Bench) -> None:
    store = bench.store
    await store.do(put())
    run = await store.do(tick(bench))
    await store.do(DropSchedule("nightly"))
    await store.do(put())
    assert await store.do(tick(bench)) == run
    session = await bench.session()
    assert len((await store.do(Claim(session.worker, 10, {}))).runs) == 1


async def test_the_last_hundred_ticks_are_kept_and_all_whose_runs_go_on(bench: Bench) -> None:
    store = bench.store
    await store.do(put())
    first = await store.do(tick(bench))
    for number in range(1, 120):
        await store.do(tick(bench, FIRST + number * MINUTE))
    found = await history(store, limit=1000)
    assert len(found) == 101
    assert found[-1].run_id == first
    await end_all(bench)
    await store.do(tick(bench, FIRST + 120 * MINUTE))
    assert len(await history(store, limit=1000)) == 100


async def test_said_again_everything_is_answered_as_before_and_changes_nothing(
    bench: Bench,
) -> None:
    store = bench.store
    verbs: list[Any] = [
        put(),
        tick(bench),
        tick(bench, FIRST + MINUTE),
        tick(bench, FIRST + 2 * MINUTE, run=None, why="no"),
        RunSchedule("nightly", new_run(bench, 6.0)),
        PauseSchedule("nightly"),
        ResumeSchedule("nightly", FIRST + 9 * MINUTE),
        put(digest=b"two", next=FIRST + 10 * MINUTE),
        DropSchedule("nightly"),
    ]
    for verb in verbs:
        answer = await store.do(verb)
        state = await store.read(ListSchedules()), await history(store)
        assert await store.do(verb) == answer
        assert (await store.read(ListSchedules()), await history(store)) == state


async def test_a_tick_wakes_the_workers_that_serve_its_run(bench: Bench) -> None:
    listener = Listener()
    await bench.session(listener=listener)
    listener.ready.clear()
    await bench.store.do(put())
    await bench.store.do(tick(bench))
    await listener.wait_ready()


@pytest.mark.parametrize("block", ["due_schedules", "next_schedule"])
async def test_what_is_due_is_found_by_the_index(bench: Bench, block: str) -> None:
    db = sqlite3.connect(bench.path)
    arguments = (1.0, 1) if SQL[block].count("?") == 2 else (1.0,)
    plan = db.execute(f"EXPLAIN QUERY PLAN {SQL[block]}", arguments).fetchall()
    db.close()
    assert all("schedules_due" in str(line) for line in plan), plan
    assert "SCAN" not in str(plan)


async def test_what_is_started_by_hand_makes_no_history_without_end(bench: Bench) -> None:
    now = bench.clock.now()
    await bench.store.do(PutSchedule("s", b"digest", b"plan", Overlap.ALLOW, "", None, now))
    for _ in range(110):
        await bench.store.do(RunSchedule("s", bench.new()))
    history = await bench.store.read(ScheduleHistory("s", 1000))
    assert len(history) == 100

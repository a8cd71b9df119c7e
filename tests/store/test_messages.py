"""Signals, cancels, and the waking of runs."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from stepwell_queue import (
    AnyVerb,
    Append,
    CancelRun,
    Finish,
    InboxKind,
    InboxRow,
    Park,
    Reschedule,
    RunEnded,
    RunNotFound,
    SendSignal,
    Settle,
    Status,
)
from tests.store.kit import TASK, Bench, Listener, ManualClock

pytestmark = pytest.mark.anyio


async def cancel(bench: Bench, id: str, uid: str = "c", reason: bytes = b"enough") -> int:
    return await bench.store.do(CancelRun(id, uid, reason, bench.clock.now(), "ops"))


async def test_a_signal_to_nobody_is_an_error(bench: Bench) -> None:
    with pytest.raises(RunNotFound, match="no-such-run"):
        await bench.signal("no-such-run", "u")


async def test_a_signal_to_a_run_that_ended_is_an_error_that_names_its_status(
    bench: Bench,
) -> None:
    run = await bench.claimed(await bench.session(), "run")
    await bench.signal("run", "in-time")
    await bench.store.do(Finish(run.run, 1, Status.FAILED, b"", bench.clock.now()))
    with pytest.raises(RunEnded, match="failed"):
        await bench.signal("run", "late")
    await bench.signal("run", "in-time")  # repeated: it was stored


async def test_a_signal_is_stored_once_per_uid(bench: Bench) -> None:
    await bench.start("run")
    for _ in range(3):
        await bench.signal("run", "u", b"first")
    await bench.signal("run", "u", b"another value of the same uid")
    run = await bench.claim_one(await bench.session())
    assert [row.value for row in run.inbox] == [b"first"]


async def test_a_signal_to_a_running_run_reaches_its_session(bench: Bench) -> None:
    listener, other = Listener(), Listener()
    session = await bench.session(listener=listener)
    await bench.session(listener=other)
    run = await bench.claimed(session, "run")
    await bench.signal("run", "u", b"now")
    (row,) = listener.rows
    assert (row.run, row.kind, row.name, row.value) == (run.run, InboxKind.SIGNAL, "go", b"now")
    (stored,) = await bench.store.do(Park(run.run, 1, None, "go"))
    assert stored == row
    assert other.rows == []


async def test_signals_are_kept_in_order_of_arrival(bench: Bench) -> None:
    await bench.start("run")
    for n in range(50):
        await bench.signal("run", f"u{50 - n}", str(n).encode())
    run = await bench.claim_one(await bench.session())
    assert [int(row.value) for row in run.inbox] == list(range(50))


async def test_park_and_signal_never_miss_each_other(bench: Bench) -> None:
    listener = Listener()
    session = await bench.session(listener=listener)
    rng = random.Random(7)
    for n in range(100):
        run = await bench.claimed(session, f"run-{n}")
        park = Park(run.run, 1, None, "go")
        signal = SendSignal(run.id, "u", "go", b"", bench.clock.now())
        verbs: list[AnyVerb] = [park, signal] if rng.random() < 0.5 else [signal, park]
        tasks: list[asyncio.Task[Any]] = []
        for verb in verbs:
            tasks.append(asyncio.create_task(bench.store.do(verb)))
            for _ in range(rng.randrange(3)):
                await asyncio.sleep(0)
        answers = dict(zip(verbs, await asyncio.gather(*tasks), strict=True))
        if not answers[park]:
            assert (await bench.claim_one(session)).inbox
        await bench.store.do(
            Finish(run.run, 1 if answers[park] else 2, Status.COMPLETED, b"", bench.clock.now())
        )


async def test_signals_faster_than_the_run_closes_do_not_keep_it_open(bench: Bench) -> None:
    run = await bench.claimed(await bench.session(), "run")
    sends = [asyncio.ensure_future(bench.signal("run", f"u{n}")) for n in range(20)]
    finish = Finish(run.run, 1, Status.COMPLETED, b"", bench.clock.now())
    end = asyncio.ensure_future(bench.store.do(finish))
    late = asyncio.ensure_future(bench.signal("run", "late"))
    await asyncio.gather(*sends, end)
    with pytest.raises(RunEnded):
        await late
    history = await bench.store.history("run")
    assert history is not None
    assert len(history.inbox) == 20


async def test_a_signal_wakes_a_sleeper_before_its_time_but_leaves_a_scheduled_run(
    bench: Bench,
) -> None:
    session = await bench.session()
    due = bench.clock.now() + 1000
    run = await bench.claimed(session, "sleeper")
    await bench.store.do(Park(run.run, 1, due, "sleeps"))
    await bench.start("scheduled", due=due)
    await bench.signal("sleeper", "u")
    await bench.signal("scheduled", "u")
    assert [run.id for run in (await bench.claim(session)).runs] == ["sleeper"]
    assert await bench.status("scheduled") == "scheduled"


@pytest.mark.parametrize("due", [None, 9e12])
async def test_a_run_never_claimed_is_cancelled_at_once(bench: Bench, due: float | None) -> None:
    await bench.start("run", due=due)
    assert await cancel(bench, "run") == Status.CANCELLED
    assert await cancel(bench, "run", "again") == Status.CANCELLED
    history = await bench.store.history("run")
    assert history is not None
    assert (history.run.status_name, history.run.value, history.run.due) == (
        "cancelled",
        b"enough",
        None,
    )
    assert history.run.ended is not None
    assert [(row.action, row.actor) for row in history.audit] == [("cancel", "ops")]
    assert (await bench.claim(await bench.session())).runs == []


async def test_a_large_reason_for_a_cancel_is_kept(bench: Bench) -> None:
    await bench.start("run")
    await cancel(bench, "run", reason=b"r" * 5000)
    info = await bench.store.info("run")
    assert info is not None
    assert info.value == b"r" * 5000


async def test_a_running_or_parked_run_is_asked_to_cancel(bench: Bench) -> None:
    listener = Listener()
    session = await bench.session(listener=listener)
    running = await bench.claimed(session, "running")
    assert await cancel(bench, "running") == Status.RUNNING
    assert [(row.run, row.kind, row.value) for row in listener.rows] == [
        (running.run, InboxKind.CANCEL, b"enough")
    ]
    parked = await bench.claimed(session, "parked")
    await bench.store.do(Park(parked.run, 1, None, "go"))
    assert await cancel(bench, "parked") == Status.READY
    assert [row.kind for row in (await bench.claim_one(session)).inbox] == [InboxKind.CANCEL]


async def test_a_cancel_does_not_wait_for_the_next_attempt(
    timed: Bench, clock: ManualClock
) -> None:
    session = await timed.session()
    run = await timed.claimed(session, "task", identity=TASK)
    await timed.store.do(Reschedule(run.run, 1, clock.now() + 1000, attempts=1))
    assert await cancel(timed, "task") == Status.READY
    again = await timed.claim_one(session)
    assert [row.kind for row in again.inbox] == [InboxKind.CANCEL]


async def test_a_failure_after_a_cancel_is_not_delayed(timed: Bench, clock: ManualClock) -> None:
    session = await timed.session()
    run = await timed.claimed(session, "task", identity=TASK)
    await cancel(timed, "task")
    await timed.store.do(Reschedule(run.run, 1, clock.now() + 1000, attempts=1))
    assert (await timed.claim_one(session)).id == "task"


async def test_cancelling_an_unclaimed_child_tells_its_parent(bench: Bench) -> None:
    session = await bench.session()
    parent = await bench.claimed(session, "parent")
    child = bench.new("child", identity=TASK)
    await bench.store.do(Append(parent.run, 1, children=[("0.1", child)]))
    await cancel(bench, "child")
    (row,) = await bench.store.do(Park(parent.run, 1, None, "child"))
    assert (row.kind, row.name, row.path, row.status, row.value) == (
        InboxKind.CHILD_ENDED,
        "child",
        "0.1",
        Status.CANCELLED,
        b"enough",
    )


async def test_cancelling_what_ended_or_never_was(bench: Bench) -> None:
    run = await bench.claimed(await bench.session(), "run")
    await bench.store.do(Finish(run.run, 1, Status.COMPLETED, b"", bench.clock.now()))
    before = await bench.store.history("run")
    assert await cancel(bench, "run") == Status.COMPLETED
    assert await bench.store.history("run") == before
    with pytest.raises(RunNotFound):
        await cancel(bench, "nobody")


@pytest.mark.parametrize("early", [False, True])
async def test_a_cancel_lets_a_held_run_go_on(bench: Bench, early: bool) -> None:
    session = await bench.session()
    run = await bench.claimed(session, "run")
    if early:
        await cancel(bench, "run")
    await bench.store.do(Settle(run.run, 1, Status.HELD, b"why"))
    if not early:
        assert await cancel(bench, "run") == Status.READY
    again = await bench.claim_one(session)
    assert [row.kind for row in again.inbox] == [InboxKind.CANCEL]


@pytest.mark.parametrize("repeated", [False, True])
async def test_of_many_signals_in_one_batch_each_is_answered_alone(
    bench: Bench, repeated: bool
) -> None:
    listener = Listener()
    session = await bench.session(listener=listener)
    runs = [await bench.claimed(session, f"run-{n}") for n in range(40)]
    for n in range(20):
        await bench.park(runs[n].run, 1)
    await bench.store.do(
        Finish(runs[39].run, 1, Status.COMPLETED, b"", bench.clock.now(), clean=True)
    )
    ids = [run.id for run in runs] + ["run-5", "run-25", "nobody"]
    verbs = [SendSignal(id, f"u{n}", "go", id.encode(), 1.0) for n, id in enumerate(ids)]
    if repeated:
        verbs.append(verbs[25])
    answers: list[object] = await asyncio.gather(
        *(bench.store.do(verb) for verb in verbs), return_exceptions=True
    )
    refused = {n: type(answer) for n, answer in enumerate(answers) if answer is not None}
    assert refused == {39: RunEnded, 42: RunNotFound}
    for n in range(39):
        assert await bench.status(f"run-{n}") == ("ready" if n < 20 else "running")
    expected: list[InboxRow] = []
    for n in range(20, 39):
        history = await bench.store.history(f"run-{n}")
        assert history is not None
        assert {row.value for row in history.inbox} == {f"run-{n}".encode()}
        expected += history.inbox
    assert sorted(listener.rows, key=lambda row: row.id) == sorted(expected, key=lambda row: row.id)
    assert len(expected) == 20

"""Claiming ready work."""

from __future__ import annotations

import asyncio

import pytest

from stepwell_queue import (
    Append,
    Claim,
    Finish,
    Hello,
    Identity,
    Kind,
    OpenOp,
    Park,
    RequestRefused,
    Reschedule,
    Start,
    StartMany,
    Status,
)
from tests.store.kit import TASK, WORKFLOW, Bench, Listener, ManualClock

pytestmark = pytest.mark.anyio


async def test_highest_priority_goes_first_then_the_oldest(bench: Bench) -> None:
    for id, priority in [("a", 0), ("b", 5), ("c", 0), ("d", 5), ("e", -1)]:
        await bench.start(id, priority=priority)
    session = await bench.session()
    order = [run.id for run in (await bench.claim(session)).runs]
    assert order == ["b", "d", "a", "c", "e"]


async def test_order_holds_across_identities_and_queues(bench: Bench) -> None:
    await bench.start("a", identity=TASK, priority=1)
    await bench.start("b", priority=2, queue="other")
    await bench.start("c", priority=2)
    await bench.start("d", identity=TASK, priority=3, queue="other")
    session = await bench.session(queues=["default", "other"])
    first = await bench.claim(session, 3)
    assert [run.id for run in first.runs] == ["d", "b", "c"]
    assert first.more
    last = await bench.claim(session, 3)
    assert [run.id for run in last.runs] == ["a"]
    assert not last.more


async def test_only_what_the_worker_has_code_for_is_claimed(bench: Bench) -> None:
    newer = Identity(WORKFLOW.kind, WORKFLOW.name, 2)
    await bench.start("old")
    await bench.start("new", identity=newer)
    await bench.start("elsewhere", queue="gpu")
    await bench.start("task", identity=TASK)
    session = await bench.session(newer)
    assert [run.id for run in (await bench.claim(session)).runs] == ["new"]
    assert await bench.status("old") == "ready"


async def test_a_worker_may_serve_a_thousand_identities(bench: Bench) -> None:
    serves = [Identity(Kind.TASK, f"task-{n}", 1) for n in range(1000)]
    await bench.store.do(
        StartMany([bench.new(identity=serves[n], priority=n % 7) for n in range(0, 1000, 10)])
    )
    session = await bench.session(*serves)
    found = await bench.claim(session, 200)
    assert len(found.runs) == 100
    assert [r.priority for r in found.runs] == sorted(
        (r.priority for r in found.runs), reverse=True
    )


async def test_a_worker_without_code_claims_nothing(bench: Bench) -> None:
    await bench.start()
    session = await bench.store.open_session(Hello("idle", ["default"], []), Listener())
    assert (await bench.claim(session)).runs == []
    with pytest.raises(RequestRefused, match="open a session"):
        await bench.store.do(Claim(999, 1, {}))


async def test_each_claim_raises_the_fence_and_no_run_is_claimed_twice(bench: Bench) -> None:
    await bench.store.do(StartMany([bench.new() for _ in range(100)]))
    sessions = [await bench.session() for _ in range(4)]
    found = await asyncio.gather(*(bench.claim(s, 7) for s in sessions for _ in range(5)))
    runs = [run for one in found for run in one.runs]
    assert len(runs) == len({run.run for run in runs}) == 100
    assert {run.fence for run in runs} == {1}


async def test_a_claim_brings_journal_open_operations_and_inbox(bench: Bench) -> None:
    session = await bench.session()
    for run in [await bench.claimed(session, id) for id in ("a", "b")]:
        record = bench.record(0, value=run.id.encode())
        op = OpenOp("1", "wait", run.id, None)
        await bench.store.do(Append(run.run, 1, [record], opened=[op]))
        await bench.store.do(Park(run.run, 1, None, "go"))
        await bench.signal(run.id, f"to-{run.id}")
    found = (await bench.claim(session)).runs
    assert [(run.id, run.fence, run.live) for run in found] == [("a", 2, False), ("b", 2, False)]
    for run in found:
        assert [record.value for record in run.journal] == [run.id.encode()]
        assert [op.name for op in run.open_ops] == [run.id]
        assert [row.uid for row in run.inbox] == [f"to-{run.id}"]


async def test_a_run_whose_coroutine_is_kept_comes_without_its_journal(bench: Bench) -> None:
    session = await bench.session()
    arguments = bytes(3000)
    runs = [await bench.claimed(session, id, args=arguments) for id in ("kept", "outdated")]
    for run in runs:
        await bench.store.do(Append(run.run, 1, [bench.record(0)]))
        await bench.store.do(Park(run.run, 1, None, "go"))
        await bench.signal(run.id, "uid")
    found = await bench.claim(session, live={runs[0].run: 1, runs[1].run: 0})
    first, second = found.runs
    assert (first.live, list(first.journal), len(first.inbox)) == (True, [], 1)
    assert (second.live, len(second.journal), len(second.inbox)) == (False, 1, 1)
    assert (first.args, second.args) == (b"", arguments)


async def test_a_signal_sent_before_the_first_claim_comes_with_it(bench: Bench) -> None:
    await bench.start("early")
    await bench.signal("early", "u")
    run = await bench.claim_one(await bench.session())
    assert [(row.name, row.value) for row in run.inbox] == [("go", b"yes")]


async def test_nothing_is_claimed_before_it_is_due_and_once_after(
    timed: Bench, clock: ManualClock
) -> None:
    session = await timed.session()
    for n in range(20):
        await timed.start(f"r{n}", due=clock.now() + 5)
    for _ in range(4):
        assert (await timed.claim(session, 100)).runs == []
        clock.move(1)
    clock.move(1)
    first = await timed.claim(session, 100)
    assert len(first.runs) == 20
    assert (await timed.claim(session, 100)).runs == []


async def test_a_session_is_woken_when_work_is_due(timed: Bench, clock: ManualClock) -> None:
    listener = Listener()
    session = await timed.session(listener=listener)
    await timed.start("late", due=clock.now() + 50)
    await timed.start("soon", due=clock.now() + 5)
    listener.ready.clear()
    clock.move(5)
    await listener.wait_ready()
    assert (await timed.claim_one(session)).id == "soon"
    clock.move(45)
    await listener.wait_ready()
    assert (await timed.claim_one(session)).id == "late"


async def test_due_work_that_was_there_before_the_session_wakes_it(
    timed: Bench, clock: ManualClock
) -> None:
    await timed.start("late", due=clock.now() + 50)
    listener = Listener()
    session = await timed.session(listener=listener)
    clock.move(50)
    await listener.wait_ready()
    assert (await timed.claim_one(session)).id == "late"


async def test_a_parked_run_is_due_at_its_time(timed: Bench, clock: ManualClock) -> None:
    listener = Listener()
    session = await timed.session(listener=listener)
    run = await timed.claimed(session)
    due = clock.now() + 10
    op = OpenOp("0", "sleep", "", due)
    await timed.store.do(Park(run.run, 1, due, "sleeps", opened=[op]))
    listener.ready.clear()
    clock.move(10)
    await listener.wait_ready()
    again = await timed.claim_one(session)
    assert (again.fence, again.open_ops[0].due) == (2, due)


async def test_a_thousand_runs_due_together_are_all_claimed_once(
    timed: Bench, clock: ManualClock
) -> None:
    session = await timed.session()
    due = clock.now() + 1
    await timed.store.do(StartMany([timed.new(due=due) for _ in range(2500)]))
    clock.move(2)
    runs: list[int] = []
    while found := (await timed.claim(session, 400)).runs:
        runs += [run.run for run in found]
    assert len(runs) == len(set(runs)) == 2500


async def test_ready_work_is_announced_to_those_who_serve_it(bench: Bench) -> None:
    mine, other = Listener(), Listener()
    await bench.session(WORKFLOW, listener=mine)
    await bench.session(TASK, listener=other)
    await bench.start()
    await mine.wait_ready()
    assert not other.ready.is_set()


async def test_a_delayed_retry_counts_its_failures(timed: Bench, clock: ManualClock) -> None:
    session = await timed.session()
    run = await timed.claimed(session, identity=TASK)
    verb = Reschedule(run.run, 1, clock.now() + 30, attempts=1, error=b"boom")
    await timed.store.do(verb)
    await timed.store.do(verb)
    assert await timed.status(run.id) == "scheduled"
    clock.move(30)
    again = await timed.claim_one(session)
    assert (again.attempts, again.error, again.fence) == (1, b"boom", 2)


async def test_a_release_of_unstarted_work_counts_nothing(bench: Bench) -> None:
    session = await bench.session()
    run = await bench.claimed(session, identity=TASK)
    await bench.store.do(Reschedule(run.run, 1, None))
    again = await bench.claim_one(session)
    assert (again.attempts, again.crashes, again.error, again.fence) == (0, 0, b"", 2)


async def test_closing_a_session_hands_back_what_it_holds(bench: Bench) -> None:
    leaver, stayer = await bench.session(), await bench.session()
    run = await bench.claimed(leaver)
    await leaver.close()
    await leaver.close()
    again = await bench.claim_one(stayer)
    assert (again.run, again.fence, again.crashes) == (run.run, 2, 0)
    assert [worker.worker for worker in await bench.store.workers()] == [stayer.worker]


async def test_workers_are_listed_with_what_they_serve_and_hold(bench: Bench) -> None:
    session = await bench.session(queues=["default", "gpu"])
    await bench.claimed(session)
    (worker,) = await bench.store.workers()
    assert (worker.worker, worker.name, worker.alive, worker.held) == (
        session.worker,
        "worker",
        True,
        1,
    )
    assert list(worker.queues) == ["default", "gpu"]
    assert sorted(worker.names) == ["checkout", "mail"]


async def test_a_finished_task_leaves_nothing_to_claim(bench: Bench) -> None:
    session = await bench.session()
    started = await bench.store.do(Start(bench.new(identity=TASK), session.worker))
    assert started.claimed is not None
    finish = Finish(started.run, 1, Status.COMPLETED, b"done", bench.clock.now(), clean=True)
    await bench.store.do(finish)
    assert (await bench.claim(session)).runs == []

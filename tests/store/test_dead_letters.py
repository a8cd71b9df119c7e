"""Tasks that have failed: what is kept of their attempts, and what is done about them."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from stepwell_queue import (
    Append,
    Ask,
    CancelRun,
    Claimed,
    Finish,
    Identity,
    Kind,
    Park,
    RequestRefused,
    Reschedule,
    RunNotFound,
    Session,
    Start,
    Status,
)
from stepwell_queue.contract import (
    FailedAttempt,
    Hold,
    ListDeadLetters,
    PurgeDeadLetters,
    Requeue,
    Terms,
)
from stepwell_queue.sqlite.failures import FIRST_KEPT, LARGEST_ERROR, LAST_KEPT
from stepwell_queue.sqlite.statements import SQL
from tests.store.kit import TASK, Bench, ManualClock, open_bench

pytestmark = pytest.mark.anyio
OTHER = Identity(Kind.TASK, "other", 1)
STEP = Identity(Kind.STEP, "resize", 1)


async def fail(bench: Bench, session: Session, id: str, at: float = 1.0, **fields: Any) -> Claimed:
    """A task that has failed for good."""
    run = await bench.claimed(session, id, **{"identity": TASK, **fields})
    await bench.store.do(Finish(run.run, run.fence, Status.FAILED, b"boom", at, attempts=1))
    return run


async def requeue(bench: Bench, id: str, uid: str = "ask") -> int:
    return await bench.store.do(Ask(id, uid, "requeue", "ops", "mended", bench.clock.now()))


async def failures(bench: Bench, id: str) -> list[FailedAttempt]:
    history = await bench.store.history(id)
    assert history is not None
    return list(history.failures)


async def dead(bench: Bench, **query: Any) -> list[str]:
    return [row.id for row in await bench.store.read(ListDeadLetters(**query))]


# --- attempts ---


async def test_each_failed_attempt_is_kept_with_times_worker_and_error(
    timed: Bench, clock: ManualClock
) -> None:
    session = await timed.session()
    started = clock.now()
    run = await timed.claimed(session, "run", identity=TASK)
    clock.move(5)
    await timed.store.do(Reschedule(run.run, 1, None, 1, b"first"))
    clock.move(5)
    again = await timed.claim_one(session)
    clock.move(2)
    ended = clock.now()
    await timed.store.do(Reschedule(run.run, again.fence, None, 1))  # postponed: no failure
    last = await timed.claim_one(session)
    await timed.store.do(
        Finish(run.run, last.fence, Status.FAILED, b"second", ended, clean=True, attempts=2)
    )
    assert await failures(timed, "run") == [
        FailedAttempt("", 1, started, started + 5, "worker", False, b"first"),
        FailedAttempt("", 2, started + 12, ended, "worker", False, b"second"),
    ]


async def test_the_first_attempts_are_kept_and_the_last(bench: Bench) -> None:
    session = await bench.session()
    run = (await bench.claimed(session, "run", identity=TASK)).run
    count = FIRST_KEPT + LAST_KEPT + 15
    for number in range(1, count + 1):
        await bench.store.do(Reschedule(run, number, None, number, b"%d" % number))
        await bench.claim_one(session)
    first = range(1, FIRST_KEPT + 1)
    last = range(count - LAST_KEPT + 1, count + 1)
    assert [one.number for one in await failures(bench, "run")] == [*first, *last]


async def test_of_a_very_large_error_the_attempt_alone_is_kept(bench: Bench) -> None:
    run = (await bench.claimed(await bench.session(), "run", identity=TASK)).run
    large = bytes(LARGEST_ERROR + 1)
    await bench.store.do(Reschedule(run, 1, None, 1, large))
    (one,) = await failures(bench, "run")
    assert (one.crashed, one.error) == (False, b"")
    info = await bench.store.info("run")
    assert info is not None
    assert info.value == large


async def test_an_attempt_whose_worker_died_is_kept_without_an_error(path: Path) -> None:
    bench = await open_bench(path)
    run = await bench.claimed(await bench.session(), "run", identity=TASK)
    flow = await bench.claimed(await bench.session(), "flow")
    await bench.store.close()

    def kill() -> None:
        db = sqlite3.connect(path, isolation_level=None)
        for one in (run, flow):
            db.execute("UPDATE runs SET status = 2, worker = 999 WHERE run = ?", (one.run,))
        db.close()

    await asyncio.to_thread(kill)
    bench = await open_bench(path)
    await bench.session()  # which looks for what the dead have left
    (one,) = await failures(bench, "run")
    assert (one.number, one.crashed, one.error) == (1, True, b"")
    assert await failures(bench, "flow") == []
    assert await bench.store.doctor() == []
    await bench.store.close()


async def test_a_workflow_shows_the_attempts_of_its_steps_with_a_queue(bench: Bench) -> None:
    session = await bench.session()
    parent = (await bench.claimed(session, "parent")).run
    children = [("0", bench.new("parent/0", identity=STEP)), ("1", bench.new("c", identity=TASK))]
    await bench.store.do(Append(parent, 1, children=children))
    for run in (await bench.claim(await bench.session(STEP, TASK))).runs:
        await bench.store.do(Reschedule(run.run, 1, None, 1, run.id.encode()))
    shown = [(one.path, one.number, one.error) for one in await failures(bench, "parent")]
    assert shown == [("0", 1, b"parent/0")]
    assert [one.path for one in await failures(bench, "c")] == [""]


async def test_a_workflow_run_that_fails_is_no_attempt_and_no_dead_letter(bench: Bench) -> None:
    run = await bench.claimed(await bench.session(), "flow")
    await bench.store.do(Finish(run.run, 1, Status.FAILED, b"boom", 1.0))
    assert await failures(bench, "flow") == []
    assert await dead(bench) == []


# --- the list ---


async def test_those_that_failed_last_come_first_in_pages(bench: Bench) -> None:
    session = await bench.session(TASK, OTHER, queues=["default", "mail"])
    for number in range(7):
        queue, identity = ("mail", OTHER) if number % 2 else ("default", TASK)
        await fail(bench, session, f"r{number}", float(number), identity=identity, queue=queue)
    done = await bench.claimed(session, "done", identity=TASK)
    await bench.store.do(Finish(done.run, 1, Status.COMPLETED, b"", 9.0, clean=True))
    assert await dead(bench) == ["r6", "r5", "r4", "r3", "r2", "r1", "r0"]
    assert await dead(bench, limit=3) == ["r6", "r5", "r4"]
    assert await dead(bench, limit=3, after="r4") == ["r3", "r2", "r1"]
    assert await dead(bench, after="r0") == []
    assert await dead(bench, queue="mail") == ["r5", "r3", "r1"]
    assert await dead(bench, name="other", queue="default") == []
    (row,) = await bench.store.read(ListDeadLetters(name=OTHER.name, limit=1))
    assert (row.id, row.name, row.queue, row.failed) == ("r5", "other", "mail", 5.0)
    assert (row.attempts, row.crashes, row.error, row.handled) == (1, 0, b"boom", False)


async def test_a_page_goes_on_after_a_row_that_was_requeued_meanwhile(bench: Bench) -> None:
    session = await bench.session()
    for number in range(3):
        await fail(bench, session, f"r{number}", float(number))
    await requeue(bench, "r1")
    assert await dead(bench) == ["r2", "r0"]
    assert await dead(bench, after="r1") == ["r0"]
    with pytest.raises(RunNotFound):
        await dead(bench, after="nobody")


async def test_large_errors_make_a_page_short_but_never_empty(bench: Bench) -> None:
    session = await bench.session()
    for number in range(3):
        run = await bench.claimed(session, f"r{number}", identity=TASK)
        large = bytes(6 * 1024 * 1024)
        await bench.store.do(Finish(run.run, 1, Status.FAILED, large, number, attempts=1))
    assert await dead(bench) == ["r2"]
    assert await dead(bench, after="r2") == ["r1"]


async def test_what_has_not_failed_is_not_looked_at_for_a_page(path: Path) -> None:
    bench = await open_bench(path)

    def steps() -> list[str]:
        db = sqlite3.connect(path)
        try:
            plan = f"EXPLAIN QUERY PLAN {SQL['list_dead_letters']}"
            return [row[3] for row in db.execute(plan, (1.0, 1, None, None, 10))]
        finally:
            db.close()

    plan = await asyncio.to_thread(steps)
    assert plan[0].startswith("SEARCH r USING INDEX runs_failed (")
    assert not any("TEMP B-TREE" in step for step in plan)
    await bench.store.close()


# --- requeue ---


async def test_a_requeued_task_has_a_fresh_budget(timed: Bench, clock: ManualClock) -> None:
    session = await timed.session()
    deadline = clock.now() + 60
    run = await timed.claimed(session, "run", identity=TASK, deadline=deadline)
    await timed.store.do(Finish(run.run, 1, Status.FAILED, b"boom", clock.now(), attempts=5))
    for number in (1, 2):
        clock.move(1000)
        assert await requeue(timed, "run", f"ask-{number}") == Status.READY
        assert await dead(timed) == []
        again = await timed.claim_one(session)
        assert (again.attempts, again.crashes, again.error) == (0, 0, b"boom")
        assert again.deadline == clock.now() + 60
        assert again.fence == 1 + 2 * number
        clock.move(7)
        await timed.store.do(
            Finish(run.run, again.fence, Status.FAILED, b"boom", clock.now(), attempts=1)
        )
    history = await timed.store.history("run")
    assert history is not None
    assert [(row.action, row.actor, row.reason) for row in history.audit] == [
        ("requeue", "ops", "mended"), ("requeue", "ops", "mended"),
    ]  # fmt: skip
    assert [one.number for one in history.failures] == [5, 1, 1]


async def test_a_cancel_that_came_too_late_does_not_end_a_requeued_task(bench: Bench) -> None:
    session = await bench.session()
    run = await bench.claimed(session, "run", identity=TASK)
    now = bench.clock.now()
    await bench.store.do(CancelRun("run", "c1", b"", now))
    await bench.store.do(Finish(run.run, 1, Status.FAILED, b"boom", now, attempts=1))
    await requeue(bench, "run")
    assert list((await bench.claim_one(session)).inbox) == []


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.CANCELLED])
async def test_what_has_not_failed_is_not_requeued(bench: Bench, status: Status) -> None:
    run = await bench.claimed(await bench.session(), "run", identity=TASK)
    await bench.store.do(Finish(run.run, 1, status, b"", 1.0, clean=True))
    with pytest.raises(RequestRefused, match="only a failed task"):
        await requeue(bench, "run")
    assert await bench.store.do(Requeue(["run"], "u", "", "", 1.0)) == 0


async def test_a_task_is_requeued_and_not_retried(bench: Bench) -> None:
    await fail(bench, await bench.session(), "run")
    with pytest.raises(RequestRefused, match="requeue it"):
        await bench.store.do(Ask("run", "ask", "retry", "", "", 1.0))
    assert await bench.status("run") == "failed"


async def test_a_task_whose_unique_key_another_has_by_now_is_not_requeued(bench: Bench) -> None:
    session = await bench.session()
    await fail(bench, session, "old", terms=Terms(unique="k"))
    other = await bench.store.do(Start(bench.new("other", identity=OTHER, terms=Terms(unique="k"))))
    new = await bench.store.do(Start(bench.new("new", identity=TASK, terms=Terms(unique="k"))))
    assert (other.created, new.created) == (True, True)
    with pytest.raises(RequestRefused, match="run 'new' has its unique key"):
        await requeue(bench, "old")
    run = await bench.claim_one(session)
    await bench.store.do(Finish(run.run, 1, Status.COMPLETED, b"", 2.0, clean=True))
    assert await requeue(bench, "old") == Status.READY
    again = await bench.store.do(Start(bench.new("again", identity=TASK, terms=Terms(unique="k"))))
    assert (again.id, again.created) == ("old", False)


async def test_many_are_requeued_and_the_others_are_left_as_they_are(bench: Bench) -> None:
    session = await bench.session()
    for number in range(3):
        await fail(bench, session, f"r{number}")
    await bench.start("ready", identity=TASK, queue="far")
    verb = Requeue(["r0", "ready", "nobody", "r2", "r0"], "u", "ops", "", bench.clock.now())
    assert await bench.store.do(verb) == 2
    assert [await bench.status(f"r{number}") for number in range(3)] == ["ready", "failed", "ready"]


async def test_an_outcome_that_a_parent_took_shows_in_the_list_and_is_final(bench: Bench) -> None:
    session = await bench.session()
    parent = await bench.claimed(session, "parent")
    child = bench.new("child", identity=TASK)
    await bench.store.do(Append(parent.run, 1, children=[("0", child)]))
    await bench.store.do(Park(parent.run, 1, None, "child"))
    run = await bench.claim_one(session)
    failed = Finish(run.run, 1, Status.FAILED, b"boom", 1.0, parent=parent.run, attempts=1)
    await bench.store.do(failed)
    (row,) = await bench.store.read(ListDeadLetters())
    assert (row.parent_id, row.handled) == ("parent", False)
    again = await bench.claim_one(session)
    took = Append(parent.run, 2, [bench.record(0)], absorbed=[again.inbox[0].id])
    await bench.store.do(took)
    (row,) = await bench.store.read(ListDeadLetters())
    assert row.handled
    with pytest.raises(RequestRefused, match="has taken its outcome"):
        await requeue(bench, "child")


# --- purge ---


async def test_purged_runs_are_gone_with_all_that_belongs_to_them(bench: Bench) -> None:
    session = await bench.session()
    for id in ("a", "b"):
        await fail(bench, session, id)
    parent = await bench.claimed(session, "parent")
    child = bench.new("child", identity=TASK)
    await bench.store.do(Append(parent.run, 1, children=[("0", child)]))
    run = await bench.claim_one(session)
    await bench.store.do(
        Finish(run.run, 1, Status.FAILED, b"boom", 1.0, parent=parent.run, attempts=1)
    )
    await bench.start("ready", identity=TASK, queue="far")
    await fail(bench, session, "last")
    ids = ["a", "b", "child", "parent", "ready", "last", "nobody"]
    assert await bench.store.do(PurgeDeadLetters(ids)) == 3  # a, b, and who was never there
    left = [id for id in ids if await bench.store.info(id) is not None]
    assert left == ["child", "parent", "ready", "last"]
    assert await bench.store.doctor() == []


async def test_a_run_whose_unique_key_is_taken_for_a_time_is_not_purged_before(
    timed: Bench, clock: ManualClock
) -> None:
    terms = Terms(unique="k", hold=Hold.UNTIL, held_until=clock.now() + 60)
    run = await timed.claimed(await timed.session(), "run", identity=TASK, terms=terms)
    await timed.start("last", identity=TASK)
    await timed.store.do(Finish(run.run, 1, Status.FAILED, b"", clock.now(), attempts=1))
    assert await timed.store.do(PurgeDeadLetters(["run"])) == 0
    assert not (await timed.store.do(Start(timed.new("again", identity=TASK, terms=terms)))).created
    clock.move(61)
    assert await timed.store.do(PurgeDeadLetters(["run"])) == 1


@pytest.mark.parametrize("kind", [Requeue, PurgeDeadLetters])
async def test_too_many_at_once_are_refused(bench: Bench, kind: type) -> None:
    ids = [f"r{number}" for number in range(1001)]
    verb = PurgeDeadLetters(ids) if kind is PurgeDeadLetters else Requeue(ids, "u", "", "", 1.0)
    with pytest.raises(ValueError, match="at most 1000 ids"):
        await bench.store.do(verb)

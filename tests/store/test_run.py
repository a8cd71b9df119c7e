"""What the holder of a run says, and what it may not say."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell_queue import (
    Append,
    Claimed,
    Finish,
    IdConflict,
    Identity,
    InboxKind,
    Kind,
    OpenOp,
    Park,
    Phase,
    Reschedule,
    Rollback,
    Settle,
    StaleFence,
    Start,
    Status,
    Verb,
)
from tests.store.kit import TASK, Bench, Listener

pytestmark = pytest.mark.anyio


def writes(bench: Bench, run: int, fence: int) -> list[Verb[Any]]:
    """One of each verb that a holder can say."""
    now = bench.clock.now()
    return [
        Append(run, fence, [bench.record(0)]),
        Append(run, fence, [bench.record(0), bench.record(1)]),
        Append(run, fence, closed=["0"], opened=[OpenOp("1", "wait", "", None)], phase=1),
        Append(run, fence, children=[("0", bench.new())]),
        Append(run, fence, absorbed=[1], cancels=["x"]),
        Park(run, fence, None, "waits"),
        Settle(run, fence, Status.HELD, b"why"),
        Reschedule(run, fence, None, attempts=1),
        Finish(run, fence, Status.COMPLETED, b"late", now, clean=True),
        Finish(run, fence, Status.FAILED, b"late" * 1000, now),
    ]


async def test_a_stale_fence_changes_nothing(bench: Bench) -> None:
    session = await bench.session()
    first = await bench.claimed(session, "run")
    await bench.store.do(Reschedule(first.run, 1, None))
    second = await bench.claim_one(session)
    await bench.store.do(Append(second.run, 2, [bench.record(0)]))
    before = await bench.store.history("run")
    for verb in writes(bench, first.run, 1) + writes(bench, first.run, 3):
        with pytest.raises(StaleFence):
            await bench.store.do(verb)
    assert await bench.store.history("run") == before


async def test_of_many_records_in_one_batch_only_those_at_fault_are_refused(bench: Bench) -> None:
    session = await bench.session()
    runs = [await bench.claimed(session, f"run-{n}") for n in range(50)]
    record = bench.record(0)
    for there in (33, 34):
        await bench.store.do(Append(runs[there].run, 1, [record]))
    verbs = [Append(one.run, 1, [record]) for one in runs]
    verbs[5] = Append(runs[5].run, 2, [record])
    verbs[20] = Append(runs[20].run, 1, [bench.record(0, digest=2**70)])
    verbs[34] = Append(runs[34].run, 1, [bench.record(0, value=b"another")])
    for n in (30, 31):
        await bench.signal(f"run-{n}", "u")
    verbs[30] = Append(runs[30].run, 1, [record], absorbed=[1])
    verbs[31] = Append(runs[31].run, 1, [record], absorbed=[2, 2**70])
    verbs.append(Append(runs[0].run, 1, [record]))  # a repetition within the batch
    verbs.append(Append(runs[0].run, 1, [bench.record(1)]))
    answers = await asyncio.gather(
        *(bench.store.do(verb) for verb in verbs), return_exceptions=True
    )
    refused = {n: type(answer) for n, answer in enumerate(answers) if answer is not None}
    faults = {5: StaleFence, 20: OverflowError, 31: OverflowError, 34: StaleFence}
    assert refused == faults, answers
    for n in range(50):
        history = await bench.store.history(f"run-{n}")
        assert history is not None
        expected = 0 if n in (5, 20, 31) else 2 if n == 0 else 1
        assert len(history.inbox) == (n == 31), n
        assert [record.seq for record in history.journal] == list(range(expected)), n


async def test_of_many_ends_in_one_batch_only_those_at_fault_are_refused(bench: Bench) -> None:
    session = await bench.session()
    runs = [await bench.claimed(session, f"run-{n}") for n in range(20)]
    now = bench.clock.now()

    def end(n: int, value: bytes = b"done", fence: int = 1, **fields: Any) -> Finish:
        return Finish(runs[n].run, fence, Status.COMPLETED, value, now, clean=True, **fields)

    for there in (13, 14):
        await bench.store.do(end(there))
    waiting = [asyncio.create_task(bench.store.wait_ended(f"run-{n}")) for n in (0, 12, 19)]
    await asyncio.sleep(0)
    verbs: list[Verb[Any]] = [end(n) for n in range(20)]
    verbs[5] = end(5, fence=2)
    verbs[7] = Append(runs[7].run, 1, [bench.record(0)])
    verbs[9] = end(9, rollback=2**70)
    verbs[10] = end(10, b"much" * 1000)
    verbs[11] = Finish(runs[11].run, 2**70, Status.COMPLETED, b"done", now, clean=True)
    verbs[14] = end(14, b"another")
    verbs += [end(0), end(7)]  # a repetition within the batch, and the end of the one that wrote
    answers: list[object] = await asyncio.gather(
        *(bench.store.do(verb) for verb in verbs), return_exceptions=True
    )
    refused = {n: type(answer) for n, answer in enumerate(answers) if answer is not None}
    assert refused == {
        5: StaleFence,
        9: OverflowError,
        11: OverflowError,
        14: StaleFence,
    }, answers
    async with asyncio.timeout(10):
        assert [(await one).value for one in waiting] == [b"done"] * 3
    for n in range(20):
        info = await bench.store.info(f"run-{n}")
        assert info is not None
        held = n in (5, 9, 11)
        assert info.status == (Status.RUNNING if held else Status.COMPLETED), n
        assert info.value == (b"" if held else b"much" * 1000 if n == 10 else b"done"), n
    assert {worker.held for worker in await bench.store.workers()} == {3}


async def test_a_run_that_ended_takes_no_more_writes(bench: Bench) -> None:
    session = await bench.session()
    run = await bench.claimed(session, "run")
    await bench.store.do(Finish(run.run, 1, Status.COMPLETED, b"v", bench.clock.now()))
    before = await bench.store.history("run")
    for verb in writes(bench, run.run, 1):
        if isinstance(verb, Append) and not verb.records:
            await bench.store.do(verb)  # it can only have been said before the end
            continue
        with pytest.raises(StaleFence):
            await bench.store.do(verb)
    assert await bench.store.history("run") == before


async def test_a_record_is_stored_as_it_was_said(bench: Bench) -> None:
    run = await bench.claimed(await bench.session(), "run")
    record = bench.record(0, "4.1.0", value=bytes(3000), attempt=3, started=5.5, digest=77)
    await bench.store.do(Append(run.run, 1, [record]))
    history = await bench.store.history("run")
    assert history is not None
    assert list(history.journal) == [record]


async def test_a_repeated_append_is_fine_and_happens_once(bench: Bench) -> None:
    run = await bench.claimed(await bench.session(), "run")
    op = OpenOp("5", "wait", "go", None)
    verbs = [
        Append(run.run, 1, [bench.record(0)]),
        Append(run.run, 1, [bench.record(1), bench.record(2)], opened=[op]),
        Append(run.run, 1, closed=["5"], children=[("6", bench.new("child"))]),
    ]
    for verb in verbs:
        await bench.store.do(verb)
        before = await bench.store.history("run")
        await bench.store.do(verb)
        assert await bench.store.history("run") == before


@pytest.mark.parametrize("count", [1, 2])
async def test_another_record_at_the_same_place_is_refused(bench: Bench, count: int) -> None:
    run = await bench.claimed(await bench.session(), "run")
    await bench.store.do(Append(run.run, 1, [bench.record(0)]))
    others = [bench.record(0, value=b"other"), bench.record(1)][:count]
    with pytest.raises(StaleFence):
        await bench.store.do(Append(run.run, 1, others))
    history = await bench.store.history("run")
    assert history is not None
    assert [record.value for record in history.journal] == [b"value"]


async def test_a_record_that_cannot_be_stored_takes_nothing_with_it(bench: Bench) -> None:
    run = await bench.claimed(await bench.session(), "run")
    bad = Append(run.run, 1, [bench.record(0)], opened=[OpenOp("\ud800", "wait", "", None)])
    good = Append(run.run, 1, [bench.record(0, value=b"good")])
    refused, accepted = await asyncio.gather(
        bench.store.do(bad), bench.store.do(good), return_exceptions=True
    )
    assert isinstance(refused, UnicodeEncodeError)
    assert accepted is None
    history = await bench.store.history("run")
    assert history is not None
    assert [record.value for record in history.journal] == [b"good"]


async def test_open_operations_are_replaced_and_closed(bench: Bench) -> None:
    run = await bench.claimed(await bench.session(), "run")
    first = OpenOp("0", "retry", "charge", 5.0, 1, b"boom")
    second = OpenOp("0", "retry", "charge", 9.0, 2, b"again")
    other = OpenOp("1", "wait", "go", None)
    await bench.store.do(Append(run.run, 1, opened=[first, other]))
    await bench.store.do(Append(run.run, 1, opened=[second]))
    assert await _ops(bench) == [second, other]
    await bench.store.do(Append(run.run, 1, [bench.record(0)], closed=["0", "unknown"]))
    assert await _ops(bench) == [other]


async def _ops(bench: Bench, id: str = "run") -> list[OpenOp]:
    history = await bench.store.history(id)
    assert history is not None
    return list(history.open_ops)


async def test_absorbing_marks_row_by_row(bench: Bench) -> None:
    session = await bench.session()
    run = await bench.claimed(session, "run")
    for n in range(3):
        await bench.signal("run", f"u{n}")
    rows = await bench.store.do(Park(run.run, 1, None, "go"))
    assert [row.uid for row in rows] == ["u0", "u1", "u2"]
    await bench.store.do(Append(run.run, 1, [bench.record(0, "")], absorbed=[rows[1].id]))
    rows = await bench.store.do(Park(run.run, 1, None, "go"))
    assert [row.uid for row in rows] == ["u0", "u2"]


async def test_absorbing_rows_of_another_run_has_no_effect(bench: Bench) -> None:
    session = await bench.session()
    mine, other = await bench.claimed(session, "mine"), await bench.claimed(session, "other")
    await bench.signal("other", "u")
    (row,) = await bench.store.do(Park(other.run, 1, None, "go"))
    await bench.store.do(Append(mine.run, 1, [bench.record(0)], absorbed=[row.id]))
    assert len(await bench.park(other.run, 1)) == 1


async def test_park_succeeds_only_with_an_empty_inbox(bench: Bench) -> None:
    listener = Listener()
    session = await bench.session(listener=listener)
    run = await bench.claimed(session, "run")
    await bench.signal("run", "u")
    op = OpenOp("0", "wait", "go", None)
    rows = await bench.store.do(Park(run.run, 1, None, "go", opened=[op]))
    assert [row.uid for row in rows] == ["u"]
    assert await bench.status("run") == "running"
    assert await _ops(bench) == [op]
    absorb = Append(run.run, 1, [bench.record(0, "")], absorbed=[rows[0].id])
    await bench.store.do(absorb)
    assert await bench.park(run.run, 1) == []
    assert await bench.status("run") == "parked"


async def test_a_repeated_park_is_fine_until_somebody_claims(bench: Bench) -> None:
    session = await bench.session()
    run = await bench.claimed(session, "run")
    for _ in range(2):
        assert await bench.park(run.run, 1) == []
    await bench.signal("run", "u")
    assert await bench.park(run.run, 1) == []
    await bench.claim_one(session)
    with pytest.raises(StaleFence):
        await bench.park(run.run, 1)


async def test_a_parked_run_says_what_it_waits_for(bench: Bench) -> None:
    session = await bench.session()
    run = await bench.claimed(session, "run")
    due = bench.clock.now() + 1000
    await bench.store.do(Park(run.run, 1, due, "signal go"))
    info = await bench.store.info("run")
    assert info is not None
    assert (info.waiting, info.due, info.worker) == ("signal go", due, None)
    await bench.signal("run", "u")
    info = await bench.store.info("run")
    assert info is not None
    assert (info.waiting, info.due, info.status_name) == ("", None, "ready")


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("size", [3, 5000])
async def test_finishing_twice_with_the_same_outcome_is_fine(
    bench: Bench, clean: bool, size: int
) -> None:
    run = await bench.claimed(await bench.session(), "run")
    now = bench.clock.now()
    verb = Finish(run.run, 1, Status.COMPLETED, b"v" * size, now, clean=clean, attempts=2)
    await bench.store.do(verb)
    before = await bench.store.info("run")
    await bench.store.do(verb)
    assert await bench.store.info("run") == before
    assert before is not None
    assert (before.value, before.ended, before.attempts) == (b"v" * size, now, 2)
    with pytest.raises(StaleFence):
        await bench.store.do(Finish(run.run, 1, Status.COMPLETED, b"other", now, clean=clean))


async def test_finish_closes_operations_and_keeps_what_nobody_took(bench: Bench) -> None:
    run = await bench.claimed(await bench.session(), "run")
    op = OpenOp("0", "wait", "go", None)
    await bench.store.do(Append(run.run, 1, [bench.record(0)], opened=[op]))
    await bench.signal("run", "unused")
    now = bench.clock.now()
    await bench.store.do(Finish(run.run, 1, Status.FAILED, b"e", now, Rollback.INCOMPLETE))
    history = await bench.store.history("run")
    assert history is not None
    assert (history.run.status_name, history.run.rollback) == ("failed", Rollback.INCOMPLETE)
    assert list(history.open_ops) == []
    assert [row.uid for row in history.inbox] == ["unused"]
    assert len(history.journal) == 1


async def test_rolling_back_shows_until_the_end(bench: Bench) -> None:
    run = await bench.claimed(await bench.session(), "run")
    await bench.store.do(Append(run.run, 1, [bench.record(0)], phase=Phase.ROLLING_BACK))
    assert await bench.status("run") == "rolling_back"
    await bench.store.do(Finish(run.run, 1, Status.FAILED, b"", bench.clock.now()))
    assert await bench.status("run") == "failed"


@pytest.mark.parametrize("status", [Status.HELD, Status.STUCK])
async def test_a_settled_run_keeps_its_reason_and_is_not_claimed(
    bench: Bench, status: Status
) -> None:
    session = await bench.session()
    run = await bench.claimed(session, "run")
    verb = Settle(run.run, 1, status, b"reason" * 500)
    await bench.store.do(verb)
    await bench.store.do(verb)
    info = await bench.store.info("run")
    assert info is not None
    assert (info.status, info.value, info.worker) == (status, b"reason" * 500, None)
    await bench.signal("run", "kept")
    assert (await bench.claim(session)).runs == []
    assert await bench.status("run") == status.name.lower()


async def start_child(bench: Bench, parent: Claimed, id: str = "child", path: str = "2") -> None:
    await bench.store.do(
        Append(
            parent.run,
            parent.fence,
            opened=[OpenOp(path, "child", "mail", None, value=id.encode())] if path else (),
            children=[(path, bench.new(id, identity=TASK, args=b"a" * 2000))],
        )
    )


async def test_a_child_knows_its_parent_and_tells_it_its_end(bench: Bench) -> None:
    listener = Listener()
    session = await bench.session(listener=listener)
    parent = await bench.claimed(session, "parent")
    await start_child(bench, parent)
    child = await bench.claim_one(session)
    assert (child.parent, child.parent_id, child.parent_path) == (parent.run, "parent", "2")
    assert child.args == b"a" * 2000
    await bench.store.do(Park(parent.run, 1, None, "child"))
    listener.ready.clear()
    now = bench.clock.now()
    finish = Finish(child.run, 1, Status.COMPLETED, b"result", now, parent=parent.run)
    await bench.store.do(finish)
    await bench.store.do(finish)
    await listener.wait_ready()
    again = await bench.claim_one(session)
    (row,) = again.inbox
    assert (row.kind, row.name, row.path) == (InboxKind.CHILD_ENDED, "child", "2")
    assert (row.status, row.value) == (Status.COMPLETED, b"result")


async def test_the_end_of_a_child_reaches_a_parent_that_is_held(bench: Bench) -> None:
    listener = Listener()
    session = await bench.session(listener=listener)
    parent = await bench.claimed(session, "parent")
    await start_child(bench, parent)
    child = await bench.claim_one(session)
    now = bench.clock.now()
    await bench.store.do(Finish(child.run, 1, Status.FAILED, b"e", now, parent=parent.run))
    assert [(row.run, row.status) for row in listener.rows] == [(parent.run, Status.FAILED)]


async def test_the_same_child_again_is_fine_another_owner_is_not(bench: Bench) -> None:
    session = await bench.session()
    first, second = await bench.claimed(session, "first"), await bench.claimed(session, "second")
    await start_child(bench, first)
    await start_child(bench, first)
    record = bench.record(0)
    with pytest.raises(IdConflict, match="child"):
        await bench.store.do(
            Append(second.run, 1, [record], children=[("0", bench.new("child", identity=TASK))])
        )
    history = await bench.store.history("second")
    assert history is not None
    assert list(history.journal) == []


async def test_a_child_that_ends_after_its_parent_tells_nobody(bench: Bench) -> None:
    session = await bench.session()
    parent = await bench.claimed(session, "parent")
    await start_child(bench, parent, path="")
    child = await bench.claim_one(session)
    now = bench.clock.now()
    await bench.store.do(Finish(parent.run, 1, Status.COMPLETED, b"", now))
    await bench.store.do(Finish(child.run, 1, Status.COMPLETED, b"", now, parent=parent.run))
    history = await bench.store.history("parent")
    assert history is not None
    assert list(history.inbox) == []
    assert [run.id for run in history.children] == ["child"]


async def test_unstarted_jobs_of_a_run_that_ended_are_withdrawn(bench: Bench) -> None:
    session = await bench.session()
    parent = await bench.claimed(session, "parent")
    job = bench.new("job", identity=Identity(Kind.STEP, "render", 1), queue="gpu")
    await bench.store.do(Append(parent.run, 1, children=[("0", job)]))
    await bench.store.do(Finish(parent.run, 1, Status.FAILED, b"", bench.clock.now()))
    assert await bench.status("job") == "cancelled"


async def test_a_parent_cancels_its_children_only(bench: Bench) -> None:
    listener = Listener()
    session = await bench.session(TASK, listener=listener)
    other = await bench.session()
    parent = await bench.claimed(other, "parent")
    await start_child(bench, parent, "running", "0")
    running = await bench.claim_one(session)
    await start_child(bench, parent, "waiting", "1")
    await bench.start("stranger", identity=TASK)
    cancels = ["running", "waiting", "stranger", "unknown"]
    for _ in range(2):
        await bench.store.do(Append(parent.run, 1, cancels=cancels))
    assert await bench.status("waiting") == "cancelled"
    assert await bench.status("stranger") == "ready"
    assert [(row.run, row.kind) for row in listener.rows] == [(running.run, InboxKind.CANCEL)]
    rows = await bench.store.do(Park(parent.run, 1, None, "children"))
    assert [(row.name, row.status) for row in rows] == [("waiting", Status.CANCELLED)]


async def test_a_callback_that_fails_leaves_the_others_alone(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[object] = []
    done = asyncio.Event()

    def broken(result: object) -> None:
        raise RuntimeError("broken callback")

    def last(result: object) -> None:
        answers.append(result)
        done.set()

    bench.store.submit(Start(bench.new("a")), broken)
    bench.store.submit(Start(bench.new("b")), last)
    await done.wait()
    assert len(answers) == 1
    assert "callback of Start failed" in caplog.text

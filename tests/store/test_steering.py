"""Runs that are terminated and paused, and names of which nothing is claimed."""

from __future__ import annotations

import asyncio

import pytest

from stepwell_queue import (
    Append,
    Ask,
    CancelRun,
    Claim,
    Identity,
    InboxKind,
    Kind,
    OpenOp,
    RequestRefused,
    Reschedule,
    RunNotFound,
    StaleFence,
    Start,
    Status,
    Terms,
)
from stepwell_queue.contract import (
    Fork,
    ListPausedNames,
    PausedName,
    PauseName,
    ResumeName,
    Terminate,
)
from tests.store.kit import TASK, WORKFLOW, Bench, Listener, ManualClock

pytestmark = pytest.mark.anyio
STEP = Identity(Kind.STEP, "render", 0)


async def terminate(bench: Bench, id: str, uid: str = "uid") -> tuple[int, bool]:
    verb = Terminate(id, uid, b"why", bench.clock.now(), "ann", "broken")
    answer = await bench.store.do(verb)
    return answer.status, answer.more


async def ask(bench: Bench, id: str, action: str, uid: str = "") -> str:
    verb = Ask(id, uid or f"{action}-{bench.count}", action, "ann", "wait", bench.clock.now())
    bench.count += 1
    return Status(await bench.store.do(verb)).name.lower()


async def actions(bench: Bench, id: str) -> list[tuple[str, str, str]]:
    found = await bench.store.history(id)
    assert found is not None
    return [(row.action, row.actor, row.reason) for row in found.audit]


async def test_what_a_terminated_run_waits_for_ends_with_it(bench: Bench) -> None:
    session = await bench.session(WORKFLOW, TASK, STEP)
    root = await bench.claimed(session, "root", identity=WORKFLOW)
    children = [
        ("0", bench.new("child", identity=WORKFLOW)),
        ("1", bench.new("render", identity=STEP)),
        ("", bench.new("detached")),
    ]
    ops = [OpenOp("0", "child", "checkout", None), OpenOp("1", "remote", "render", None)]
    await bench.store.do(Append(root.run, root.fence, children=children, opened=ops))
    child = next(one for one in (await bench.claim(session, 2)).runs if one.id == "child")
    below = [("0", bench.new("grandchild", identity=WORKFLOW))]
    await bench.store.do(Append(child.run, child.fence, children=below))
    ended = asyncio.create_task(bench.store.wait_ended("grandchild"))

    assert await terminate(bench, "root") == (Status.TERMINATED, False)

    for id in ("root", "child", "render", "grandchild"):
        assert await bench.status(id) == "terminated", id
    assert await bench.status("detached") in ("ready", "running")
    assert (await ended).value == b"why"
    found = await bench.store.history("root")
    assert found is not None
    assert not found.open_ops
    assert await actions(bench, "root") == [("terminate", "ann", "broken")]
    ((_, actor, reason),) = await actions(bench, "grandchild")
    assert actor == "ann"
    assert "'root'" in reason
    assert "broken" in reason


async def test_a_worker_loses_what_is_terminated_and_writes_nothing_more(bench: Bench) -> None:
    listener = Listener()
    session = await bench.session(listener=listener)
    run = await bench.claimed(session, "run")
    await terminate(bench, "run")
    async with asyncio.timeout(10):
        await listener.lost_some.wait()
    assert listener.lost == [run.run]
    with pytest.raises(StaleFence):
        await bench.store.do(Append(run.run, run.fence, [bench.record(0)]))


async def test_terminating_again_changes_nothing(bench: Bench) -> None:
    await bench.start("run")
    assert await terminate(bench, "run") == await terminate(bench, "run", "other")
    assert len(await actions(bench, "run")) == 1
    with pytest.raises(RunNotFound):
        await terminate(bench, "nobody")


async def test_a_run_that_ended_otherwise_stays_as_it_is(bench: Bench) -> None:
    await bench.start("run")
    await bench.store.do(CancelRun("run", "c", b"", bench.clock.now()))
    assert await terminate(bench, "run") == (Status.CANCELLED, False)
    assert await bench.status("run") == "cancelled"


async def test_the_parent_of_a_terminated_child_is_told(bench: Bench) -> None:
    session = await bench.session()
    root = await bench.claimed(session, "root")
    child = [("0", bench.new("child"))]
    await bench.store.do(
        Append(root.run, 1, children=child, opened=[OpenOp("0", "child", "x", None)])
    )
    await bench.park(root.run, 1)
    await terminate(bench, "child")
    (again,) = (await bench.claim(session)).runs
    (row,) = again.inbox
    assert (row.kind, row.status) == (InboxKind.CHILD_ENDED, Status.TERMINATED)


async def test_what_was_to_start_after_a_terminated_run_fails(bench: Bench) -> None:
    await bench.start("first")
    await bench.start("second", terms=Terms(after=["first"], failures=[b"error"]))
    await bench.start("third", terms=Terms(after=["first"], anyhow=True))
    await terminate(bench, "first")
    assert await bench.status("second") == "failed"
    assert await bench.status("third") == "ready"


async def test_a_terminated_run_gives_its_unique_key_back(bench: Bench) -> None:
    await bench.start("first", terms=Terms(unique="key"))
    await terminate(bench, "first")
    assert (await bench.start("second", terms=Terms(unique="key"))).created


async def test_more_children_than_one_transaction_should_end_take_several(bench: Bench) -> None:
    session = await bench.session()
    root = await bench.claimed(session, "root")
    children = [(str(at), bench.new(f"child-{at}")) for at in range(1001)]
    await bench.store.do(Append(root.run, 1, children=children))
    assert await terminate(bench, "root") == (Status.TERMINATED, True)
    assert await terminate(bench, "root") == (Status.TERMINATED, False)
    assert await bench.status("child-1000") == "terminated"


async def test_a_paused_run_is_not_claimed_until_it_is_resumed(bench: Bench) -> None:
    session = await bench.session()
    await bench.start("run")
    assert await ask(bench, "run", "pause") == "paused"
    assert await ask(bench, "run", "pause") == "paused"
    assert (await bench.claim(session)).runs == []
    assert await ask(bench, "run", "resume") == "ready"
    assert (await bench.claim_one(session)).id == "run"
    assert [one[0] for one in await actions(bench, "run")] == ["pause", "pause", "resume"]


async def test_what_runs_is_paused_when_its_worker_lets_go_of_it(bench: Bench) -> None:
    listener = Listener()
    session = await bench.session(listener=listener)
    run = await bench.claimed(session, "run")
    assert await ask(bench, "run", "pause") == "running"
    async with asyncio.timeout(10):
        await listener.told.wait()
    assert [row.kind for row in listener.rows] == [InboxKind.PAUSE]
    (row,) = await bench.park(run.run, 1)  # it is told instead of being parked
    assert row.kind == InboxKind.PAUSE
    await bench.store.do(Append(run.run, 1, [bench.record(0)]))
    await bench.store.do(Reschedule(run.run, 1, None))
    assert await bench.status("run") == "paused"
    assert await ask(bench, "run", "resume") == "ready"
    assert not (await bench.claim_one(session)).inbox


async def test_a_run_whose_worker_dies_before_it_has_paused_is_paused(bench: Bench) -> None:
    session = await bench.session()
    await bench.claimed(session, "run")
    await ask(bench, "run", "pause")
    await session.close()
    assert await bench.status("run") == "paused"


async def test_a_pause_that_has_not_come_about_is_taken_back(bench: Bench) -> None:
    session = await bench.session()
    run = await bench.claimed(session, "run")
    await ask(bench, "run", "pause")
    assert await ask(bench, "run", "resume") == "running"
    await bench.store.do(Reschedule(run.run, 1, None))
    assert await bench.status("run") == "ready"
    with pytest.raises(RequestRefused, match="only a stuck or paused run"):
        await ask(bench, "run", "resume")


async def test_signals_wait_for_the_end_of_a_pause(bench: Bench) -> None:
    session = await bench.session()
    run = await bench.claimed(session, "run")
    await bench.park(run.run, 1)
    await ask(bench, "run", "pause")
    await bench.signal("run", "s")
    assert await bench.status("run") == "paused"
    assert await ask(bench, "run", "resume") == "ready"
    (row,) = (await bench.claim_one(session)).inbox
    assert row.uid == "s"


async def test_a_cancel_ends_a_pause(bench: Bench) -> None:
    session = await bench.session()
    run = await bench.claimed(session, "begun")
    await bench.park(run.run, 1)
    await bench.start("fresh")
    for id, then in (("begun", "ready"), ("fresh", "cancelled")):
        await ask(bench, id, "pause")
        await bench.store.do(CancelRun(id, "c", b"", bench.clock.now()))
        assert await bench.status(id) == then
    with pytest.raises(RequestRefused, match="asked to cancel"):
        await ask(bench, "begun", "pause")


async def test_what_has_ended_cannot_be_paused(bench: Bench) -> None:
    await bench.start("run")
    await terminate(bench, "run")
    with pytest.raises(RequestRefused, match="it has ended"):
        await ask(bench, "run", "pause")
    with pytest.raises(RequestRefused, match="stuck or paused"):
        await ask(bench, "run", "resume")


async def test_a_paused_run_can_be_terminated(bench: Bench) -> None:
    await bench.start("run")
    await ask(bench, "run", "pause")
    assert await terminate(bench, "run") == (Status.TERMINATED, False)


async def test_times_that_pass_during_a_pause_have_their_effect_at_its_end(
    timed: Bench, clock: ManualClock
) -> None:
    session = await timed.session()
    run = await timed.claimed(session, "sleeps")
    await timed.park(run.run, 1, clock.now() + 10, [OpenOp("0", "sleep", "", clock.now() + 10)])
    await timed.start("starts", due=clock.now() + 10)
    await timed.start("later", due=clock.now() + 1000)
    for id in ("sleeps", "starts", "later"):
        assert await ask(timed, id, "pause") == "paused"
    clock.move(100)
    assert (await timed.claim(session)).runs == []
    await ask(timed, "sleeps", "resume")
    assert await ask(timed, "starts", "resume") == "ready"
    assert await ask(timed, "later", "resume") == "scheduled"
    assert {one.id for one in (await timed.claim(session)).runs} == {"sleeps", "starts"}


async def test_a_paused_run_starts_after_others_once_both_allow_it(bench: Bench) -> None:
    await bench.start("first")
    await bench.start("second", terms=Terms(after=["first"]))
    await bench.start("third", terms=Terms(after=["first"], failures=[b"error"]))
    await ask(bench, "second", "pause")
    assert await ask(bench, "second", "resume") == "scheduled"
    await ask(bench, "second", "pause")
    await ask(bench, "third", "pause")
    session = await bench.session()
    first = await bench.claim_one(session)
    await bench.store.do(Reschedule(first.run, 1, None))
    await terminate(bench, "first")
    assert await bench.status("second") == "failed"
    assert await bench.status("third") == "failed"


async def test_nothing_of_a_paused_name_is_claimed_and_the_rest_is(bench: Bench) -> None:
    session = await bench.session()
    await bench.start("old")
    paused_at = bench.clock.now()
    name = bench.new().name
    await bench.store.do(PauseName(name, "u1", paused_at, "ann", "broken"))
    await bench.store.do(PauseName(name, "u2", paused_at + 1, "bob", "too"))  # the first one counts
    assert await bench.store.read(ListPausedNames()) == [
        PausedName(name, paused_at, "ann", "broken")
    ]
    new = bench.new("new")
    assert (await bench.store.do(Start(new, session.worker))).status == Status.READY
    await bench.start("elsewhere", queue="other")  # a target that did not exist yet
    task = await bench.store.do(Start(bench.new("task", identity=TASK), session.worker))
    assert task.status == Status.RUNNING  # others are not even slowed down
    both = await bench.session(queues=["default", "other"])
    assert (await bench.store.do(Claim(both.worker, 10, {}))).runs == []
    await bench.store.do(ResumeName(name, "u3", paused_at + 2))
    await bench.store.do(PauseName(name, "u2", paused_at + 1))  # said again: it is over
    claimed = (await bench.store.do(Claim(both.worker, 10, {}))).runs
    assert {one.id for one in claimed} == {"old", "new", "elsewhere"}
    assert await bench.store.read(ListPausedNames()) == []


async def test_a_name_stays_paused_when_its_queue_is_not(bench: Bench) -> None:
    from stepwell_queue.contract import PauseQueue, ResumeQueue

    session = await bench.session()
    await bench.start("run")
    name = bench.new().name
    await bench.store.do(PauseQueue("default", None))
    await bench.store.do(PauseName(name, "u1", bench.clock.now()))
    await bench.store.do(ResumeQueue("default"))
    assert (await bench.claim(session)).runs == []
    await bench.store.do(PauseQueue("default", None))
    await bench.store.do(ResumeName(name, "u2", bench.clock.now()))
    assert (await bench.claim(session)).runs == []
    await bench.store.do(ResumeQueue("default"))
    assert (await bench.claim_one(session)).id == "run"


async def test_a_fork_that_is_said_again_is_one_and_takes_a_part_of_the_journal(
    bench: Bench,
) -> None:
    session = await bench.session()
    source = await bench.claimed(session, "source")
    records = [bench.record(at) for at in range(3)]
    await bench.store.do(Append(source.run, 1, records, opened=[OpenOp("3", "wait", "go", None)]))
    verb = Fork("source", 2, bench.new("fork"), "uid", bench.clock.now(), "ann", "why")
    first = await bench.store.do(verb)
    assert await bench.store.do(verb) == first
    fork = await bench.claim_one(session)
    assert (fork.id, list(fork.journal), list(fork.open_ops)) == ("fork", records[:2], [])
    assert [one[0] for one in await actions(bench, "source")] == ["fork"]
    assert [one[0] for one in await actions(bench, "fork")] == ["fork"]
    with pytest.raises(RequestRefused, match="has 3 records"):
        await bench.store.do(Fork("source", 4, bench.new(), "u2", bench.clock.now()))
    with pytest.raises(RunNotFound):
        await bench.store.do(Fork("nobody", 0, bench.new(), "u2", bench.clock.now()))
    await bench.start("task", identity=TASK)
    with pytest.raises(RequestRefused, match="no workflow run"):
        await bench.store.do(Fork("task", 0, bench.new(), "u2", bench.clock.now()))


async def test_what_changed_nothing_and_is_said_again_takes_nothing_back(bench: Bench) -> None:
    now = bench.clock.now()
    await bench.start("run")
    await ask(bench, "run", "pause")
    assert await ask(bench, "run", "pause", "again") == "paused"
    assert await ask(bench, "run", "resume") == "ready"
    assert await ask(bench, "run", "pause", "again") == "ready"
    too_early = ResumeName("checkout", "early", now)
    await bench.store.do(too_early)
    await bench.store.do(PauseName("checkout", "pause", now))
    await bench.store.do(too_early)
    assert [row.name for row in await bench.store.read(ListPausedNames())] == ["checkout"]
    assert await bench.store.doctor() == []

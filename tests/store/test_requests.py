"""What operators ask of a run."""

from __future__ import annotations

import pytest

from stepwell_queue import (
    Append,
    Ask,
    Claimed,
    Finish,
    InboxKind,
    Park,
    Phase,
    RequestRefused,
    Rollback,
    RunNotFound,
    Settle,
    StaleFence,
    Status,
)
from tests.store.kit import TASK, Bench

pytestmark = pytest.mark.anyio


async def ask(bench: Bench, id: str, action: str, uid: str = "ask") -> int:
    return await bench.store.do(Ask(id, uid, action, "ops", "fixed it", bench.clock.now()))


async def ended(
    bench: Bench, status: Status, rollback: Rollback = Rollback.NONE, id: str = "run"
) -> Claimed:
    run = await bench.claimed(await bench.session(), id)
    await bench.store.do(Append(run.run, 1, [bench.record(0)]))
    if status < Status.COMPLETED:
        await bench.store.do(Settle(run.run, 1, status, b"boom"))
    else:
        await bench.store.do(Finish(run.run, 1, status, b"boom", bench.clock.now(), rollback))
    return run


@pytest.mark.parametrize(
    ("status", "rollback", "action", "kind"),
    [
        (Status.HELD, Rollback.NONE, "retry", InboxKind.RETRY),
        (Status.FAILED, Rollback.NONE, "retry", InboxKind.RETRY),
        (Status.HELD, Rollback.NONE, "roll_back", InboxKind.ROLL_BACK),
        (Status.FAILED, Rollback.INCOMPLETE, "resume_rollback", InboxKind.RESUME_ROLLBACK),
        (Status.CANCELLED, Rollback.INCOMPLETE, "resume_rollback", InboxKind.RESUME_ROLLBACK),
    ],
)
async def test_a_request_that_fits_makes_the_run_ready(
    bench: Bench, status: Status, rollback: Rollback, action: str, kind: InboxKind
) -> None:
    await ended(bench, status, rollback)
    for _ in range(2):
        assert await ask(bench, "run", action) == Status.READY
    run = await bench.claim_one(await bench.session())
    assert [row.kind for row in run.inbox] == [kind]
    assert (run.error, len(run.journal)) == (b"boom", 1)
    assert run.fence == (3 if status >= Status.COMPLETED else 2)
    assert (run.phase == Phase.ROLLING_BACK) == (action == "resume_rollback")
    history = await bench.store.history("run")
    assert history is not None
    assert history.run.ended is None
    assert [(row.action, row.actor, row.reason) for row in history.audit] == [
        (action, "ops", "fixed it")
    ]


async def test_a_stuck_run_is_resumed_without_a_message(bench: Bench) -> None:
    await ended(bench, Status.STUCK)
    assert await ask(bench, "run", "resume") == Status.READY
    run = await bench.claim_one(await bench.session())
    assert list(run.inbox) == []


async def test_a_stuck_run_is_tried_again_by_each_new_worker_that_has_its_code(
    bench: Bench,
) -> None:
    run = await ended(bench, Status.STUCK)
    await bench.session(TASK)
    assert await bench.status("run") == "stuck"
    session = await bench.session()
    again = await bench.claim_one(session)
    assert (again.run, again.fence) == (run.run, 2)


@pytest.mark.parametrize(
    ("status", "rollback", "action", "why"),
    [
        (Status.COMPLETED, Rollback.NONE, "retry", "only a held run"),
        (Status.FAILED, Rollback.COMPLETE, "retry", "undos have run"),
        (Status.FAILED, Rollback.INCOMPLETE, "retry", "undos have run"),
        (Status.STUCK, Rollback.NONE, "retry", "only a held run"),
        (Status.FAILED, Rollback.NONE, "requeue", "only a failed task"),
        (Status.HELD, Rollback.NONE, "requeue", "only a failed task"),
        (Status.FAILED, Rollback.NONE, "roll_back", "only a held run"),
        (Status.FAILED, Rollback.COMPLETE, "resume_rollback", "incomplete"),
        (Status.COMPLETED, Rollback.INCOMPLETE, "resume_rollback", "incomplete"),
        (Status.HELD, Rollback.NONE, "resume", "only a stuck or paused run"),
        (Status.HELD, Rollback.NONE, "explode", "use one of retry"),
    ],
)
async def test_a_request_that_does_not_fit_is_refused_and_changes_nothing(
    bench: Bench, status: Status, rollback: Rollback, action: str, why: str
) -> None:
    await ended(bench, status, rollback)
    before = await bench.store.history("run")
    with pytest.raises(RequestRefused, match=why):
        await ask(bench, "run", action)
    assert await bench.store.history("run") == before


async def test_a_request_to_nobody_is_an_error(bench: Bench) -> None:
    with pytest.raises(RunNotFound):
        await ask(bench, "nobody", "retry")


async def test_the_former_holder_cannot_write_to_a_reopened_run(bench: Bench) -> None:
    run = await ended(bench, Status.FAILED)
    await ask(bench, "run", "retry")
    for fence in (1, 2):
        with pytest.raises(StaleFence):
            await bench.store.do(Append(run.run, fence, [bench.record(1)]))


async def child_failed(bench: Bench) -> Claimed:
    """A parent that is parked, whose child has failed; the parent is told and ready."""
    session = await bench.session()
    parent = await bench.claimed(session, "parent")
    child = bench.new("child", identity=TASK)
    await bench.store.do(Append(parent.run, 1, children=[("0", child)]))
    await bench.store.do(Park(parent.run, 1, None, "child"))
    run = await bench.claim_one(session)
    await bench.store.do(
        Finish(run.run, 1, Status.FAILED, b"boom", bench.clock.now(), parent=parent.run)
    )
    return parent


async def test_an_outcome_that_the_parent_took_is_final(bench: Bench) -> None:
    await child_failed(bench)
    parent = await bench.claim_one(await bench.session())
    with pytest.raises(RequestRefused, match="just now"):
        await ask(bench, "child", "requeue")
    took = Append(parent.run, 2, [bench.record(0)], absorbed=[parent.inbox[0].id])
    await bench.store.do(took)
    await bench.store.do(Park(parent.run, 2, None, "more"))
    with pytest.raises(RequestRefused, match="has taken its outcome"):
        await ask(bench, "child", "requeue")


async def test_an_outcome_that_the_parent_has_not_seen_is_withdrawn(bench: Bench) -> None:
    parent = await child_failed(bench)
    assert await ask(bench, "child", "requeue") == Status.READY
    session = await bench.session()
    runs = {run.id: run for run in (await bench.claim(session)).runs}
    assert list(runs["parent"].inbox) == []
    again = runs["child"]
    await bench.store.do(
        Finish(
            again.run, again.fence, Status.COMPLETED, b"ok", bench.clock.now(), parent=parent.run
        )
    )
    (row,) = await bench.store.do(Park(parent.run, 2, None, "child"))
    assert (row.status, row.value) == (Status.COMPLETED, b"ok")

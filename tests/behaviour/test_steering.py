"""What becomes of runs that are terminated and paused, and of what is around them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell import (
    DeadlineExceeded,
    RequestRefused,
    RunEnded,
    RunNotFound,
    RunTerminated,
    Signal,
    Stepwell,
    compensate,
    sleep,
    start,
    step,
    task,
    wait_for_signal,
    workflow,
)
from tests.behaviour.stage import LONG, stage, until

pytestmark = pytest.mark.anyio
go = Signal("go", int)


@step
async def note(what: str) -> str:
    stage.note(what)
    return what


@step
async def held(what: str) -> str:
    stage.note(what)
    await stage.hold(what)
    stage.note(f"{what} ends")
    return what


@task
async def job() -> str:
    await stage.hold("job")
    stage.note("job ends")
    return "job"


@workflow
async def careful() -> str:
    compensate(note("undo"))
    await held("step")
    return await note("after")


@workflow
async def waiting() -> int:
    compensate(note("undo"))
    return await wait_for_signal(go)


@workflow
async def nested() -> int:
    return await waiting().with_options(id="child")


@workflow
async def handling() -> str:
    detached = await start(waiting().with_options(id="detached"))
    try:
        await waiting().with_options(id="child")
    except RunTerminated as terminated:
        return f"{detached.id}: {terminated.run_id}, {terminated.reason}"
    return ""


@workflow
async def napping() -> str:
    await note("before")
    await sleep(0.01)
    return await note("after")


async def has_status(app: Stepwell, id: str, status: str) -> None:
    async def has() -> bool:
        try:
            return (await app.info(id)).status == status
        except RunNotFound:
            return False

    await until(has)


async def passed(when: datetime) -> bool:
    return datetime.now(UTC) > when


async def test_a_terminated_run_ends_at_once_and_no_undo_runs(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(careful())
        await stage.reached("step")
        assert await run.terminate(reason="broken", actor="ann") == "terminated"
        with pytest.raises(RunTerminated, match="broken") as raised:
            await run.result(timeout=LONG)
        assert (raised.value.run_id, raised.value.reason) == (run.id, "broken")
        stage.release("step")
        later = await app.start(napping())
        await later.result(timeout=LONG)
    assert "undo" not in stage.done
    assert (await run.info()).error == "broken"
    (act,) = (await run.history()).audit
    assert (act.action, act.actor, act.reason) == ("terminate", "ann", "broken")
    assert (await run.terminate()) == "terminated"
    with pytest.raises(RunEnded, match="completed"):
        await later.terminate()


async def test_terminating_a_parent_takes_its_waiting_children_along(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(nested())
        child = app.get("child")
        await has_status(app, "child", "parked")
        await run.terminate()
        with pytest.raises(RunTerminated):
            await child.result(timeout=LONG)
    assert not stage.done


async def test_a_parent_can_handle_that_its_child_was_terminated(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(handling())
        await has_status(app, "child", "parked")
        await app.terminate("child", reason="broken")
        assert await run.result(timeout=LONG) == "detached: child, broken"
    assert await app.get("detached").status() == "parked"


async def test_a_task_is_terminated_while_it_runs(app: Stepwell) -> None:
    async with app.worker():
        run = await app.enqueue(job())
        await stage.reached("job")
        await run.terminate()
        with pytest.raises(RunTerminated):
            await run.result(timeout=LONG)
    assert "job ends" not in stage.done


async def test_a_pause_lets_a_step_end_and_begins_nothing_more(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(careful())
        await stage.reached("step")
        assert await run.pause(reason="maintenance", actor="ann") == "running"
        stage.release("step")
        await has_status(app, run.id, "paused")
        history = await run.history()
        assert [event.name for event in history.events] == ["held"]
        assert stage.done == ["step", "step ends"]
        await run.signal("go", 1)
        assert await run.status() == "paused"
        assert await run.resume(actor="bob") == "ready"
        assert await run.result(timeout=LONG) == "after"
    assert [(act.action, act.actor) for act in (await run.history()).audit] == [
        ("pause", "ann"),
        ("resume", "bob"),
    ]
    with pytest.raises(RequestRefused, match="it has ended"):
        await run.pause()


async def test_a_run_that_waits_is_paused_at_once_and_takes_its_signal_afterwards(
    app: Stepwell,
) -> None:
    async with app.worker():
        run = await app.start(waiting())
        await has_status(app, run.id, "parked")
        assert await run.pause() == "paused"
        await run.signal(go, 5)
        assert await run.status() == "paused"
        await run.resume()
        assert await run.result(timeout=LONG) == 5


async def test_a_cancel_ends_a_pause_and_the_undos_run(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(waiting())
        await has_status(app, run.id, "parked")
        await run.pause()
        await run.cancel()
        await has_status(app, run.id, "cancelled")
    assert stage.done == ["undo"]


async def test_a_deadline_that_passes_during_a_pause_has_its_effect_at_its_end(
    app: Stepwell,
) -> None:
    run = await app.start(waiting().with_options(deadline=0.05))
    assert await run.pause() == "paused"
    deadline = (await run.info()).deadline_at
    assert deadline is not None
    await until(lambda: passed(deadline))
    assert await run.status() == "paused"
    async with app.worker():
        await run.resume()
        with pytest.raises(DeadlineExceeded):
            await run.result(timeout=LONG)


async def test_a_deadline_ends_a_run_with_children_and_one_that_is_scheduled(
    app: Stepwell,
) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=0.05)
    async with app.worker():
        parent = await app.start(nested().with_options(deadline=0.1))
        late = await app.start(waiting().with_options(deadline=0.1), at=soon)
        for run in (parent, late):
            with pytest.raises(DeadlineExceeded):
                await run.result(timeout=LONG)
        assert await app.get("child").status() == "cancelled"


async def test_runs_of_a_paused_workflow_wait_and_others_do_not(app: Stepwell) -> None:
    function: Any = napping.fn
    with pytest.raises(
        TypeError, match=r"pause_workflow\(\) takes a workflow or task, or its name"
    ):
        await app.pause_workflow(function)
    await app.pause_workflow(napping, reason="broken", actor="ann")
    async with app.worker() as worker:
        run = await app.start(napping())
        other = await app.start(waiting())
        await other.signal(go, 1)
        assert await other.result(timeout=LONG) == 1
        await worker.drain()
        assert await run.status() == "ready"
        (paused,) = await app.paused_workflows()
        assert (paused.name, paused.actor, paused.reason) == ("napping", "ann", "broken")
        await app.resume_workflow("napping")
        assert await run.result(timeout=LONG) == "after"


async def test_many_runs_are_steered_by_filter(app: Stepwell) -> None:
    runs = [await app.start(napping()) for _ in range(5)]
    other = await app.start(waiting())
    dry = await app.steer_many("terminate", name="napping", dry_run=True)
    assert (dry.matched, dry.changed, dry.refused) == (5, {}, 0)
    some = await app.steer_many("pause", name="napping", limit=2, reason="why", actor="ann")
    assert (some.matched, some.changed) == (2, {"paused": 2})
    (act,) = (await runs[-1].history()).audit
    assert (act.action, act.actor, act.reason) == ("pause", "ann", "why")
    done = await app.steer_many("terminate", name="napping")
    assert (done.matched, done.changed, done.refused) == (5, {"terminated": 5}, 0)
    again = await app.steer_many("terminate", name="napping", status="terminated")
    assert again.changed == {"terminated": 5}
    refused = await app.steer_many("resume", name="napping", status="terminated", limit=1)
    assert refused.refused == 1
    assert refused.refusals[0].id == runs[-1].id
    assert "terminated" in refused.refusals[0].reason
    assert await other.status() == "ready"
    with pytest.raises(ValueError, match="action= must be"):
        await app.steer_many("destroy")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

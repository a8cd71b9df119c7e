"""New runs that take over what another one has recorded before a step."""

from __future__ import annotations

import pytest

from stepwell import (
    IdConflict,
    RequestRefused,
    RunNotFound,
    Stepwell,
    compensate,
    continue_as_new,
    current_step,
    now,
    parallel,
    random,
    start,
    step,
    wait_for_signal,
    workflow,
)
from tests.behaviour.stage import LONG, stage

pytestmark = pytest.mark.anyio


@step
async def draw(what: str) -> str:
    stage.note(what)
    return f"{what} {current_step().key}"


@step
async def undo(what: str) -> None:
    stage.note(f"undo {what}")


@step
async def ship(fails: bool) -> str:
    if fails:
        raise ValueError("no ship")
    return "shipped"


@workflow
async def order(name: str, fails: bool = False) -> tuple[str, str, float, str]:
    begun = f"{now().isoformat()} {random().random()}"
    first = await draw(name)
    second = await draw("second")
    last = await ship(fails)
    return begun, f"{first} {second}", random().random(), last


@workflow
async def saga(fails: bool) -> str:
    await draw("before")
    await draw.__call__("charge")
    compensate(undo("charge"))
    return await ship(fails)


@workflow
async def wide() -> tuple[str, str]:
    first, second = await parallel(draw("left"), draw("right"))
    return first, second


async def test_a_fork_repeats_nothing_before_its_step_and_all_after_it(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(order("first"), id="source")
        begun, drawn, chance, _ = await run.result(timeout=LONG)
        fork = await run.fork(from_step="1", id="fork", reason="why", actor="ann")
        assert (fork.id, fork.created) == ("fork", True)
        again, drawn_again, chance_again, _ = await fork.result(timeout=LONG)
    assert stage.done == ["first", "second", "second"]
    assert (again, chance_again) == (begun, chance)  # its time and chance are those of the source
    assert drawn_again.split()[:2] == drawn.split()[:2]
    assert drawn_again.split()[3] != drawn.split()[3]  # the key of what was executed anew
    (left,) = (await run.history()).audit
    (came,) = (await fork.history()).audit
    assert (left.action, left.actor) == (came.action, came.actor) == ("fork", "ann")
    assert "'fork'" in left.reason
    assert "'source'" in came.reason


async def test_arguments_of_a_fork_are_changed_by_name(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(order("first", fails=True), id="source")
        with pytest.raises(ValueError, match="no ship"):
            await run.result(timeout=LONG)
        fork = await app.fork("source", from_step="ship", changes={"fails": False})
        assert (await fork.result(timeout=LONG))[3] == "shipped"
        assert stage.done == ["first", "second"]
        whole = await app.fork("source", from_step="0", changes={"name": "other", "fails": False})
        assert (await whole.result(timeout=LONG))[1].startswith("other")
    with pytest.raises(TypeError, match="no argument of order"):
        await app.fork("source", from_step="ship", changes={"nothing": 1})
    with pytest.raises(TypeError, match="'name' of order takes str"):
        await app.fork("source", from_step="ship", changes={"name": 1})


async def test_what_was_undone_is_not_taken_over(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(saga(True), id="source")
        with pytest.raises(ValueError, match="no ship"):
            await run.result(timeout=LONG)
        assert stage.done == ["before", "charge", "undo charge"]
        with pytest.raises(RequestRefused, match="fork it"):
            await run.retry()
        with pytest.raises(RequestRefused, match="from step 'draw' at path 1 on"):
            await app.fork("source", from_step="ship")
        with pytest.raises(RequestRefused, match="in an undo"):
            await app.fork("source", from_step="~0.0")
        fork = await app.fork("source", from_step="1", changes={"fails": False})
        assert await fork.result(timeout=LONG) == "shipped"
    assert stage.done == ["before", "charge", "undo charge", "charge"]


async def test_undos_of_what_was_taken_over_belong_to_the_fork(app: Stepwell) -> None:
    async with app.worker():
        await (await app.start(saga(False), id="source")).result(timeout=LONG)
        fork = await app.fork("source", from_step="ship", changes={"fails": True})
        with pytest.raises(ValueError, match="no ship"):
            await fork.result(timeout=LONG)
        assert (await fork.info()).rollback == "complete"
    assert stage.done == ["before", "charge", "undo charge"]


async def test_a_run_that_has_not_ended_is_forked_as_it_stands(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(order("first"), id="source")
        await run.result(timeout=LONG)
        fork = await app.fork("source", from_step="ship", id="fork")
        await fork.pause()
        child = await app.fork("fork", from_step="1")
        assert (await child.result(timeout=LONG))[3] == "shipped"


async def test_a_fork_that_cannot_be_is_refused(app: Stepwell) -> None:
    async with app.worker():
        await (await app.start(wide(), id="source")).result(timeout=LONG)
        await (await app.start(order("x"), id="other")).result(timeout=LONG)
    with pytest.raises(RequestRefused, match="several paths: fork from one of them, 0.0.0, 0.1.0"):
        await app.fork("source", from_step="draw")
    with pytest.raises(RequestRefused, match="no step 'ship'.* are draw"):
        await app.fork("source", from_step="ship")
    with pytest.raises(RunNotFound):
        await app.fork("nobody", from_step="draw")
    with pytest.raises(IdConflict):
        await app.fork("source", from_step="0.0.0", id="other")
    with pytest.raises(RequestRefused, match="an id of its own"):
        await app.fork("source", from_step="0.0.0", id="source")


@workflow
async def rounds(left: int, seen: list[tuple[float, float]]) -> list[tuple[float, float]]:
    seen = [*seen, (random().random(), now().timestamp())]
    await draw("round")
    if left:
        continue_as_new(rounds(left - 1, seen))
    return seen


async def test_a_fork_that_begins_anew_does_so_with_chance_and_time_of_its_own(
    app: Stepwell,
) -> None:
    async with app.worker():
        source = await (await app.start(rounds(1, []), id="source")).result(timeout=LONG)
        fork = await app.fork("source", from_step="draw", changes={"left": 1}, id="fork")
        seen = await fork.result(timeout=LONG)
        again = await app.fork("fork", from_step="draw")
        assert await again.result(timeout=LONG) == seen
    assert seen[:2] == source  # up to where it was forked it is its source
    assert seen[2][0] not in {chance for chance, _ in source}
    assert [at for _, at in seen] == sorted({at for _, at in seen})


@workflow
async def hatch(egg: str) -> str:
    await wait_for_signal("hatch", str)
    return egg


@workflow
async def nest() -> str:
    first = await start(hatch("first"))
    second = await start(hatch("second"))
    await draw("brood")
    await ship(fails=False)
    found = await first.result() + " " + await second.result()
    await undo("nothing")
    return found


async def test_a_fork_hears_of_started_children_that_have_ended_and_waits_for_no_other(
    app: Stepwell,
) -> None:
    run = await app.start(nest(), id="nest")
    async with app.worker() as worker:
        await worker.drain()
        await app.signal("nest/0", "hatch", "now")
        await worker.drain()
        with pytest.raises(RequestRefused, match=r"'nest/1' at path 1, which has not ended: fork"):
            await app.fork("nest", from_step="ship", id="early")
        with pytest.raises(RunNotFound):
            await app.info("early")
        await app.signal("nest/1", "hatch", "now")
        assert await run.result(timeout=LONG) == "first second"
        for step in ("draw", "ship", "undo"):
            fork = await run.fork(from_step=step)
            assert await fork.result(timeout=LONG) == "first second"
    assert await app.doctor() == []

"""Children that begin, are cancelled or cannot begin just when much else happens."""

from __future__ import annotations

import pytest

from stepwell import (
    IdConflict,
    PayloadTooLarge,
    Retry,
    RunCancelled,
    Signal,
    Stepwell,
    parallel,
    race,
    sleep,
    step,
    wait_for_signal,
    workflow,
)
from tests.behaviour.stage import LONG, stage

pytestmark = pytest.mark.anyio
go = Signal("go", int)


@step(retry=Retry(attempts=2, delay=3600.0, max_delay=3600.0))
async def fails_once() -> None:
    stage.reach("failed")
    raise LookupError("no")


@step
async def work(what: str) -> str:
    stage.note(what)
    return what


@workflow
async def waits_for_ever() -> None:
    await wait_for_signal("never")


async def starts_a_child() -> None:
    await wait_for_signal(go)
    await waits_for_ever()


@workflow
async def retries_beside_a_child() -> None:
    await parallel(starts_a_child(), fails_once())


@pytest.mark.parametrize("cache", [0, 1000])
async def test_a_child_that_is_asked_for_and_cancelled_at_once_does_not_hold_up_its_parent(
    app: Stepwell, cache: int
) -> None:
    async with app.worker(cache=cache) as worker:
        run = await app.start(retries_beside_a_child(), id="run")
        await worker.drain()
    await run.signal(go, 1)
    await run.cancel()
    async with app.worker(cache=cache):
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)


@workflow
async def takes(data: bytes) -> int:
    return len(data)


@workflow
async def many_large_children(count: int, size: int) -> int:
    return sum(await parallel(*(takes(bytes(size)) for _ in range(count))))


async def test_children_whose_arguments_do_not_fit_into_one_write_are_started_in_several(
    app: Stepwell,
) -> None:
    async with app.worker():
        run = await app.start(many_large_children(18, 4_000_000))
        assert await run.result(timeout=LONG) == 18 * 4_000_000


@workflow
async def takes_signals(count: int) -> int:
    got = 0
    for _ in range(count):
        got += len(await wait_for_signal("data", bytes))
    return got


async def test_signals_that_do_not_fit_into_one_write_are_taken_in_several(app: Stepwell) -> None:
    run = await app.start(takes_signals(18))
    for _ in range(18):
        await run.signal("data", bytes(4_000_000))
    async with app.worker():
        assert await run.result(timeout=LONG) == 18 * 4_000_000


@workflow
async def named_child(what: str) -> str:
    return await work(what)


@workflow
async def one_name_twice() -> list[str]:
    outcomes = await parallel(
        named_child("a").with_options(id="taken"),
        named_child("b").with_options(id="free"),
        race(sleep(0.01), wait_for_signal("never")),
        named_child("c").with_options(id="free"),
        return_exceptions=True,
    )
    return [one if isinstance(one, str) else type(one).__name__ for one in outcomes]


@pytest.mark.parametrize("cache", [0, 1000])
async def test_a_child_whose_id_is_taken_fails_alone(app: Stepwell, cache: int) -> None:
    await app.start(waits_for_ever(), id="taken")
    async with app.worker(cache=cache):
        run = await app.start(one_name_twice(), id="run")
        assert await run.result(timeout=LONG) == [
            IdConflict.__name__,
            "b",
            "tuple",
            IdConflict.__name__,
        ]
        assert (await app.info("taken")).status == "parked"


@workflow
async def waits_for_a_named_child() -> None:
    await waits_for_ever().with_options(id="child")


async def test_a_parent_learns_which_child_was_cancelled_and_why(app: Stepwell) -> None:
    async with app.worker() as worker:
        run = await app.start(waits_for_a_named_child())
        await worker.drain()
        await app.cancel("child", reason="not needed")
        with pytest.raises(RunCancelled, match="'child' was cancelled: not needed"):
            await run.result(timeout=LONG)


@workflow
async def takes_many(*data: bytes) -> int:
    return len(data)


@workflow
async def one_child_of_many_arguments() -> str:
    try:
        await takes_many(*(bytes(4_000_000) for _ in range(13)))
    except PayloadTooLarge as error:
        return str(error)
    return ""


async def test_a_child_whose_arguments_are_too_large_together_fails_alone(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(one_child_of_many_arguments())
        assert "arguments of workflow 'takes_many': all together: 52," in await run.result(
            timeout=LONG
        )


@workflow
async def looks_after_a_child() -> str:
    try:
        await waits_for_ever()
    except RunCancelled as error:
        return str(error)
    return "nothing"


@pytest.mark.parametrize("reason", ["", "of no use"])
async def test_a_history_shows_why_a_child_was_cancelled(app: Stepwell, reason: str) -> None:
    async with app.worker() as worker:
        run = await app.start(looks_after_a_child(), id="run")
        await worker.drain()
        (child,) = (await run.history()).children
        await app.cancel(child.id, reason=reason)
        assert reason in await run.result(timeout=LONG)
    (event,) = (await run.history()).events
    assert (event.outcome, event.value or "", event.error) == ("cancelled", reason, None)
    assert [one.event async for one in run.events()] == [event]

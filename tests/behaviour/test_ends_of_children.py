"""A parent hears of each of its children, however that ends, and nothing takes one from it."""

from __future__ import annotations

import pytest

from stepwell import (
    Retry,
    RunCancelled,
    RunExpired,
    Stepwell,
    current_app,
    parallel,
    step,
    task,
    workflow,
)

pytestmark = pytest.mark.anyio


@task
async def fails() -> None:
    raise LookupError("no such thing")


@task(queue="nobody")
async def waits() -> None: ...


@task(queue="nobody", expires=0.05)
async def expires() -> None: ...


@task
async def completes() -> int:
    return 7


@step(retry=Retry(attempts=100, delay=0.05))
async def cancel(id: str) -> None:
    await current_app().cancel(id)


@step
async def prune() -> int:
    return await current_app().prune(keep=0)


@workflow
async def parent() -> list[str]:
    *ends, _ = await parallel(
        fails(),
        waits().with_options(id="cancelled"),
        expires(),
        completes(),
        cancel("cancelled"),
        return_exceptions=True,
    )
    pruned = await prune()
    shown = [repr(end) if isinstance(end, int) else type(end).__name__ for end in ends]
    return [*shown, f"{pruned} pruned"]


@workflow
async def catches() -> list[str]:
    caught: list[str] = []
    for call in (waits().with_options(id="first"), expires().with_options(id="second")):
        try:
            await parallel(call, cancel("first")) if not caught else await call
        except (RunCancelled, RunExpired) as end:
            caught.append(f"{type(end).__name__} of {end.run_id}")
    return caught


async def test_a_parent_goes_on_with_the_end_of_each_child(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(parent(), id="p")
        assert await run.result() == ["LookupError", "RunCancelled", "RunExpired", "7", "0 pruned"]
        assert len(await app.runs(parent="p")) == 4


async def test_each_end_is_an_error_of_its_own(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(catches())
        assert await run.result() == ["RunCancelled of first", "RunExpired of second"]

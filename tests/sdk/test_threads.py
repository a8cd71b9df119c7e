"""Steps that are plain functions run in threads, with their context, beside each other."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from stepwell import Retry, Stepwell, current_step, parallel, step, workflow

pytestmark = pytest.mark.anyio
request = contextvars.ContextVar("request", default="none")
meeting = threading.Barrier(4)
seen: list[tuple[str, str]] = []


@step
def meets() -> int:
    return meeting.wait(timeout=20)


@workflow
async def all_meet() -> list[int]:
    return sorted(await parallel(meets(), meets(), meets(), meets()))


@step(retry=Retry(attempts=2, delay=0.0))
def in_a_thread() -> str:
    seen.append((request.get(), current_step().run_id))
    request.set("changed in a thread")
    if current_step().attempt == 1:
        raise OSError("once more")
    return request.get()


@step
async def on_the_loop() -> str:
    seen.append((request.get(), current_step().run_id))
    request.set("changed on the loop")
    return request.get()


@workflow
async def both_kinds() -> tuple[str, str, str, str]:
    first, second = await in_a_thread(), await on_the_loop()
    return first, second, *(await parallel(in_a_thread(), on_the_loop()))


@step
def blocks(seconds: float) -> None:
    threading.Event().wait(seconds)


@workflow
async def blocks_a_thread() -> None:
    await blocks(0.3)


async def test_plain_functions_run_at_the_same_time(app: Stepwell) -> None:
    async with app:
        assert await app.run(all_meet(), timeout=20) == [0, 1, 2, 3]


async def test_context_is_seen_by_both_kinds_of_step_and_does_not_leak(tmp_path: Path) -> None:
    seen.clear()

    @contextlib.asynccontextmanager
    async def lifespan(app: Stepwell) -> AsyncGenerator[None, None]:
        request.set("of the worker")
        yield

    app = Stepwell(tmp_path / "runs.db", lifespan=lifespan, include=[__name__])
    thread, loop = "changed in a thread", "changed on the loop"
    async with app, app.worker():
        runs = [await app.start(both_kinds(), id=name) for name in ("a", "b")]
        for run in runs:
            assert await run.result(timeout=20) == (thread, loop, thread, loop)
    assert {value for value, _ in seen} == {"of the worker"}
    assert {run for _, run in seen} == {"a", "b"}


async def test_the_loop_goes_on_while_a_plain_function_blocks(app: Stepwell) -> None:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    turning = asyncio.create_task(turn())
    async with app:
        await app.run(blocks_a_thread(), timeout=20)
    turning.cancel()
    assert turns >= 5


async def test_awaited_outside_of_a_run_a_plain_function_sees_the_context_of_its_caller() -> None:
    @step
    def reads() -> str:
        return request.get()

    request.set("of the caller")
    assert await reads() == "of the caller"

"""A coroutine that is thrown away: its cleanup runs, and has no effect on anything durable."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import warnings
from collections.abc import AsyncGenerator
from contextvars import ContextVar

import pytest

from stepwell import compensate, parallel, race, sleep, start, wait_for_signal
from tests.replay.driver import Code, Drive
from tests.replay.steps import a, b, book, child, undo

log: list[str] = []
place: ContextVar[str] = ContextVar("place", default="outside")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    log.clear()


async def cleans_up() -> None:
    try:
        await a()
    finally:
        log.append("finally")


async def catches_generator_exit() -> None:
    try:
        await a()
    except GeneratorExit:
        log.append("told")
        raise


async def uses_a_context_manager() -> None:
    with contextlib.ExitStack() as stack:
        stack.callback(log.append, "callback")
        await a()


@pytest.mark.parametrize("code", [cleans_up, catches_generator_exit, uses_a_context_manager])
def test_cleanup_runs_once_when_the_coroutine_is_thrown_away(drive: Drive, code: Code) -> None:
    run = drive(code)
    run.close()
    run.close()
    assert len(log) == 1


async def asks_for_a_step() -> None:
    try:
        await sleep(1)
    finally:
        await a("cleanup")
        log.append("went on")


async def asks_for_a_child() -> None:
    try:
        await sleep(1)
    finally:
        await child()
        log.append("went on")


async def asks_for_a_detached_child() -> None:
    try:
        await sleep(1)
    finally:
        await start(child())
        log.append("went on")


async def asks_for_a_group() -> None:
    try:
        await sleep(1)
    finally:
        await parallel(a(), b())
        log.append("went on")


async def asks_for_a_race() -> None:
    try:
        await sleep(1)
    finally:
        await race(a(), b())
        log.append("went on")


async def asks_for_a_sleep() -> None:
    try:
        await wait_for_signal("never")
    finally:
        await sleep(1)
        log.append("went on")


async def asks_for_a_signal() -> None:
    try:
        await sleep(1)
    finally:
        await wait_for_signal("never")
        log.append("went on")


async def registers_an_undo() -> None:
    try:
        await sleep(1)
    finally:
        compensate(undo())
        log.append("went on")


@pytest.mark.parametrize(
    "code",
    [
        asks_for_a_step,
        asks_for_a_child,
        asks_for_a_detached_child,
        asks_for_a_group,
        asks_for_a_race,
        asks_for_a_sleep,
        asks_for_a_signal,
        registers_an_undo,
    ],
)
def test_nothing_durable_can_be_asked_for_then(drive: Drive, code: Code) -> None:
    run = drive(code)
    run.execution.take_opened()
    before = list(run.events)
    run.close()
    assert log == []
    assert run.events == before
    assert run.execution.take_opened() == []
    assert run.execution.undos == []
    assert run.execution.zombies == []


async def survives_for(times: int) -> None:
    for _ in range(times):
        try:
            await a()
        except GeneratorExit:
            continue


def test_a_coroutine_that_survives_a_while_is_closed(drive: Drive) -> None:
    run = drive(survives_for, 50)
    run.close()
    assert run.execution.zombies == []


def test_a_coroutine_that_will_not_die_is_kept_and_counted(drive: Drive) -> None:
    run = drive(survives_for, 10**9)
    run.close()
    assert len(run.execution.zombies) == 1


async def in_branches() -> None:
    async def branch(name: str) -> None:
        place.set(name)
        try:
            await sleep(60)
        finally:
            log.append(place.get())

    await parallel(branch("x"), branch("y"))


def test_each_branch_is_closed_in_its_own_context(drive: Drive) -> None:
    run = drive(in_branches)
    run.close()
    assert sorted(log) == ["x", "y"]
    assert place.get() == "outside"


async def some_not_begun() -> None:
    async def branch() -> None:
        log.append("began")
        await sleep(60)

    await parallel(branch(), branch(), branch(), limit=1)


def test_branches_that_had_not_begun_are_closed_without_a_warning(drive: Drive) -> None:
    run = drive(some_not_begun)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.close()
        del run
        gc.collect()
    assert log == ["began"]


async def uses_an_async_generator() -> None:
    async def numbers() -> AsyncGenerator[int, None]:
        try:
            yield 1
            yield 2
        finally:
            log.append("generator")

    async for _ in numbers():
        await a()


def test_async_generators_are_closed_by_the_driver(drive: Drive) -> None:
    run = drive(uses_an_async_generator)
    run.close()
    gc.collect()
    assert log == ["generator"]


def test_async_generators_are_none_of_the_loops_business(drive: Drive) -> None:
    async def main() -> None:
        run = drive(uses_an_async_generator)
        await asyncio.get_running_loop().shutdown_asyncgens()
        assert log == []
        run.close()
        assert log == ["generator"]

    asyncio.run(main())


async def breaks_while_closing() -> None:
    try:
        await a()
    finally:
        raise RuntimeError("in cleanup")


def test_an_error_in_cleanup_is_not_raised_at_whoever_throws_away(drive: Drive) -> None:
    run = drive(breaks_while_closing)
    run.close()
    assert run.execution.zombies == []


async def ends() -> str:
    await book()
    return "done"


def test_closing_a_run_that_has_ended_does_nothing(drive: Drive) -> None:
    run = drive(ends)
    run.returns("0", "seat")
    run.close()
    assert run.result == "done"

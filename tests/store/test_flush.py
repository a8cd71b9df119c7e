"""Committing now instead of in the next turn of the loop."""

from __future__ import annotations

import asyncio
import weakref
from functools import partial
from pathlib import Path

import pytest

from stepwell_queue import Start, StoreUnavailable
from tests.store.kit import Bench, open_bench

pytestmark = pytest.mark.anyio


def ignored(answer: object) -> None:
    """What the other submits answer is looked at."""


async def test_what_waits_is_committed_and_answered_without_another_turn(path: Path) -> None:
    bench = await open_bench(path, durability="process")
    answers: list[object] = []
    bench.store.submit(Start(bench.new("first")), answers.append)
    bench.store.submit(Start(bench.new("second")), answers.append)
    assert answers == []
    bench.store.flush()
    assert [type(answer).__name__ for answer in answers] == ["Started", "Started"]
    bench.store.flush()  # nothing waits
    await bench.start("third")
    assert len(answers) == 2
    await bench.store.close()


async def test_a_flush_leaves_what_comes_after_it_to_the_next_turn(bench: Bench) -> None:
    second = asyncio.Event()
    bench.store.submit(Start(bench.new()), ignored)
    bench.store.flush()
    bench.store.submit(Start(bench.new()), lambda _: second.set())
    async with asyncio.timeout(10):
        await second.wait()


async def test_a_flush_in_a_callback_waits_for_the_other_callbacks(bench: Bench) -> None:
    order: list[str] = []
    depth = 0
    done = asyncio.Event()

    def answered(name: str, _: object) -> None:
        nonlocal depth
        assert depth == 0, "a callback within a callback"
        depth += 1
        order.append(name)
        if len(name) < 4:
            bench.store.submit(Start(bench.new(f"{name}+")), partial(answered, f"{name}+"))
            bench.store.flush()
        elif len(order) == 6:
            done.set()
        depth -= 1

    for name in ("aa", "bb"):
        bench.store.submit(Start(bench.new(name)), partial(answered, name))
    bench.store.flush()
    async with asyncio.timeout(10):
        await done.wait()
    assert order == ["aa", "bb", "aa+", "bb+", "aa++", "bb++"]


async def test_a_store_can_be_closed_after_a_flush(bench: Bench) -> None:
    answers: list[object] = []
    bench.store.submit(Start(bench.new()), answers.append)
    bench.store.flush()
    async with asyncio.timeout(10):
        await bench.store.close()
    assert len(answers) == 1
    assert not isinstance(answers[0], StoreUnavailable)
    bench.store.flush()


class Caller:
    """Who submits something, and what it holds."""

    def __init__(self) -> None:
        self.answered = asyncio.Event()

    def hear(self, _: object) -> None:
        self.answered.set()


async def test_the_thread_that_commits_keeps_nobody_who_has_been_answered(path: Path) -> None:
    bench = await open_bench(path, durability="full")  # has all batches committed by the thread
    caller = Caller()
    gone = weakref.ref(caller)
    bench.store.submit(Start(bench.new()), caller.hear)
    async with asyncio.timeout(10):
        await caller.answered.wait()
    del caller
    assert gone() is None
    await bench.store.close()

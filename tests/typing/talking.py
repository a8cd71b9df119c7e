"""Talking to runs, as every type checker must accept it."""

from __future__ import annotations

from typing import assert_type

from stepwell import (
    Ask,
    Audit,
    BlockingRun,
    Event,
    Question,
    Run,
    StreamItem,
    current_step,
    emit,
    set_value,
    step,
    wait_for_ask,
    workflow,
)

approve = Ask("approve", int, bool)
listed = Ask("listed", list[str], str | None)


@step
async def tells() -> None:
    emit("lines", "a")
    current_step().emit("lines", "b")


@workflow
async def negotiates() -> None:
    set_value("offer", 1)
    question = await wait_for_ask(approve, timeout=5)
    assert_type(question, Question[int, bool])
    assert_type(question.payload, int)
    question.answer(question.payload > 3)
    other = await wait_for_ask(listed)
    other.answer(None) if other.payload else other.refuse("nothing there")


async def talks(run: Run[None]) -> None:
    assert_type(await run.value("offer", int), int)
    assert_type(await run.value("offer", int, default=None), int | None)
    assert_type(await run.value("offer"), object)
    assert_type(await run.wait_value("offer", int, until=lambda offer: offer > 3), int)
    assert_type(await run.ask(approve, 5, timeout=1.0, id="a"), bool)
    assert_type(await run.ask(listed, ["a"]), str | None)
    assert_type(await run.ask("approve", 5), object)
    async for item in run.stream("lines", str, after=2):
        assert_type(item, StreamItem[str])
    async for entry in run.events():
        assert_type(entry.event, Event | Audit)


def blocks(run: BlockingRun[None]) -> None:
    assert_type(run.value("offer", int, default=None), int | None)
    assert_type(run.wait_value("offer", int), int)
    assert_type(run.ask(approve, 5), bool)
    assert_type([item.value for item in run.stream("lines", str)], list[str])

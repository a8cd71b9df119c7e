"""What a run says while it runs is heard, once and in order, whatever dies; and what it is asked is
answered once.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import Any

import pytest

from stepwell import (
    Ask,
    AskRefused,
    AskTimeout,
    DecodingError,
    Event,
    GiveUp,
    NoValue,
    RequestRefused,
    Retry,
    Run,
    RunEnded,
    RunHeld,
    RunNotFound,
    SerializationError,
    Signal,
    Stepwell,
    StepwellError,
    StreamFull,
    compensate,
    emit,
    parallel,
    set_value,
    sleep,
    step,
    task,
    wait_for_ask,
    wait_for_signal,
    workflow,
)
from tests.behaviour import computing
from tests.behaviour.stage import LONG, stage

pytestmark = pytest.mark.anyio
go = Signal("go", int)
approve = Ask("approve", int, bool)


@step
async def hold(name: str) -> None:
    stage.note(name)
    await stage.hold(name)


@workflow
async def counts(until: int) -> int:
    for number in range(until):
        set_value("count", number)
        emit("counts", number)
        await wait_for_signal(go)
    set_value("count", until)
    return until


async def items(run: Run[int], name: str, after: int = 0) -> list[tuple[int, object]]:
    return [(one.offset, one.value) async for one in run.stream(name, after=after)]


@pytest.mark.parametrize("cache", [0, 1000])
async def test_values_and_items_are_there_while_the_run_waits_and_once_each_after_replays(
    app: Stepwell, cache: int
) -> None:
    async with app.worker(cache=cache):
        run = await app.start(counts(3))
        for number in range(3):
            assert await run.wait_value("count", int, until=number.__eq__) == number
            await run.signal(go, 0)
        assert await run.result(timeout=LONG) == 3
    assert await run.value("count", int) == 3
    assert await items(run, "counts") == [(1, 0), (2, 1), (3, 2)]
    assert await items(run, "counts", after=2) == [(3, 2)]


async def test_what_a_run_has_said_is_of_the_type_that_is_asked_for_or_refused(
    app: Stepwell,
) -> None:
    async with app.worker():
        run = await app.start(counts(0))
        await run.result(timeout=LONG)
        other = await app.start(counts(1))
        await other.signal(go, 0)
        await other.result(timeout=LONG)
    assert await run.value("count", int | str) == 0
    with pytest.raises(DecodingError, match="value 'count' of run .* 0 .int., which is no str"):
        await run.value("count", str)
    with pytest.raises(DecodingError, match="value 'count'"):
        await run.wait_value("count", list[int])
    with pytest.raises(DecodingError, match="stream 'counts'"):
        await anext(other.stream("counts", str))


@workflow
async def says_nothing() -> None:
    await hold("silent")


async def test_a_value_that_is_not_set_is_an_error_or_the_default(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(says_nothing())
        with pytest.raises(NoValue, match="has not set a value 'count'"):
            await run.value("count")
        assert await run.value("count", int, default=None) is None
        with pytest.raises(TimeoutError, match="has not set the value 'count'"):
            await run.wait_value("count", int, timeout=0.01)
        waiting = asyncio.ensure_future(run.wait_value("count", int))
        await stage.reached("silent")
        stage.release("silent")
        with pytest.raises(RunEnded):
            await waiting
    with pytest.raises(RunNotFound):
        await app.get("nobody").value("count")


@step(retry=Retry(attempts=2, delay=0.0))
async def tells(attempts: int) -> None:
    for number in range(3):
        emit("lines", f"{stage.count('tells')}.{number}")
    stage.note("tells")
    if stage.count("tells") < attempts:
        raise ConnectionError


@step
def tells_in_a_thread() -> None:
    emit("lines", "thread")


@step(queue="elsewhere")
async def tells_elsewhere() -> None:
    emit("lines", "elsewhere")


@workflow
async def streams() -> None:
    emit("lines", "code")
    await tells(2)
    await tells_in_a_thread()
    await computing.emits()
    await tells_elsewhere()


async def test_items_of_all_kinds_of_steps_come_in_order_and_stay_if_an_attempt_fails(
    app: Stepwell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(computing.ROOT), *sys.path])
    async with app.worker(queues=["default", "elsewhere"]):
        run = await app.start(streams())
        found = [one async for one in run.stream("lines", str)]
        await run.result(timeout=LONG)
    assert [one.offset for one in found] == list(range(1, 11))
    assert [one.value for one in found] == [
        "code", "0.0", "0.1", "0.2", "1.0", "1.1", "1.2", "thread", "process", "elsewhere",
    ]  # fmt: skip
    assert [one.attempt for one in found] == [1, 1, 1, 1, 2, 2, 2, 1, 1, 1]
    assert [one.path for one in found] == ["", *["0"] * 6, "1", "2", "3"]


@task
async def job() -> None:
    emit("lines", 1)
    await stage.hold("job")
    emit("lines", 2)


async def test_a_stream_is_followed_live(app: Stepwell) -> None:
    async with app.worker():
        run = await app.enqueue(job())
        stream = run.stream("lines", int)
        assert (await anext(stream)).value == 1
        stage.release("job")
        assert [one.value async for one in stream] == [2]


@workflow
async def approves() -> list[int]:
    amounts: list[int] = []
    while True:
        question = await wait_for_ask(approve)
        amounts.append(question.payload)
        if question.payload < 0:
            question.refuse("negative")
        elif question.payload == 0:
            return amounts
        else:
            question.answer(question.payload < 100)
            with pytest.raises(StepwellError, match="answered already"):
                question.answer(True)


@pytest.mark.parametrize("cache", [0, 1000])
async def test_a_question_is_answered_once_and_whoever_asks_again_gets_the_same_answer(
    app: Stepwell, cache: int
) -> None:
    async with app.worker(cache=cache):
        run = await app.start(approves())
        assert await run.ask(approve, 5, id="a") is True
        assert await run.ask(approve, 500, id="b") is False
        assert await run.ask(approve, 5, id="a") is True
        with pytest.raises(RequestRefused, match="asked something else"):
            await run.ask(approve, 6, id="a")
        with pytest.raises(AskRefused, match="negative"):
            await run.ask(approve, -1)
        with pytest.raises(AskRefused, match="question 'approve'"):
            await run.ask("approve", "much")
        unfit: Ask[Any, bool] = Ask("approve", str, bool)
        with pytest.raises(TypeError, match="takes str"):
            await run.ask(unfit, 1)
        with pytest.raises(RunEnded):  # taken, and the run has ended without an answer
            await run.ask(approve, 0)
        assert await run.result(timeout=LONG) == [5, 500, -1, 0]
        assert await run.ask(approve, 5, id="a") is True
        with pytest.raises(RunEnded):
            await run.ask(approve, 7)


async def test_a_question_waits_for_its_run_though_its_asker_does_not(app: Stepwell) -> None:
    run = await app.start(approves())
    with pytest.raises(TimeoutError, match="stays with it, and asking again with id='a'"):
        await run.ask(approve, 5, timeout=0.01, id="a")
    assert (await run.history()).undelivered == (("question", "approve"),)
    async with app.worker():
        assert await run.ask(approve, 5, id="a") is True
        await run.cancel()


@workflow
async def gives_up_on_questions() -> str:
    try:
        await wait_for_ask(approve, timeout=0.0)
    except AskTimeout:
        return "nobody asked"
    return "asked"


async def test_a_wait_for_a_question_has_a_timeout(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(gives_up_on_questions())
        assert await run.result(timeout=LONG) == "nobody asked"


@workflow
async def two_at_once() -> None:
    async def branch(name: str) -> None:
        for number in range(3):
            set_value(name, number)
            emit("both", f"{name}{number}")
            await sleep(0.0)

    await parallel(branch("a"), branch("b"))


async def test_what_branches_say_has_one_order(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(two_at_once())
        await run.result(timeout=LONG)
    found = [str(one.value) async for one in run.stream("both")]
    assert sorted(found) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert [one for one in found if one[0] == "a"] == ["a0", "a1", "a2"]
    assert (await run.value("a"), await run.value("b")) == (2, 2)


@step
async def undo() -> None: ...


@step
async def fails_once() -> None:
    stage.note("fails once")
    if stage.count("fails once") == 1:
        raise GiveUp("at first")


@workflow(on_failure="hold")
async def is_retried() -> None:
    emit("lines", "before")
    await undo()
    emit("lines", "between")
    try:
        await fails_once()
    finally:
        emit("lines", "after")


async def test_a_retry_says_nothing_twice_but_what_is_new(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(is_retried())
        with pytest.raises(RunHeld):
            await run.result(timeout=LONG)
        await run.retry()
        await run.result(timeout=LONG)
    assert [one.value async for one in run.stream("lines")] == [
        "before", "between", "after", "after",
    ]  # fmt: skip


@workflow
async def bad_values() -> list[str]:
    refused: list[str] = []
    for name, value in (("", 1), ("big", "x" * 300_000), ("none", object())):
        with contextlib.suppress(StepwellError, ValueError):
            set_value(name, value)
            refused.append("taken")
    for number in range(101):
        try:
            set_value(f"name {number}", number)
        except ValueError as error:
            refused.append(str(error)[:20])
    return refused


async def test_what_cannot_be_said_is_refused_where_it_is_said(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(bad_values())
        assert await run.result(timeout=LONG) == ["set_value('name 100'"]
    with pytest.raises(StepwellError, match="only inside a workflow"):
        set_value("a", 1)
    with pytest.raises(SerializationError):
        await run.ask("approve", object())


@workflow
async def has_a_history() -> None:
    compensate(undo())
    await undo()
    await wait_for_signal(go)


async def test_events_come_as_they_happen_and_go_on_from_any_position(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(has_a_history())
        events = run.events()
        first = await anext(events)
        assert isinstance(first.event, Event)
        assert (first.event.kind, first.event.name) == ("step", "undo")
        await run.cancel(reason="enough", actor="me")
        rest = [entry async for entry in events]
    names = [
        one.event.kind if isinstance(one.event, Event) else f"asked {one.event.action}"
        for one in rest
    ]
    assert [name for name in names if not name.startswith("asked")] == ["cancel", "failure", "step"]
    positions = [first.position, *(entry.position for entry in rest)]
    for number, position in enumerate(positions, 1):
        again = [entry.position async for entry in run.events(after=position)]
        assert again == positions[number:]


async def test_a_run_is_talked_to_from_another_process(
    app: Stepwell, make_app: Callable[[], Stepwell]
) -> None:
    async with make_app() as other, app.worker():
        run = await app.start(approves())
        there = other.get(run.id, approves)
        assert await there.ask(approve, 5) is True
        counted = await app.start(counts(1))
        count = other.get(counted.id, counts)
        assert await count.wait_value("count", int) == 0
        rest = asyncio.ensure_future(count.wait_value("count", int, until=(1).__eq__))
        await count.signal(go, 0)
        assert await rest == 1
        await run.cancel()


@step
async def emits_until_it_is_full() -> int:
    count = 0
    try:
        while True:
            emit("lines", count)
            count += 1
            await stage.hold(f"emitted {count}")
    except StreamFull:
        return count


@workflow
async def fills_its_streams() -> list[int]:
    count = 0
    try:
        while True:
            emit("lines", count)
            count += 1
    except StreamFull:
        return [count, await emits_until_it_is_full()]


async def test_emit_raises_once_as_much_was_emitted_as_may_be(
    app: Stepwell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell_runtime.core.talking.MOST_ITEMS_OF_CODE", 3)
    monkeypatch.setattr("stepwell_queue.sqlite.verbs_note.MOST_ITEMS", 2)
    async with app.worker():
        run = await app.start(fills_its_streams())
        count = 0
        async for item in run.stream("lines", int):
            if item.path:  # it is stored, and its step has been told so
                count += 1
                await stage.reached(f"emitted {count}")
                stage.release(f"emitted {count}")
        assert await run.result(timeout=LONG) == [3, 2]
    assert [one.value async for one in run.stream("lines")] == [0, 1, 2, 0, 1]

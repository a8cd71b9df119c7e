"""What runs say: values, streams, answers to questions, and how news of them is heard."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from stepwell_queue import (
    Append,
    CancelRun,
    Finish,
    Identity,
    Kind,
    RequestRefused,
    Reschedule,
    RunEnded,
    RunNotFound,
    StaleFence,
    Status,
)
from stepwell_queue.contract import (
    AnswerRow,
    Continue,
    Emit,
    Follower,
    InboxKind,
    Item,
    ListStreams,
    Note,
    NoteKind,
    Prune,
    PutQuestion,
    ReadAnswer,
    ReadEvents,
    ReadState,
    ReadStream,
    ReadValues,
    RunState,
    StreamRow,
)
from stepwell_queue.contract.notes import ITEMS_AT_ONCE, MOST_STREAM_BYTES
from tests.store.kit import TASK, Bench

pytestmark = pytest.mark.anyio
STEP = Identity(Kind.STEP, "resize", 1)


def value(number: int, data: bytes, name: str = "progress") -> Note:
    return Note(NoteKind.VALUE, name, number, data, 1.0)


def item(number: int, data: bytes, stream: str = "lines") -> Note:
    return Note(NoteKind.ITEM, stream, number, data, 1.0)


async def values(bench: Bench, name: str | None = None) -> dict[str, bytes]:
    return {row.name: row.value for row in await bench.store.read(ReadValues("run", name))}


async def stream(bench: Bench, stream: str = "lines", after: int = 0) -> list[tuple[int, bytes]]:
    found = await bench.store.read(ReadStream("run", stream, after))
    return [(row.offset, row.value) for row in found]


async def offsets(bench: Bench, stream: str, after: int, limit: int) -> list[int]:
    return [row.offset for row in await bench.store.read(ReadStream("run", stream, after, limit))]


async def heard(follower: Follower) -> None:
    async with asyncio.timeout(10):
        await follower.news()


async def test_the_newest_value_of_a_name_is_read_also_after_the_end(bench: Bench) -> None:
    run = (await bench.claimed(await bench.session(), "run")).run
    assert await values(bench) == {}
    await bench.store.do(Append(run, 1, [bench.record(0)], notes=[value(1, b"a")]))
    await bench.store.do(Append(run, 1, notes=[value(2, b"b"), value(3, b"x", "other")]))
    await bench.store.do(Finish(run, 1, Status.COMPLETED, b"", 2.0, clean=True))
    assert await values(bench) == {"other": b"x", "progress": b"b"}
    assert await values(bench, "other") == {"other": b"x"}
    with pytest.raises(RunNotFound):
        await bench.store.read(ReadValues("nobody"))


async def test_what_a_replay_says_again_is_passed_over_and_what_follows_is_not(
    bench: Bench,
) -> None:
    session = await bench.session()
    run = (await bench.claimed(session, "run")).run
    said = [value(1, b"old"), item(2, b"first")]
    await bench.store.do(Append(run, 1, [bench.record(0)], notes=said))
    await bench.store.do(Append(run, 1, notes=[value(5, b"new")]))
    await bench.store.do(Reschedule(run, 1, None))
    again = await bench.claim_one(session)
    await bench.store.do(Append(run, again.fence, notes=[*said, value(5, b"new"), item(6, b"b")]))
    assert await values(bench) == {"progress": b"new"}
    assert await stream(bench) == [(1, b"first"), (2, b"b")]


async def test_what_a_stale_holder_says_is_not_stored(bench: Bench) -> None:
    session = await bench.session()
    run = (await bench.claimed(session, "run")).run
    await bench.store.do(Reschedule(run, 1, None))
    await bench.claim_one(session)
    with pytest.raises(StaleFence):
        await bench.store.do(Append(run, 1, notes=[value(1, b"late")]))
    with pytest.raises(StaleFence):
        await bench.store.do(Append(run, 1, [bench.record(0)], notes=[value(1, b"late")]))
    with pytest.raises(StaleFence):
        await bench.store.do(Emit(run, 1, 1, [Item("lines", b"late", 1.0)]))
    assert await values(bench) == {}
    assert await stream(bench) == []


async def test_items_of_code_and_steps_and_remote_steps_share_the_offsets_of_a_stream(
    bench: Bench,
) -> None:
    session = await bench.session()
    run = (await bench.claimed(session, "run")).run
    children = [("3", bench.new("run/3", identity=STEP, queue="default"))]
    await bench.store.do(Append(run, 1, children=children))
    job = await bench.claim_one(await bench.session(STEP))
    await bench.store.do(Append(run, 1, notes=[item(1, b"code")]))
    await bench.store.do(Emit(run, 1, 1, [Item("lines", b"step", 1.0, "2", 1)]))
    await bench.store.do(Emit(job.run, 1, 1, [Item("lines", b"remote", 1.0, "3", 2)]))
    found = await bench.store.read(ReadStream("run", "lines"))
    assert [(row.offset, row.value, row.path, row.attempt) for row in found] == [
        (1, b"code", "", 1),
        (2, b"step", "2", 1),
        (3, b"remote", "3", 2),
    ]
    assert await bench.store.read(ListStreams("run")) == [StreamRow("lines", 3)]
    assert await stream(bench, after=2) == [(3, b"remote")]
    assert await stream(bench, after=2**62) == []


async def test_a_stream_is_read_in_pages_and_an_emitter_hears_when_it_is_full(
    bench: Bench,
) -> None:
    run = (await bench.claimed(await bench.session(), "run", identity=TASK)).run
    small = [Item("lines", b"%d" % n, 1.0) for n in range(ITEMS_AT_ONCE)]
    assert await bench.store.do(Emit(run, 1, 1, small)) is False
    assert await offsets(bench, "lines", 3, 2) == [4, 5]
    large = Emit(run, 1, 2, [Item("large", bytes(MOST_STREAM_BYTES // 4), 1.0)] * 4)
    assert await bench.store.do(large) is True
    assert await bench.store.do(large) is True  # said again
    assert await offsets(bench, "large", 0, 1000) == [1]
    with pytest.raises(ValueError, match="at most 1000"):
        await bench.store.do(Emit(run, 1, 3, [*small, *small]))


async def test_a_question_is_stored_once_and_its_answer_stays(bench: Bench) -> None:
    run = (await bench.claimed(await bench.session(), "run")).run
    put = PutQuestion("run", "q1", "approve", b"how much", 1.0)
    await bench.store.do(put)
    await bench.store.do(put)
    history = await bench.store.history("run")
    assert history is not None
    [row] = history.inbox
    assert (row.kind, row.uid, row.name, row.value) == (
        InboxKind.QUESTION,
        "q1",
        "approve",
        b"how much",
    )
    with pytest.raises(RequestRefused, match="asked something else"):
        await bench.store.do(PutQuestion("run", "q1", "approve", b"other", 1.0))
    assert await bench.store.read(ReadAnswer("run", "q1")) is None
    notes = [Note(NoteKind.ANSWER, "q1", 1, b"yes", 2.0), Note(NoteKind.REFUSAL, "q1", 2, b"", 3.0)]
    await bench.store.do(Append(run, 1, [bench.record(0)], absorbed=[row.id], notes=notes))
    await bench.store.do(Finish(run, 1, Status.COMPLETED, b"", 2.0))
    assert await bench.store.read(ReadAnswer("run", "q1")) == AnswerRow(False, b"yes", 2.0)
    await bench.store.do(put)
    with pytest.raises(RunEnded):
        await bench.store.do(PutQuestion("run", "q2", "approve", b"", 1.0))
    with pytest.raises(RunNotFound):
        await bench.store.do(PutQuestion("nobody", "q2", "approve", b"", 1.0))


async def test_a_task_is_asked_nothing(bench: Bench) -> None:
    await bench.start("task", identity=TASK)
    with pytest.raises(RequestRefused, match="of a task, which answers no questions"):
        await bench.store.do(PutQuestion("task", "q", "approve", b"", 1.0))


async def test_who_follows_a_run_hears_of_everything_that_is_news(bench: Bench) -> None:
    run = (await bench.claimed(await bench.session(), "run")).run
    assert await bench.store.read(ReadState("run")) == RunState(run, Status.RUNNING, 0)
    with bench.store.follow("run", run) as follower:
        verbs: Sequence[Any] = (
            Append(run, 1, [bench.record(0)]),
            Append(run, 1, notes=[value(1, b"a")]),
            Emit(run, 1, 1, [Item("lines", b"a", 1.0)]),
            CancelRun("run", "c1", b"", 1.0),
            Finish(run, 1, Status.COMPLETED, b"", 2.0),
            Prune([]),
        )
        verb: Any
        for verb in verbs:
            news = asyncio.ensure_future(heard(follower))
            await asyncio.sleep(0)
            assert not news.done()
            await bench.store.do(verb)
            await news


async def test_the_events_of_a_run_are_read_in_pages(bench: Bench) -> None:
    run = (await bench.claimed(await bench.session(), "run")).run
    for seq in range(3):
        await bench.store.do(Append(run, 1, [bench.record(seq, value=bytes(200_000))]))
    page = await bench.store.read(ReadEvents("run"))
    assert [record.seq for record in page.records] == [0, 1]
    page = await bench.store.read(ReadEvents("run", 1))
    assert [record.seq for record in page.records] == [2]
    assert not (await bench.store.read(ReadEvents("run", 2))).records


async def test_what_a_run_has_said_is_deleted_with_it(bench: Bench) -> None:
    run = (await bench.claimed(await bench.session(), "run")).run
    await bench.store.do(PutQuestion("run", "q1", "approve", b"", 1.0))
    notes = [value(1, b"a"), item(2, b"b"), Note(NoteKind.ANSWER, "q1", 3, b"yes", 2.0)]
    await bench.store.do(Append(run, 1, notes=notes))
    await bench.store.do(Finish(run, 1, Status.COMPLETED, b"", 2.0))
    await bench.start("last")
    assert await bench.prune(float("inf")) == 1  # doctor looks afterwards
    with pytest.raises(RunNotFound):
        await bench.store.read(ReadStream("run", "lines"))


async def test_what_a_run_says_after_it_has_continued_as_new_is_new(bench: Bench) -> None:
    session = await bench.session()
    run = (await bench.claimed(session, "run")).run
    await bench.store.do(PutQuestion("run", "q1", "approve", b"", 1.0))
    answered = Note(NoteKind.ANSWER, "q1", 4, b"yes", 1.0)
    notes = [value(2, b"old"), item(3, b"first"), answered]
    await bench.store.do(Append(run, 1, notes=notes))
    await bench.store.do(Continue(run, 1, b"", (), 2.0))
    again = await bench.claim_one(session)
    await bench.store.do(Append(run, again.fence, notes=[value(1, b"new"), item(2, b"second")]))
    assert await values(bench) == {"progress": b"new"}
    assert await stream(bench) == [(1, b"first"), (2, b"second")]
    assert (await bench.store.read(ReadState("run"))).generation == 1
    await bench.store.do(PutQuestion("run", "q1", "approve", b"", 1.0))
    assert await bench.store.read(ReadAnswer("run", "q1")) == AnswerRow(False, b"yes", 1.0)

"""Starting runs."""

from __future__ import annotations

import asyncio

import pytest

from stepwell_queue import (
    AnyVerb,
    IdConflict,
    Identity,
    Kind,
    Start,
    StartMany,
    Status,
    StoreUnavailable,
)
from tests.store.kit import TASK, Bench

pytestmark = pytest.mark.anyio


async def test_a_started_run_is_ready_and_can_be_read(bench: Bench) -> None:
    started = await bench.start("order-42", args=b"apples", priority=3, deadline=9e9)
    assert (started.id, started.created, started.status) == ("order-42", True, Status.READY)
    info = await bench.store.info("order-42")
    assert info is not None
    assert (info.run, info.args, info.priority, info.deadline) == (started.run, b"apples", 3, 9e9)
    assert (info.status_name, info.fence, info.value) == ("ready", 0, b"")


async def test_the_same_id_identity_and_arguments_find_the_existing_run(bench: Bench) -> None:
    first = await bench.start("order")
    again = await bench.start("order")
    assert (again.run, again.created) == (first.run, False)


async def test_a_repeated_start_is_told_that_it_created_the_run(bench: Bench) -> None:
    verb = Start(bench.new("order"))
    assert await bench.store.do(verb) == await bench.store.do(verb)


@pytest.mark.parametrize(
    "other",
    [
        {"digest": b"sig." + b"other words."},
        {"identity": TASK},
        {"identity": Identity(Kind.WORKFLOW, "checkout", 2)},
    ],
    ids=["arguments", "name", "version"],
)
async def test_an_id_taken_by_something_else_is_a_conflict_and_changes_nothing(
    bench: Bench, other: dict[str, object]
) -> None:
    await bench.start("order", args=b"first")
    before = await bench.store.history("order")
    with pytest.raises(IdConflict, match="order.*checkout"):
        await bench.start("order", **other)
    assert await bench.store.history("order") == before


async def test_after_a_change_of_signature_the_identity_alone_decides(bench: Bench) -> None:
    await bench.start("order")
    again = await bench.start("order", digest=b"new." + b"other words.")
    assert not again.created


async def test_concurrent_starts_of_one_id_make_one_run(bench: Bench) -> None:
    starts = [bench.store.do(Start(bench.new("k"))) for _ in range(20)]
    answers = await asyncio.gather(*starts)
    assert len({answer.run for answer in answers}) == 1
    assert [answer.created for answer in answers].count(True) == 1


async def test_large_arguments_and_results_come_back_whole(bench: Bench) -> None:
    session = await bench.session()
    for size in (1023, 1024, 1025, 1_000_000):
        args = bytes(range(256)) * (size // 256 + 1)
        claimed = await bench.claimed(session, f"large-{size}", args=args[:size])
        assert claimed.args == args[:size]
        info = await bench.store.info(f"large-{size}")
        assert info is not None
        assert info.args == args[:size]


async def test_a_run_with_a_future_due_is_scheduled(bench: Bench) -> None:
    due = bench.clock.now() + 3600
    started = await bench.start("later", due=due)
    assert started.status == Status.SCHEDULED
    session = await bench.session()
    assert (await bench.claim(session)).runs == []
    info = await bench.store.info("later")
    assert info is not None
    assert info.due == due


async def test_a_run_can_be_born_claimed(bench: Bench) -> None:
    session = await bench.session()
    await bench.claim(session)
    args = b"x" * 5000
    started = await bench.store.do(Start(bench.new("born", args=args), session.worker))
    assert started.claimed is not None
    assert started.status == Status.RUNNING
    assert (started.claimed.fence, started.claimed.args) == (1, args)
    info = await bench.store.info("born")
    assert info is not None
    assert (info.status_name, info.worker) == ("running", session.worker)


async def test_a_run_is_not_born_claimed_past_older_ready_work(bench: Bench) -> None:
    session = await bench.session()
    await bench.claim(session)
    await bench.start("older")
    started = await bench.store.do(Start(bench.new("younger"), session.worker))
    assert started.claimed is None
    assert [run.id for run in (await bench.claim(session)).runs] == ["older", "younger"]


async def test_a_run_is_not_born_claimed_when_it_is_due_later_or_the_worker_is_gone(
    bench: Bench,
) -> None:
    session = await bench.session()
    await bench.claim(session)
    later = bench.new("later", due=bench.clock.now() + 100)
    assert (await bench.store.do(Start(later, session.worker))).claimed is None
    await session.close()
    assert (await bench.store.do(Start(bench.new("gone"), session.worker))).claimed is None


async def test_an_existing_run_is_never_born_claimed(bench: Bench) -> None:
    session = await bench.session()
    await bench.start("order", due=bench.clock.now() + 100)
    await bench.claim(session)
    again = await bench.store.do(Start(bench.new("order"), session.worker))
    assert (again.claimed, again.created, again.status) == (None, False, Status.SCHEDULED)


async def test_start_many_answers_in_order(bench: Bench) -> None:
    runs = [bench.new(f"r{i}", args=b"x" * (i * 100)) for i in range(50)]
    started = await bench.store.do(StartMany(runs))
    assert [one.id for one in started] == [run.id for run in runs]
    for one, run in zip(started, runs, strict=True):
        info = await bench.store.info(one.id)
        assert info is not None
        assert (info.run, info.args) == (one.run, run.args)


async def test_start_many_finds_those_that_exist(bench: Bench) -> None:
    first = await bench.start("b")
    started = await bench.store.do(StartMany([bench.new("a"), bench.new("b"), bench.new("c")]))
    assert [one.created for one in started] == [True, False, True]
    assert started[1].run == first.run


async def test_start_many_inserts_all_or_none(bench: Bench) -> None:
    await bench.start("b", digest=b"sig." + b"other words.")
    with pytest.raises(IdConflict):
        await bench.store.do(StartMany([bench.new("a"), bench.new("b"), bench.new("c")]))
    assert await bench.store.info("a") is None
    assert await bench.store.info("c") is None
    assert await bench.store.do(StartMany([])) == []


async def test_a_verb_that_cannot_be_stored_fails_alone(bench: Bench) -> None:
    verbs: list[AnyVerb] = [
        Start(bench.new("before")),
        Start(bench.new("too-large-a-number", priority=2**70)),
        Start(bench.new("surrogate", args=b"", queue="\ud800")),
        StartMany([bench.new("part"), bench.new("of-many", priority=2**70)]),
        Start(bench.new("after")),
    ]
    answers = await asyncio.gather(
        *(bench.store.do(verb) for verb in verbs), return_exceptions=True
    )
    failed = [isinstance(answer, Exception) for answer in answers]
    assert failed == [False, True, True, True, False]
    assert await bench.store.info("part") is None
    assert await bench.status("after") == "ready"


async def test_what_is_no_verb_or_too_large_is_refused_at_once(bench: Bench) -> None:
    def done(result: object) -> None:
        raise AssertionError(result)

    with pytest.raises(TypeError, match="not a verb"):
        bench.store.submit("start", done)  # type: ignore[arg-type] # that is the mistake
    with pytest.raises(ValueError, match="over the limit"):
        bench.store.submit(Start(bench.new(args=bytes(65 * 1024 * 1024))), done)
    with pytest.raises(ValueError, match="at most 100000"):
        bench.store.submit(StartMany([bench.new()] * 100_001), done)


async def test_a_closed_store_refuses(bench: Bench) -> None:
    await bench.store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await bench.start("late")
    with pytest.raises(StoreUnavailable, match="closed"):
        await bench.store.info("late")


async def test_close_commits_what_was_submitted(bench: Bench) -> None:
    answers: list[object] = []
    for number in range(3000):
        bench.store.submit(Start(bench.new(f"r{number}")), answers.append)
    await bench.store.close()
    assert len(answers) == 3000
    assert not any(isinstance(answer, Exception) for answer in answers)

"""Listing, history, waiting for an end."""

from __future__ import annotations

import asyncio

import pytest

from stepwell_queue import (
    Append,
    CancelRun,
    Ended,
    Finish,
    Identity,
    Kind,
    Park,
    Phase,
    RunFilter,
    RunNotFound,
    Settle,
    Start,
    Status,
)
from tests.store.kit import TASK, WORKFLOW, Bench

pytestmark = pytest.mark.anyio


async def ids(bench: Bench, **filter: object) -> list[str]:
    return [run.id for run in await bench.store.list_runs(RunFilter(**filter))]  # type: ignore[arg-type] # by keyword, as tests say it


async def test_listings_are_filtered_newest_first_and_paged(bench: Bench) -> None:
    await bench.start("a")
    await bench.start("b", identity=TASK)
    await bench.start("c", queue="gpu")
    await bench.start("d")
    assert await ids(bench) == ["d", "c", "b", "a"]
    assert await ids(bench, name="checkout") == ["d", "c", "a"]
    assert await ids(bench, queue="gpu") == ["c"]
    assert await ids(bench, kinds=[Kind.TASK]) == ["b"]
    first = await bench.store.list_runs(RunFilter(limit=2))
    assert await ids(bench, limit=2, after=first[-1].run) == ["b", "a"]


async def test_listings_by_status_word(bench: Bench) -> None:
    session = await bench.session()
    running = await bench.claimed(session, "running")
    undoing = await bench.claimed(session, "undoing")
    await bench.store.do(Append(undoing.run, 1, phase=Phase.ROLLING_BACK))
    stuck = await bench.claimed(session, "stuck")
    await bench.store.do(Settle(stuck.run, 1, Status.STUCK, b""))
    await bench.start("later", due=9e12)
    await bench.start("ready")
    assert await ids(bench, statuses=["running"]) == [running.id]
    assert await ids(bench, statuses=["rolling_back"]) == ["undoing"]
    assert await ids(bench, statuses=["stuck", "scheduled"]) == ["later", "stuck"]
    assert await ids(bench, statuses=[]) == []
    with pytest.raises(ValueError, match="unknown status 'flying'.*no_code"):
        await ids(bench, statuses=["flying"])
    with pytest.raises(ValueError, match="limit"):
        await ids(bench, limit=0)


async def test_work_that_no_live_worker_has_code_for_shows(bench: Bench) -> None:
    session = await bench.session(WORKFLOW)
    await bench.start("served")
    await bench.start("other-name", identity=TASK)
    await bench.start("other-version", identity=Identity(Kind.WORKFLOW, "checkout", 2))
    await bench.start("other-queue", queue="gpu")
    without = ["other-queue", "other-version", "other-name"]
    assert await ids(bench, statuses=["no_code"]) == without
    infos = await bench.store.list_runs(RunFilter())
    assert [run.id for run in infos if not run.has_code] == without
    await session.close()
    assert await ids(bench, statuses=["no_code"]) == [*without, "served"]


async def test_node_jobs_are_hidden_from_listings_and_shown_as_children(bench: Bench) -> None:
    parent = await bench.claimed(await bench.session(), "parent")
    job = bench.new("job", identity=Identity(Kind.STEP, "render", 1))
    await bench.store.do(Append(parent.run, 1, children=[("0", job)]))
    assert await ids(bench) == ["parent"]
    history = await bench.store.history("parent")
    assert history is not None
    assert [(run.id, run.parent_path) for run in history.children] == [("job", "0")]
    assert await ids(bench, parent_id="parent", kinds=[Kind.STEP]) == ["job"]


async def test_what_does_not_exist_reads_as_none(bench: Bench) -> None:
    assert await bench.store.info("nobody") is None
    assert await bench.store.history("nobody") is None
    with pytest.raises(RunNotFound):
        await bench.store.wait_ended("nobody")


def finish(bench: Bench, run: int, value: bytes = b"result", fence: int = 1) -> Finish:
    return Finish(run, fence, Status.COMPLETED, value, bench.clock.now(), clean=True)


@pytest.mark.parametrize("size", [5, 5000])
async def test_waiting_for_the_end_answers_with_the_outcome(bench: Bench, size: int) -> None:
    session = await bench.session()
    run = await bench.claimed(session, "run", args=b"a" * size)
    waits = [asyncio.ensure_future(bench.store.wait_ended("run")) for _ in range(3)]
    await asyncio.sleep(0)
    await bench.store.do(finish(bench, run.run, b"v" * size))
    end = Ended(run.run, Status.COMPLETED, b"v" * size)
    assert await asyncio.gather(*waits) == [end] * 3
    assert await bench.store.wait_ended("run") == end


async def test_an_end_is_never_missed_by_who_begins_to_wait_meanwhile(bench: Bench) -> None:
    session = await bench.session()
    await bench.claim(session)
    waits: list[asyncio.Task[Ended]] = []

    async def life(number: int) -> None:
        started = await bench.store.do(Start(bench.new(f"r{number}"), session.worker))
        run = started.claimed or await bench.claim_one(session)
        for moment in range(4):
            if number % 4 == moment:
                waits.append(asyncio.create_task(bench.store.wait_ended(run.id)))
            await asyncio.sleep(0)
        await bench.store.do(finish(bench, run.run))

    for number in range(80):
        await life(number)
    async with asyncio.timeout(10):
        infos = await asyncio.gather(*waits)
    assert {info.status for info in infos} == {Status.COMPLETED}
    assert len(infos) == 80


async def test_an_end_in_the_very_batch_of_the_looks_is_missed_by_none(bench: Bench) -> None:
    await bench.start("run")
    first = [asyncio.ensure_future(bench.store.wait_ended("run")) for _ in range(3)]
    await asyncio.sleep(0)
    cancel = asyncio.ensure_future(bench.store.do(CancelRun("run", "c", b"", bench.clock.now())))
    await asyncio.sleep(0)
    last = [asyncio.ensure_future(bench.store.wait_ended("run")) for _ in range(3)]
    async with asyncio.timeout(10):
        await cancel
        ends = await asyncio.gather(*first, *last)
    assert {ended.status for ended in ends} == {Status.CANCELLED}


async def test_waiting_ends_when_a_run_is_held_or_cancelled_unclaimed(bench: Bench) -> None:
    run = await bench.claimed(await bench.session(), "held")
    await bench.start("unclaimed")
    waits = [asyncio.ensure_future(bench.store.wait_ended(id)) for id in ("held", "unclaimed")]
    await bench.store.info("held")
    await bench.store.do(Settle(run.run, 1, Status.HELD, b"why"))
    await bench.store.do(CancelRun("unclaimed", "c", b"", bench.clock.now()))
    async with asyncio.timeout(10):
        held, unclaimed = await asyncio.gather(*waits)
    assert (held.status, held.value) == (Status.HELD, b"why")
    assert unclaimed.status == Status.CANCELLED


async def test_a_wait_that_is_cancelled_leaves_others_waiting(bench: Bench) -> None:
    session = await bench.session()
    run = await bench.claimed(session, "run")
    first, second = (asyncio.ensure_future(bench.store.wait_ended("run")) for _ in range(2))
    await bench.store.do(Park(run.run, 1, None, "go"))
    first.cancel()
    await bench.signal("run", "u")
    again = await bench.claim_one(session)
    await bench.store.do(finish(bench, run.run, fence=again.fence))
    async with asyncio.timeout(10):
        assert (await second).status == Status.COMPLETED


async def test_reading_while_writing_mixes_nothing_up(bench: Bench) -> None:
    session = await bench.session()
    runs = [await bench.claimed(session, f"r{n}") for n in range(10)]

    async def write(run: int) -> None:
        for seq in range(20):
            await bench.store.do(Append(run, 1, [bench.record(seq)]))

    async def read() -> None:
        for _ in range(20):
            assert len(await ids(bench)) == 10

    await asyncio.gather(*(write(run.run) for run in runs), read(), read())
    for run in runs:
        history = await bench.store.history(run.id)
        assert history is not None
        assert [record.seq for record in history.journal] == list(range(20))

"""What is undone, of one verb or of a whole batch, leaves no trace in what the store remembers."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stepwell_queue import (
    Claim,
    ClaimResult,
    Finish,
    IdConflict,
    Reschedule,
    RunNotFound,
    Start,
    StartMany,
    Status,
    Store,
    Terms,
)
from stepwell_queue.answer import settle
from stepwell_queue.contract import AnyVerb, QueueSettings, RateLimit, SetQueue
from tests.store.kit import TASK, WORKFLOW, Bench, Listener, ManualClock, open_bench

pytestmark = pytest.mark.anyio


def submit(store: Store, *verbs: AnyVerb) -> list[asyncio.Future[Any]]:
    """Say these in one batch."""
    answers: list[asyncio.Future[Any]] = []
    for verb in verbs:
        answers.append(asyncio.get_running_loop().create_future())
        store.submit(verb, partial(settle, answers[-1]))
    return answers


async def finish(bench: Bench, run: int, fence: int) -> None:
    await bench.store.do(Finish(run, fence, Status.COMPLETED, b"", bench.clock.now(), clean=True))


async def test_a_key_whose_start_was_undone_is_claimed_by_everybody_later(path: Path) -> None:
    bench = await open_bench(path)
    await bench.start("plain")
    taken = bench.new("plain", digest=b"sig.other argument")
    keyed = [bench.new(terms=Terms(key="a")) for _ in range(2)]
    with pytest.raises(IdConflict):
        await bench.store.do(StartMany([*keyed, taken]))
    await bench.store.do(Start(keyed[0]))
    await bench.store.close()
    again = await open_bench(path)
    session = await again.session()
    assert {run.id for run in (await again.claim(session)).runs} == {"plain", keyed[0].id}
    assert await again.store.doctor() == []
    await again.store.close()


async def test_who_waits_for_a_run_does_not_hear_of_an_end_that_was_undone(bench: Bench) -> None:
    session = await bench.session(TASK)
    await bench.start("bad", identity=TASK)
    bad = await bench.claim_one(session)
    await bench.store.do(Finish(bad.run, bad.fence, Status.FAILED, b"", bench.clock.now()))
    await bench.start("waiting", terms=Terms(unique="k"))
    waiter = asyncio.create_task(bench.store.wait_ended("waiting"))
    await bench.status("waiting")
    swap = bench.new(terms=Terms(unique="k", replace=True, after=["bad"], failures=[b"no"]))
    lost = bench.new(terms=Terms(after=["nobody"]))
    with pytest.raises(RunNotFound):
        await bench.store.do(StartMany([swap, lost]))
    assert await bench.status("waiting") == "ready"
    run = await bench.claim_one(await bench.session())
    await finish(bench, run.run, run.fence)
    assert (await waiter).status == Status.COMPLETED


async def test_a_place_is_free_again_though_it_was_given_up_and_taken_in_one_batch(
    bench: Bench,
) -> None:
    await bench.store.do(SetQueue("default", QueueSettings(limit=1)))
    listener = Listener()
    session = await bench.session(listener=listener)
    run = await bench.claimed(session)
    await bench.start("next")
    back, claim = submit(
        bench.store,
        Reschedule(run.run, run.fence, None),
        Claim(session.worker, 10, {}),
    )
    await back
    found: ClaimResult = await claim
    [again] = found.runs
    assert again.id == run.id
    assert (await bench.claim(session)).runs == []
    listener.ready.clear()
    await finish(bench, again.run, again.fence)
    await listener.wait_ready()
    assert (await bench.claim_one(session)).id == "next"


async def test_a_token_wakes_those_who_wait_though_the_batch_had_to_be_done_again(
    path: Path, clock: ManualClock
) -> None:
    bench = await open_bench(path, clock=clock)
    await bench.store.do(SetQueue("default", QueueSettings(rate=RateLimit(1, 10.0, 1))))
    listener = Listener()
    session = await bench.session(listener=listener)
    for _ in range(2):
        await bench.start()
    await bench.claim_one(session)
    await bench.status("run-1")
    listener.ready.clear()
    clock.move(11)  # which says that what is due is to be made ready
    [broken] = submit(bench.store, Start(bench.new("\ud800", WORKFLOW)))
    with pytest.raises(UnicodeEncodeError):
        await broken
    await listener.wait_ready()
    assert len((await bench.claim(session)).runs) == 1
    await bench.store.close()

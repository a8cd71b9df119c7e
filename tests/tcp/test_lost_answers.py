"""Answers that are lost on the way: the request is said again, and happens once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell_queue import (
    Append,
    CancelRun,
    Claimed,
    Finish,
    RunFilter,
    SendSignal,
    Start,
    StartMany,
    Status,
    Store,
)
from tests.store.test_repetition import SCENES, Scene, contents
from tests.tcp.kit import LONG, Client, Net, network
from tests.tcp.proxy import Lose

pytestmark = pytest.mark.anyio


@pytest.fixture
async def net(tmp_path: Path) -> AsyncIterator[Net]:
    async with network(tmp_path / "runs.db") as net:
        yield net


async def lost(net: Net, work: Awaitable[Any], *, containing: bytes = b"") -> Any:
    """Do it, and lose the first answer with its connection."""
    net.proxy.rule = rule = Lose(containing=containing)
    result = await work
    assert rule.lost.is_set()
    return result


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_a_verb_whose_answer_is_lost_happens_once_and_answers_as_if_nothing_had_been(
    net: Net, scene: Scene
) -> None:
    for verb in await scene(net.client):
        answer = await lost(net, net.client.store.do(verb))
        after = await contents(net.client.path)
        assert await net.direct.store.do(verb) == answer
        assert await contents(net.client.path) == after


async def test_a_new_run_is_still_said_to_be_created(net: Net) -> None:
    client = net.client
    started = await lost(net, client.store.do(Start(client.new("one"))))
    assert (started.created, started.status) == (True, Status.READY)
    many = await lost(net, client.store.do(StartMany([client.new("two"), client.new("three")])))
    assert [one.created for one in many] == [True, True]
    again = await client.store.do(Start(client.new("one")))
    assert not again.created


async def test_signals_and_cancels_are_not_doubled(net: Net) -> None:
    client = net.client
    run = await client.claimed(await client.session(), "run")
    now = client.clock.now()
    for uid in ("a", "b"):
        await lost(net, client.store.do(SendSignal("run", uid, "go", b"", now)))
    assert await lost(net, client.store.do(CancelRun("run", "c", b"", now))) == Status.RUNNING
    history = await client.store.history("run")
    assert history is not None
    assert [row.uid for row in history.inbox] == ["a", "b", "c"]
    ears = next(iter(client.ears.values()))
    assert ears.holds() == {run.run: run.fence}
    assert {row.uid for row in ears.rows} == {"a", "b", "c"}


async def test_claims_that_nobody_heard_of_are_released_without_a_crash_and_taken_again_at_once(
    net: Net,
) -> None:
    client = net.client
    session = await client.session()
    held = await client.claimed(session, "held")
    for id in ("a", "b"):
        await client.start(id)
    found = await lost(net, client.claim(session))
    assert [(one.id, one.crashes, one.fence) for one in found.runs] == [("a", 0, 2), ("b", 0, 2)]
    assert client.ears[session.worker].lost == []
    await client.store.do(Append(held.run, held.fence, [client.record(0)]))
    for one in (held, *found.runs):
        await client.store.do(Finish(one.run, one.fence, Status.COMPLETED, b"", 0.0))


async def test_jobs_that_were_pushed_and_lost_are_pushed_again(net: Net) -> None:
    client = net.client
    session = await client.session()
    session.offer(2)
    assert (await client.claim(session, 2)).runs == []
    ears = client.ears[session.worker]
    net.proxy.rule = rule = Lose(containing=b"run-a")
    await net.direct.start("run-a")
    run = await ears.take()
    assert rule.lost.is_set()
    assert (run.id, run.fence, run.crashes) == ("run-a", 2, 0)
    await client.store.do(Finish(run.run, run.fence, Status.COMPLETED, b"", 0.0))
    assert ears.pushed.empty()


async def test_a_run_that_was_started_for_its_worker_is_not_left_lying(net: Net) -> None:
    client = net.client
    session = await client.session()
    started = await lost(net, client.store.do(Start(client.new("run"), session.worker)))
    assert started.created
    run: Claimed | None = started.claimed
    if run is None:  # it was released, since nobody said to hold it
        run = await client.claim_one(session)
    assert (run.id, run.crashes) == ("run", 0)
    await client.store.do(Finish(run.run, run.fence, Status.COMPLETED, b"", 0.0))


async def test_a_message_that_was_told_and_lost_is_told_again(net: Net) -> None:
    client = net.client
    session = await client.session()
    await client.claimed(session, "run")
    net.proxy.rule = rule = Lose(containing=b"told-once")
    await net.direct.signal("run", "told-once")
    ears = client.ears[session.worker]
    async with asyncio.timeout(LONG):
        await ears.told.wait()
    assert rule.lost.is_set()
    assert {row.uid for row in ears.rows} == {"told-once"}


READS: list[Callable[[Store], Awaitable[Any]]] = [
    lambda store: store.info("run"),
    lambda store: store.list_runs(RunFilter()),
    lambda store: store.history("run"),
    lambda store: store.wait_ended("run"),
    lambda store: store.doctor(),
]


@pytest.mark.parametrize("read", READS)
async def test_a_read_whose_answer_is_lost_is_asked_again(
    net: Net, read: Callable[[Store], Awaitable[Any]]
) -> None:
    client = net.client
    run = await client.claimed(await client.session(), "run")
    await client.store.do(Finish(run.run, run.fence, Status.COMPLETED, b"value", 0.0))
    assert await lost(net, read(client.store)) == await read(net.direct.store)


async def test_a_wait_goes_on_over_connections_that_break(net: Net) -> None:
    client = net.client
    await client.start("run")
    waiting = asyncio.ensure_future(client.store.wait_ended("run"))
    await lost(net, client.store.info("run"))
    await net.direct.store.do(CancelRun("run", "c", b"", 0.0))
    async with asyncio.timeout(LONG):
        assert (await waiting).status == Status.CANCELLED


async def test_a_session_is_opened_and_closed_once_though_the_answers_are_lost(net: Net) -> None:
    client = net.client
    session = await lost(net, client.session())
    assert len(await client.store.workers()) == 1
    await client.claimed(session, "run")
    await lost(net, session.close())
    assert await client.store.workers() == []
    taken = await net.direct.claim_one(await net.direct.session())
    assert (taken.id, taken.crashes) == ("run", 0)


async def test_what_was_said_while_there_was_no_connection_is_said_in_its_order(net: Net) -> None:
    client: Client = net.client
    run = await client.claimed(await client.session(), "run")
    net.proxy.cut(reset=True)
    said = [client.store.do(Append(run.run, run.fence, [client.record(n)])) for n in range(20)]
    said.append(client.store.do(Finish(run.run, run.fence, Status.COMPLETED, b"", 0.0)))
    async with asyncio.timeout(LONG):
        assert await asyncio.gather(*said) == [None] * 21
    history = await client.store.history("run")
    assert history is not None
    assert [record.seq for record in history.journal] == list(range(20))

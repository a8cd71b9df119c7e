"""Connections that are cut, closed on one side, chopped up or silent, and what becomes of them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stepwell_queue import (
    Append,
    Finish,
    SendSignal,
    StaleFence,
    Start,
    Status,
    StoreUnavailable,
)
from stepwell_queue.tcp.client.store import TcpStore
from tests.serving import serving, serving_in_a_thread, url_of
from tests.tcp.kit import LONG, Client, Net, client_of, network
from tests.tcp.proxy import DOWN, UP, Pair, proxy_to

pytestmark = pytest.mark.anyio


@pytest.fixture
async def net(tmp_path: Path) -> AsyncIterator[Net]:
    async with network(tmp_path / "runs.db") as net:
        yield net


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients connect again without much ado."""
    monkeypatch.setattr("stepwell_queue.tcp.client.link._FIRST_RETRY", 0.0)


class CutAfter:
    """A rule: the first connection is cut once so many bytes have gone this way."""

    def __init__(self, direction: str, count: int) -> None:
        self._direction, self._count = direction, count

    def __call__(self, pair: Pair, direction: str, data: bytes) -> bytes:
        if pair.number or direction != self._direction:
            return data
        left = self._count - pair.passed[direction]
        if len(data) >= left:
            pair.send(direction, data[:left])
            pair.cut()
            return b""
        return data


async def conversation(client: Client, id: str) -> None:
    """A start, a claim, a signal and an end, once each."""
    session = await client.session(queues=[id])
    held = client.ears[session.worker].held
    started = await client.store.do(Start(client.new(id, queue=id), session.worker))
    run = started.claimed or await client.claim_one(session)
    held[run.run] = run.fence
    await client.signal(id, "uid")
    await client.store.do(Finish(run.run, run.fence, Status.COMPLETED, b"v", 0.0))
    assert (started.created, run.crashes) == (True, 0)


@pytest.mark.parametrize("direction", [UP, DOWN])
@pytest.mark.usefixtures("_at_once")
async def test_a_conversation_survives_a_cut_at_every_byte(tmp_path: Path, direction: str) -> None:
    path = tmp_path / "runs.db"
    async with serving(path) as server, contextlib.AsyncExitStack() as stack:
        cuts = 0
        for count in range(10_000):
            async with proxy_to(server.address) as proxy:
                proxy.rule = CutAfter(direction, count)
                try:
                    client = await client_of(proxy.url, path)
                except StoreUnavailable:  # it was cut before the welcome
                    client = await client_of(proxy.url, path)
                await conversation(client, f"run-{count}")
                await client.store.close()
                if not proxy.pairs[0].gone.is_set() or len(proxy.pairs) < 2:
                    break
                cuts += 1
        assert cuts > 100
        check = await client_of(url_of(server), path)
        stack.push_async_callback(check.store.close)
        assert await check.store.doctor() == []
        for number in range(cuts):
            history = await check.store.history(f"run-{number}")
            assert history is not None
            assert (history.run.status_name, len(history.inbox)) == ("completed", 1)


async def test_what_comes_byte_by_byte_is_understood(net: Net) -> None:
    def chop(pair: Pair, direction: str, data: bytes) -> bytes:
        for at in range(len(data)):
            pair.send(direction, data[at : at + 1])
        return b""

    net.proxy.rule = chop
    client = await client_of(net.proxy.url, net.client.path)
    await conversation(client, "run")
    await client.store.close()
    talked = [pair for pair in net.proxy.pairs if pair.passed[UP] and not pair.beats]
    assert len(talked) == 2  # none broke


@pytest.mark.parametrize("reset", [False, True])
async def test_a_connection_that_is_cut_costs_no_worker_its_runs(net: Net, reset: bool) -> None:
    client = net.client
    run = await client.claimed(await client.session(), "run")
    for seq in range(5):
        net.proxy.cut(reset=reset)
        await client.store.do(Append(run.run, run.fence, [client.record(seq)]))
    assert [worker.held for worker in await client.store.workers()] == [1]


@pytest.mark.parametrize("direction", [UP, DOWN])
async def test_a_connection_that_is_closed_on_one_side_is_replaced(
    net: Net, direction: str
) -> None:
    (pair,) = net.proxy.pairs
    pair.half_close(direction)
    async with asyncio.timeout(LONG):
        await pair.gone.wait()
    assert (await net.client.start("run")).created
    assert len(net.proxy.pairs) == 2


async def test_a_server_that_has_fallen_silent_is_noticed_and_asked_again(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell_queue.tcp.client.link._PING_EVERY", 0.05)
    client = await client_of(net.proxy.url, net.client.path)
    net.proxy.stall()
    before = asyncio.get_running_loop().time()
    async with asyncio.timeout(LONG):
        assert (await client.start("run")).created
    # two pings that brought nothing, and the tick by which that is noticed
    assert asyncio.get_running_loop().time() - before < 0.05 * 4 + 1
    await client.store.close()


async def test_a_server_that_says_nothing_at_all_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("stepwell_queue.tcp.client.link._CONNECT_WITHIN", 0.1)
    path = tmp_path / "runs.db"
    async with serving(path) as server, proxy_to(server.address) as proxy:
        proxy.rule = lambda pair, direction, data: b""
        with pytest.raises(StoreUnavailable, match=r"tcp://127.* \(no answer within 0.1 seconds\)"):
            await client_of(proxy.url, path)
        await asyncio.sleep(0)
    assert [record for record in caplog.records if record.name == "asyncio"] == []


async def test_a_worker_that_has_vanished_loses_its_runs_when_its_lease_is_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with network(tmp_path / "runs.db", lease=0.3) as net:
        client = net.client
        gone = await client.session()
        run = await client.claimed(gone, "run")
        other = await net.direct.session()
        other.offer(1)
        net.proxy.rule = lambda pair, direction, data: b""
        net.proxy.stall()
        taken = await net.direct.ears[other.worker].take()
        assert (taken.run, taken.crashes) == (run.run, 1)
        assert taken.fence > run.fence
        assert "a worker on it has shown no life for as long as its lease" in caplog.text
        net.proxy.rule = lambda pair, direction, data: data
        net.proxy.cut()
        async with asyncio.timeout(LONG):
            await client.ears[gone.worker].lost_some.wait()
        assert client.ears[gone.worker].lost == [run.run]
        for late in (
            client.store.do(Append(run.run, run.fence, [client.record(0)])),
            client.store.do(Finish(run.run, run.fence, Status.FAILED, b"", 0.0)),
        ):
            with pytest.raises(StaleFence):
                await late
        await net.direct.store.do(Finish(taken.run, taken.fence, Status.COMPLETED, b"", 0.0))


@pytest.mark.blocking
async def test_a_loop_that_is_blocked_for_longer_than_the_lease_loses_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.db"
    with serving_in_a_thread(path, lease=0.3) as url:
        client = await client_of(url, path)
        run = await client.claimed(await client.session(), "run")
        time.sleep(1.0)  # noqa: ASYNC251  this is what the test is about
        await client.store.do(Append(run.run, run.fence, [client.record(0)]))
        info = await client.store.info("run")
        assert info is not None
        assert (info.fence, info.crashes) == (run.fence, 0)
        await client.store.close()


async def test_a_request_that_takes_too_long_fails_by_name_and_a_workers_word_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell_queue.tcp.client.link._PING_EVERY", 0.05)
    async with network(tmp_path / "runs.db", timeout=0.2) as net:
        client = net.client
        run = await client.claimed(await client.session(), "run")
        net.proxy.rule = lambda pair, direction, data: b"" if direction == DOWN else data
        kept = asyncio.ensure_future(
            client.store.do(Append(run.run, run.fence, [client.record(0)]))
        )
        for request, name in (
            (client.store.do(SendSignal("run", "uid", "go", b"", 0.0)), "SendSignal"),
            (client.store.do(Start(client.new("other"))), "Start"),
            (client.store.info("run"), "GetInfo"),
        ):
            with pytest.raises(StoreUnavailable, match=rf"{name} to tcp://127.*within 0.2 sec"):
                await request
        assert not kept.done()
        net.proxy.rule = lambda pair, direction, data: data
        net.proxy.cut()
        async with asyncio.timeout(LONG):
            await kept
        history = await client.store.history("run")
        assert history is not None
        assert [row.uid for row in history.inbox] == ["uid"]  # it had been carried out


async def test_a_client_that_is_closed_without_a_connection_does_not_wait_for_one(
    net: Net,
) -> None:
    client = await client_of(net.proxy.url, net.client.path)
    net.proxy.refusing = True
    net.proxy.cut()
    waiting: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(client.store.do(Start(client.new("run")))),
        asyncio.ensure_future(client.store.wait_ended("run")),
    ]
    await net.proxy.pairs[1].gone.wait()
    await asyncio.sleep(0)
    async with asyncio.timeout(1):
        await client.store.close()
    first, second = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(first, StoreUnavailable)
    assert isinstance(second, StoreUnavailable | asyncio.CancelledError)
    with pytest.raises(StoreUnavailable, match="is closed"):
        await client.store.info("run")
    net.proxy.refusing = False


async def test_a_client_whose_connection_breaks_while_it_closes_does_not_wait_for_another(
    net: Net,
) -> None:
    client = await client_of(net.proxy.url, net.client.path)
    answered = asyncio.Event()

    def swallow(pair: Pair, direction: str, data: bytes) -> bytes:
        if pair.number == 1 and direction == DOWN:
            answered.set()
            return b""
        return data

    net.proxy.rule = swallow
    unanswered = asyncio.ensure_future(client.store.do(Start(client.new("run"))))
    closing = asyncio.ensure_future(client.store.close())
    async with asyncio.timeout(LONG):
        await answered.wait()
        net.proxy.pairs[1].cut()
        await closing
    with pytest.raises(StoreUnavailable, match="closed while Start to tcp://"):
        await unanswered


async def test_what_nobody_waits_for_any_more_is_kept_nowhere(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = net.client
    await client.start("run")
    for _ in range(50):
        waiting = asyncio.ensure_future(client.store.wait_ended("run"))
        await client.store.info("run")
        waiting.cancel()
        net.proxy.cut()
        await client.store.info("run")
    await client.store.info("run")
    tcp = client.store
    assert isinstance(tcp, TcpStore)
    assert (tcp._link.waiting, tcp._link._outbox, tcp._link.bytes) == ({}, [], 0)
    assert (tcp._waiters, tcp._tasks) == (set(), set())
    assert not any(one.watchers or one.busy for one in net.server._connections)
    assert len(net.server._connections) == 2  # of the client, and of the one that looks


async def test_requests_that_fail_while_there_is_no_connection_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell_queue.tcp.client.link._PING_EVERY", 0.02)
    async with network(tmp_path / "runs.db", timeout=0.02) as net:
        net.proxy.refusing = True
        net.proxy.cut()
        await net.proxy.pairs[0].gone.wait()
        for _ in range(10):
            with pytest.raises(StoreUnavailable):
                await net.client.store.info("run")
        link = net.client.tcp._link
        assert (link.waiting, link._outbox) == ({}, [])
        net.proxy.refusing = False

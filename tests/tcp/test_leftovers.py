"""What stays behind of connections that broke and of stores that were closed: nothing."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from stepwell_queue import Finish, Status
from tests.tcp.kit import LONG, client_of, network

pytestmark = pytest.mark.anyio


async def test_a_server_keeps_nothing_of_connections_that_broke(tmp_path: Path) -> None:
    async with network(tmp_path / "runs.db") as net:
        client = net.client
        session = await client.session()
        run = await client.claimed(session, "run")
        waiting = asyncio.ensure_future(client.store.wait_ended("run"))
        for _ in range(30):
            net.proxy.cut()
            await client.store.info("run")
        server = net.server
        await client.store.info("run")
        async with asyncio.timeout(LONG):
            while server._tasks or any(one.busy for one in server._connections):
                await net.direct.store.info("run")  # its own answer is the last that is counted
        assert len([one for one in server._connections if one.sessions]) == 1
        assert len(server._connections) <= 3  # the two clients, and the beats of one
        assert sum(len(one.watchers) for one in server._connections) == 1
        assert len(server._sessions) == 1
        assert not server._queue
        assert len(server.store.remote._sessions) == 1
        assert [worker.held for worker in await client.store.workers()] == [1]
        await client.store.do(Finish(run.run, run.fence, Status.COMPLETED, b"", 0.0))
        async with asyncio.timeout(LONG):
            assert (await waiting).status == Status.COMPLETED
        client.ears[session.worker].held.clear()
        await session.close()
        assert (server._sessions, server.store.remote._sessions) == ({}, {})


async def test_a_store_that_was_closed_leaves_neither_tasks_nor_threads(tmp_path: Path) -> None:
    async with network(tmp_path / "runs.db") as net:
        before = asyncio.all_tasks()
        client = await client_of(net.proxy.url, tmp_path / "runs.db")
        await client.claimed(await client.session(), "run")
        (beat,) = [one for one in threading.enumerate() if one.name == "stepwell-remote-beat"]
        net.proxy.cut()
        await client.store.info("run")
        await client.store.close()
        await asyncio.to_thread(beat.join, LONG)
        assert not beat.is_alive()
        await net.client.store.info("run")  # it is connected again, too
        tasks = asyncio.all_tasks() - before
        assert [task for task in tasks if "stepwell_queue/tcp/client" in repr(task)] == []

"""Stopping servers and workers, each while the other is there and while it is not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest

from stepwell import Stepwell, StoreUnavailable, task
from stepwell_queue import RandomIds, StoreRefused, SystemClock
from stepwell_queue.tcp.access import Access
from stepwell_queue.tcp.server import ServerConfig, open_server
from tests.serving import serving, url_of

pytestmark = pytest.mark.anyio
SOON = 15.0  # seconds; a request may take 30


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@task
async def nothing() -> None: ...


async def test_a_worker_stops_soon_though_its_server_is_gone(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(tmp_path / "runs.db"))
        app = Stepwell(url_of(server), include=[__name__])
        async with asyncio.timeout(SOON):
            async with app, app.worker() as worker:
                run = await app.enqueue(nothing())
                await run.result()
                await worker.drain()
                await server.stop()


async def test_an_app_closes_soon_though_its_server_is_gone(tmp_path: Path) -> None:
    async with serving(tmp_path / "runs.db") as server:
        app = Stepwell(url_of(server), include=[__name__])
        async with asyncio.timeout(SOON), app:
            await server.stop()
            waiting = asyncio.ensure_future(app.enqueue(nothing()))
            await asyncio.sleep(0)
        with pytest.raises(StoreUnavailable):
            await waiting


async def test_a_second_call_of_stop_waits_for_the_first_and_a_cancelled_one_stops(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path / "runs.db") as server:
        first = asyncio.ensure_future(server.stop(60.0))
        await asyncio.sleep(0)
        first.cancel()
        async with asyncio.timeout(SOON):
            await server.stop(0.0)
    async with serving(tmp_path / "runs.db"):
        """The file was let go."""


async def test_a_port_that_is_taken_leaves_no_file_behind(tmp_path: Path) -> None:
    clock = SystemClock()
    path = tmp_path / "runs.db"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = ServerConfig(path, port=taken.getsockname()[1])
        with pytest.raises(OSError, match="address already in use"):
            await open_server(config, clock=clock, ids=RandomIds(clock))
    assert not path.exists()


async def test_a_file_that_is_refused_leaves_no_address_behind(tmp_path: Path) -> None:
    clock = SystemClock()
    async with serving(tmp_path / "runs.db"):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        config = ServerConfig(tmp_path / "runs.db", port=port)
        with pytest.raises(StoreRefused, match="serve"):
            await open_server(config, clock=clock, ids=RandomIds(clock))
        with socket.create_server(("127.0.0.1", port)):
            """Nobody listens there."""


def test_no_token_is_shown() -> None:
    assert "secret" not in repr(Access("secret"))
    assert "secret" not in repr(ServerConfig(Path("runs.db"), token="secret"))

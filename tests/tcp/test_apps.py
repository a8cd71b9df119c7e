"""Apps and workers whose network is bad: nothing is lost, nothing is done twice on its account."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell import BlockingStepwell, Signal, Stepwell, step, task, wait_for_signal, workflow
from stepwell_queue import RandomIds, SystemClock
from stepwell_queue.tcp.server import Server, ServerConfig, open_server
from tests.serving import serving, serving_in_a_thread, url_of
from tests.tcp.proxy import DOWN, Pair, Proxy, proxy_to

pytestmark = pytest.mark.anyio
LONG = 30.0
done: Counter[str] = Counter()
go = Signal("go", int)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    done.clear()


@step
async def note(what: str) -> str:
    done[what] += 1
    return what


@task
async def double(number: int) -> int:
    done[f"double {number}"] += 1
    return 2 * number


@workflow
async def order(number: int) -> int:
    await note(f"begin {number}")
    amount = await wait_for_signal(go)
    doubled = await double(amount)
    await note(f"end {number}")
    return doubled


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[Proxy]:
    async with serving(tmp_path / "runs.db") as server, proxy_to(server.address) as proxy:
        yield proxy
        proxy.rule = lambda pair, direction, data: data


def app_at(url: str) -> Stepwell:
    return Stepwell(url, include=[__name__])


async def orders(app: Stepwell, count: int, between: Callable[[int], Any]) -> None:
    """Start orders, send each its signal, await the results; `between` is called in between."""
    places = asyncio.Semaphore(4)  # with all of them at once, few frames would do

    async def one(number: int) -> None:
        async with places:
            between(number)
            run = await app.start(order(number), id=f"order-{number}")
            between(number)
            await run.signal(go, number)
            between(number)
            assert await run.result(timeout=LONG) == 2 * number

    async with asyncio.timeout(10 * LONG):
        await asyncio.gather(*(one(number) for number in range(count)))


def check_once(count: int) -> None:
    for number in range(count):
        assert done[f"begin {number}"] == done[f"end {number}"] == 1, number
    assert sum(done.values()) == 3 * count


@pytest.mark.parametrize("reset", [False, True])
async def test_cut_connections_cost_no_run_and_repeat_no_step(
    proxy: Proxy, reset: bool, scale: Callable[[int, int], int]
) -> None:
    chance = random.Random(4711)
    count = scale(40, 1000)

    def cut(number: int) -> None:
        if chance.random() < 0.2:
            proxy.cut(reset=reset)

    async with app_at(proxy.url) as clients, app_at(proxy.url) as workers, workers.worker():
        await orders(clients, count, cut)
        assert await clients.doctor() == []
    check_once(count)
    assert len(proxy.pairs) > 15


async def test_lost_answers_cost_no_run_and_repeat_no_step(
    proxy: Proxy, scale: Callable[[int, int], int]
) -> None:
    chance = random.Random(4711)
    count = scale(40, 1000)

    def lose(pair: Pair, direction: str, data: bytes) -> bytes:
        if direction == DOWN and pair.passed[DOWN] and chance.random() < 0.1:
            pair.cut()
            return b""
        return data

    proxy.rule = lose
    async with app_at(proxy.url) as clients, app_at(proxy.url) as workers, workers.worker():
        await orders(clients, count, lambda number: None)
        proxy.rule = lambda pair, direction, data: data
        assert await clients.doctor() == []
        runs = await clients.runs(limit=10_000)
        assert [run for run in runs if run.crashes] == []
    check_once(count)
    assert len(proxy.pairs) > 5


async def test_starts_of_one_id_by_several_clients_at_once_are_one_run(proxy: Proxy) -> None:
    async with asyncio.timeout(LONG), app_at(proxy.url) as workers, workers.worker():
        apps = [app_at(proxy.url) for _ in range(4)]
        for app in apps:
            await app.__aenter__()
        runs = await asyncio.gather(*(apps[n % 4].enqueue(double(7), id="k") for n in range(20)))
        proxy.cut()
        assert {await run.result(timeout=LONG) for run in runs} == {14}
        for app in apps:
            await app.__aexit__(None, None, None)
    assert done == {"double 7": 1}


async def test_a_server_that_is_restarted_under_load_loses_nothing_and_is_found_again(
    tmp_path: Path, scale: Callable[[int, int], int]
) -> None:
    count = scale(60, 600)
    clock = SystemClock()
    path = tmp_path / "runs.db"

    async def serve(port: int) -> Server:
        config = ServerConfig(path, port=port, durability="process")
        return await open_server(config, clock=clock, ids=RandomIds(clock))

    server = await serve(0)
    port = server.address[1]
    restarts: list[asyncio.Task[None]] = []
    servers = [server]

    async def restart() -> None:
        await servers[-1].stop()
        servers.append(await serve(port))

    def between(number: int) -> None:
        if (
            number % 10 == 9
            and (not restarts or restarts[-1].done())
            and len(restarts) < count // 20
        ):
            restarts.append(asyncio.get_running_loop().create_task(restart()))

    url = url_of(server)
    async with app_at(url) as clients, app_at(url) as workers, workers.worker():
        await orders(clients, count, between)
        await asyncio.gather(*restarts)
        assert await clients.doctor() == []
        assert [one.name for one in await clients.workers() if not one.alive] == []
    assert len(restarts) >= 1
    await servers[-1].stop()
    check_once(count)


@pytest.mark.blocking
def test_the_blocking_app_goes_on_over_cut_connections(tmp_path: Path) -> None:
    with serving_in_a_thread(tmp_path / "runs.db") as url:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        loop = asyncio.new_event_loop()
        proxies = proxy_to(address)
        proxy = loop.run_until_complete(proxies.__aenter__())

        async def cut() -> None:
            proxy.cut()
            await asyncio.sleep(0)

        with RunningLoop(loop) as run:
            app = BlockingStepwell(proxy.url, include=[__name__])
            for number in range(5):
                assert app.run(double(number)) == 2 * number
                run(cut())
            assert app.doctor() == []
            app.close()
        loop.run_until_complete(proxies.__aexit__(None, None, None))
        loop.close()
    assert sum(done.values()) == 5


class RunningLoop:
    """Has a loop run in a thread; what is called is done there."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.Thread(target=loop.run_forever)

    def __enter__(self) -> Callable[[Any], Any]:
        self._thread.start()
        return lambda work: asyncio.run_coroutine_threadsafe(work, self._loop).result(LONG)

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LONG)

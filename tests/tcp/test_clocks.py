"""Machines whose clocks differ: all times are those of the server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stepwell import Stepwell, now, sleep, step, workflow
from stepwell_queue import SystemClock
from stepwell_queue.clock import Timer
from stepwell_queue.tcp.client import link
from stepwell_queue.tcp.client.clock import ServerClock
from tests.behaviour.stage import until
from tests.serving import serving, url_of
from tests.store.kit import ManualClock

pytestmark = pytest.mark.anyio
HOUR = 3600.0


class WrongClock(SystemClock):
    def __init__(self, ahead: float) -> None:
        super().__init__()
        self._ahead = ahead

    def now(self) -> float:
        return super().now() + self._ahead

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        return super().call_at(when - self._ahead, callback)


@step
async def glance() -> None: ...


@workflow
async def nap() -> float:
    await sleep(0.05)
    await glance()
    return now().timestamp()


@pytest.mark.parametrize("ahead", [0.0, HOUR, -HOUR])
async def test_a_timer_is_due_once_and_by_the_servers_clock_whatever_a_workers_clock_says(
    tmp_path: Path, ahead: float
) -> None:
    right = SystemClock()
    async with (
        serving(tmp_path / "runs.db", clock=right) as server,
        Stepwell(url_of(server), include=[__name__], clock=WrongClock(ahead)) as app,
        app.worker(),
    ):
        before = right.now()
        run = await app.start(nap())
        ended = await run.result(timeout=20)
        info = await app.engine.store.info(run.id)
    assert info is not None
    assert info.fence == 2  # claimed when it was started, and when the timer was over
    assert before - 1 < info.created < ended < right.now() + 1


def test_a_clock_that_agrees_with_the_servers_is_left_alone() -> None:
    local = ManualClock()
    clock = ServerClock(local)
    asked = clock.local()
    local.move(0.2)  # while the answer was on its way
    clock.learn(asked, asked + 0.1)
    assert clock.now() == local.now()


@pytest.mark.parametrize("ahead", [HOUR, -HOUR, 0.3, -0.3])
def test_a_clock_that_differs_follows_the_servers_and_is_not_late(ahead: float) -> None:
    local = ManualClock()
    clock = ServerClock(local)
    asked = clock.local()
    local.move(0.1)
    said = local.now() + ahead
    local.move(0.1)
    clock.learn(asked, said)
    assert 0 <= clock.now() - (local.now() + ahead) <= 0.1 + 1e-6


async def test_an_alarm_rings_at_the_servers_time() -> None:
    local = ManualClock()
    clock = ServerClock(local)
    clock.learn(local.now(), local.now() + HOUR)
    rung: list[float] = []
    clock.call_at(clock.now() + 10, lambda: rung.append(clock.now()))
    local.move(9)
    assert not rung
    local.move(1)
    assert rung == [clock.now()]


async def test_a_client_follows_when_the_servers_clock_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_PING_EVERY", 0.01)
    servers, own = ManualClock(), ManualClock()
    async with (
        serving(tmp_path / "runs.db", clock=servers) as server,
        Stepwell(url_of(server), include=[__name__], clock=own) as app,
    ):
        clock = app.engine.store.clock
        assert clock.now() == servers.now()
        servers.move(HOUR)

        async def it_knows() -> bool:
            return clock.now() == servers.now()

        await until(it_knows)

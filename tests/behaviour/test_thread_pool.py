"""Plain functions run in threads, of which there are so many; the loop waits for none of them."""

from __future__ import annotations

import threading

import pytest

from stepwell import RunCancelled, Stepwell, task
from tests.behaviour.stage import LONG, stage, until

pytestmark = pytest.mark.anyio
THREADS = 3


class Meter:
    """Counts who is inside, and lets everybody out together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.inside = self.most = 0

    def enter(self) -> int:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
            return self.inside

    def leave(self) -> None:
        with self._lock:
            self.inside -= 1


meter = Meter()


@pytest.fixture(autouse=True)
def _nobody_inside() -> None:
    meter.inside = meter.most = 0


@task
def blocks(number: int) -> int:
    if meter.enter() == THREADS:
        stage.reach("all threads taken")
    stage.hold_thread("threads")
    meter.leave()
    return number


@task
async def does_not(number: int) -> int:
    return number


async def test_more_jobs_than_threads_wait_and_keep_nothing_else_from_going_on(
    app: Stepwell,
) -> None:
    async with app.worker(threads=THREADS):
        runs = await app.enqueue_many([blocks(number) for number in range(5 * THREADS)])
        await stage.reached("all threads taken")
        others = await app.enqueue_many([does_not(number) for number in range(50)])
        assert [await run.result(timeout=LONG) for run in others] == list(range(50))
        assert meter.inside == THREADS
        stage.release("threads")
        assert [await run.result(timeout=LONG) for run in runs] == list(range(5 * THREADS))
    assert meter.most == THREADS


async def test_a_job_that_waits_for_a_thread_can_be_cancelled(app: Stepwell) -> None:
    async with app.worker(threads=THREADS):
        runs = [await app.enqueue(blocks(number)) for number in range(THREADS)]
        await stage.reached("all threads taken")
        waits = await app.enqueue(blocks(99))

        async def taken() -> bool:
            return await waits.status() == "running"

        await until(taken)
        await waits.cancel()
        with pytest.raises(RunCancelled):
            await waits.result(timeout=LONG)
        assert meter.inside == THREADS
        stage.release("threads")
        for run in runs:
            await run.result(timeout=LONG)
    assert meter.most == THREADS

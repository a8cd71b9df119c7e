"""A worker whose code has a schedule that ticks each second: `beats STORE SECONDS_AHEAD`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from stepwell import Stepwell, schedule, task
from stepwell_queue import SystemClock, Timer


@schedule(cron="* * * * * *", tz="Europe/Rome", overlap="allow", id="beat")
@task(max_crashes=1000)
async def beat() -> None:
    await asyncio.sleep(0.05)  # so that some are cut


class Ahead(SystemClock):
    """The clock of a machine that is not set right."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._real = SystemClock()

    def now(self) -> float:
        return self._real.now() + self._seconds

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        return self._real.call_at(when - self._seconds, callback)


if __name__ == "__main__":
    app = Stepwell(sys.argv[1], include=[__name__], clock=Ahead(float(sys.argv[2])))
    asyncio.run(app.worker().run())

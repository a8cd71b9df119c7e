"""Deletes ended runs now and then, while a worker runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from stepwell._app.log import log
from stepwell_queue.contract import ListSettings

if TYPE_CHECKING:
    from stepwell._app.app import Stepwell
    from stepwell._app.settings import Retention

EVERY = 60.0


async def keep_pruned(app: Stepwell, retention: Retention | None) -> None:
    """Prune at once and then once a minute, until cancelled."""
    while True:
        try:
            await prune_once(app, retention)
        except Exception as error:  # noqa: BLE001 - retention outlives whatever one pass meets
            log().warning("prune_failed", error=str(error), hint="tried again in a minute")
        await asyncio.sleep(EVERY)


async def prune_once(app: Stepwell, retention: Retention | None) -> int:
    """Delete what no retention keeps; the app's is for queues that have none of their own."""
    engine = app.engine
    own: list[str] = []
    gone = 0
    for one in await engine.store.read(ListSettings()):
        age, count = one.settings.keep_age, one.settings.keep_count
        if age is not None or count is not None:
            own.append(one.queue)
            gone += await engine.prune(older_than=age, keep=count, queue=one.queue)
    if retention is not None:
        age, count = retention.age_seconds, retention.count
        gone += await engine.prune(older_than=age, keep=count, but=own)
    return gone

"""Deletes ended runs now and then, while a worker runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from stepwell._app.log import log

if TYPE_CHECKING:
    from stepwell._app.app import Stepwell
    from stepwell._app.settings import Retention

EVERY = 60.0


async def keep_pruned(app: Stepwell, retention: Retention) -> None:
    """Prune at once and then once a minute, until cancelled."""
    while True:
        try:
            await app.prune(older_than=retention.age_seconds, keep=retention.count)
        except Exception as error:  # noqa: BLE001 - retention outlives whatever one pass meets
            log().warning("prune_failed", error=str(error), hint="tried again in a minute")
        await asyncio.sleep(EVERY)

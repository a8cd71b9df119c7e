"""Deletes ended runs now and then, while a worker runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from stepwell._app.log import log
from stepwell._retention import Retention, declared_keeps, named_keep

if TYPE_CHECKING:
    from stepwell._app.app import Stepwell
    from stepwell_runtime.definitions import Definition

EVERY = 60.0


async def keep_pruned(
    app: Stepwell, retention: Retention | None, definitions: Iterable[Definition]
) -> None:
    """Prune at once and then once a minute, until cancelled."""
    declared = False
    while True:
        try:
            if not declared:
                await app.engine.pruning.declare(declared_keeps(definitions))
                declared = True
            await prune_once(app, retention)
        except Exception as error:  # noqa: BLE001 - retention outlives whatever one pass meets
            notes = getattr(error, "__notes__", ())
            said = "; ".join([f"{type(error).__name__}: {error}", *notes])
            log().warning("prune_failed", error=said, hint="tried again in a minute")
        await asyncio.sleep(EVERY)


async def prune_once(app: Stepwell, retention: Retention | None) -> int:
    """Delete what no retention keeps; the app's is for what has none of its own."""
    return await app.engine.pruning.keep_to_rules(named_keep("", retention))

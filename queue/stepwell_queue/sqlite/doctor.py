"""The invariants, each as a query for what breaks it."""

from __future__ import annotations

from stepwell_queue.contract import Finding
from stepwell_queue.sqlite.reads import Reads
from stepwell_queue.sqlite.statements import SQL

_RULES = tuple(name for name in SQL if name.startswith("doctor_"))


async def examine(reads: Reads) -> list[Finding]:
    """At most 100 findings of each rule."""
    return [
        Finding(name.removeprefix("doctor_"), id, detail)
        for name in _RULES
        for id, detail in await reads.rows(SQL[name])
    ]

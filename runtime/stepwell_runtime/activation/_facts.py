"""What a workflow may know of its own run."""

from __future__ import annotations

from datetime import datetime

import msgspec

from stepwell_queue.clock import utc
from stepwell_queue.contract import Claimed, RecordKind
from stepwell_runtime.policy import scheduled_of


class Facts(msgspec.Struct):
    """The same at every replay. `attempt`: 1, and one more for each retry of the whole run."""

    id: str
    workflow: str
    version: int
    queue: str
    parent_id: str | None
    attempt: int
    _created: float
    _scheduled: float
    _deadline: float | None

    @property
    def created_at(self) -> datetime:
        return utc(self._created)

    @property
    def scheduled_at(self) -> datetime:
        return utc(self._scheduled)

    @property
    def deadline(self) -> datetime | None:
        return None if self._deadline is None else utc(self._deadline)


def facts_of(claimed: Claimed) -> Facts:
    attempt = 1
    if claimed.journal:
        for record in claimed.journal:
            if record.kind == RecordKind.REOPEN and record.name == "retry":
                attempt += 1
    return Facts(
        claimed.id,
        claimed.name,
        claimed.version,
        claimed.queue,
        claimed.parent_id,
        attempt,
        claimed.created,
        scheduled_of(claimed),
        claimed.deadline,
    )

"""What a workflow may know of its own run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from stepwell_queue.contract import Claimed, RecordKind


@dataclass(frozen=True, slots=True)
class Facts:
    """The same at every replay. `attempt`: 1, and one more for each retry of the whole run."""

    id: str
    workflow: str
    version: int
    queue: str
    created_at: datetime
    scheduled_at: datetime
    deadline: datetime | None
    parent_id: str | None
    attempt: int


def facts_of(claimed: Claimed) -> Facts:
    retries = sum(
        record.kind == RecordKind.REOPEN and record.name == "retry" for record in claimed.journal
    )
    created = datetime.fromtimestamp(claimed.created, UTC)
    return Facts(
        claimed.id,
        claimed.name,
        claimed.version,
        claimed.queue,
        created,
        created if claimed.due is None else datetime.fromtimestamp(claimed.due, UTC),
        None if claimed.deadline is None else datetime.fromtimestamp(claimed.deadline, UTC),
        claimed.parent_id,
        1 + retries,
    )

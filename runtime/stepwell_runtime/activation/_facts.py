"""What a workflow may know of its own run."""

from __future__ import annotations

from datetime import datetime

from stepwell_queue.clock import utc
from stepwell_queue.contract import Claimed, RecordKind


class Facts:
    """The same at every replay. `attempt`: 1, and one more for each retry of the whole run."""

    __slots__ = (
        "_created",
        "_deadline",
        "_due",
        "attempt",
        "id",
        "parent_id",
        "queue",
        "version",
        "workflow",
    )

    def __init__(self, claimed: Claimed) -> None:
        self.id, self.workflow, self.version = claimed.id, claimed.name, claimed.version
        self.queue, self.parent_id = claimed.queue, claimed.parent_id
        self._created, self._due, self._deadline = claimed.created, claimed.due, claimed.deadline
        self.attempt = 1
        for record in claimed.journal:
            if record.kind == RecordKind.REOPEN and record.name == "retry":
                self.attempt += 1

    @property
    def created_at(self) -> datetime:
        return utc(self._created)

    @property
    def scheduled_at(self) -> datetime:
        return utc(self._created if self._due is None else self._due)

    @property
    def deadline(self) -> datetime | None:
        return None if self._deadline is None else utc(self._deadline)

"""Queues: what is set for them, and what is said to a queue as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from stepwell_queue.contract.queries import Query
from stepwell_queue.contract.retention import Keep
from stepwell_queue.contract.rows import Time
from stepwell_queue.contract.verbs import Terminal, Verb


class RateLimit(msgspec.Struct, frozen=True, array_like=True):
    """A token bucket: `count` starts each `per` seconds on average, and up to `burst` at once."""

    count: int
    per: float
    burst: int


class QueueSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What holds for all workers of a queue; None = no such limit."""

    limit: int | None = None  # runs that are executed at once
    key_limit: int | None = None  # the same, of those that have one key
    rate: RateLimit | None = None
    key_rate: RateLimit | None = None
    max_length: int | None = None  # runs that are ready
    ageing: float | None = None  # seconds of waiting that count as one step of priority
    keep_age: float | None = None  # seconds that ended runs are kept
    keep_count: int | None = None  # how many of them
    # those that ended with this Status, instead
    keep_statuses: Mapping[Terminal, Keep] = {}

    @property
    def gated(self) -> bool:
        """Whether work is claimed by way of the gate."""
        limits = (self.limit, self.key_limit, self.rate, self.key_rate)
        return any(one is not None for one in limits)


class SetQueue(Verb[None], frozen=True, array_like=True, tag=64, gc=False):
    """Set what holds for a queue.

    `declared`: a digest of the declaration in code; the same as the last one changes nothing, since
    what was set after it counts. None: it is no declaration, and counts. `uid`: the same again,
    among the last 32 of the queue, changes nothing; "" = it counts each time. Raises
    RequestRefused.
    """

    queue: str
    settings: QueueSettings
    declared: str | None = None
    only: Sequence[str] | None = None  # the settings to change, by name; None = all of them
    uid: str = ""


class PauseQueue(Verb[None], frozen=True, array_like=True, tag=65, gc=False):
    """Have nothing of this queue claimed any more, until it is resumed or `until` (None: for ever).

    What is running goes on. `uid` as in SetQueue.
    """

    queue: str
    until: Time | None
    reason: str = ""
    uid: str = ""


class ResumeQueue(Verb[None], frozen=True, array_like=True, tag=66, gc=False):
    """Take a pause back; one that is not there is none. `uid` as in SetQueue."""

    queue: str
    uid: str = ""


class PurgeQueue(Verb[int], frozen=True, array_like=True, tag=67, gc=False):
    """Cancel at most `limit` runs of the queue that nobody has claimed yet; answers how many.

    In no particular order. Said again it is carried out again: it goes on with those that are
    there then, and answers how many these are.
    """

    queue: str
    limit: int
    reason: bytes
    at: Time


class QueueRow(msgspec.Struct, frozen=True):
    """A queue that has been set, paused, or addressed by a run."""

    queue: str
    settings: QueueSettings
    paused: bool
    until: float | None
    reason: str
    running: int
    ready: int


class ListQueues(Query[Sequence[QueueRow]], frozen=True, array_like=True, tag=96):
    """Answered by all queues, by name. `queue`: only this one."""

    answer: ClassVar[Any] = list[QueueRow]
    queue: str | None = None


class RunCount(msgspec.Struct, frozen=True, array_like=True):
    """So many runs of a queue are of this Kind and have this Status."""

    queue: str
    kind: int
    status: int
    count: int
    since: float  # when the one that has been so for the longest time was last changed


class CountRuns(Query[Sequence[RunCount]], frozen=True, array_like=True, tag=97):
    """Answered by how many runs there are by queue, Kind and Status.

    It reads all of them. `queue`: of this one; None = of all.
    """

    answer: ClassVar[Any] = list[RunCount]
    queue: str | None = None


class EndCount(msgspec.Struct, frozen=True, array_like=True):
    """So many runs of a queue have ended, and so many of these FAILED."""

    queue: str
    ended: int
    failed: int


class CountEnds(Query[Sequence[EndCount]], frozen=True, array_like=True, tag=98):
    """Answered by how many runs have ended after `since`, by queue; those deleted are not counted.

    `queue`: of this one; None = of all.
    """

    answer: ClassVar[Any] = list[EndCount]
    since: Time
    queue: str | None = None


class FindRunning(Query[Sequence[str]], frozen=True, array_like=True, tag=99):
    """Answered by the ids of at most `limit` runs of a queue that workers hold."""

    answer: ClassVar[Any] = list[str]
    queue: str
    limit: int = 100


class NamedSettings(msgspec.Struct, frozen=True, array_like=True):
    queue: str
    settings: QueueSettings


class ListSettings(Query[Sequence[NamedSettings]], frozen=True, array_like=True, tag=100):
    """Answered by the queues for which something is set, by name."""

    answer: ClassVar[Any] = list[NamedSettings]

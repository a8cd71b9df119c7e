"""Queues as users declare them, and what can be set for one."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypedDict

from stepwell import _options as check
from stepwell._retention import Retention, retention_of, statuses_of
from stepwell_queue.contract import QueueSettings, RateLimit
from stepwell_runtime.queues import DeclaredQueue
from stepwell_runtime.spans import Seconds, seconds

_LONGEST = 1e9  # seconds


@dataclass(frozen=True, slots=True)
class Rate:
    """How often runs may start: `count` in `per` seconds on average, up to `burst` at once.

    `per`: seconds or a timedelta. `burst`: None = `count`. What is not used is saved up, to `burst`
    at most.
    """

    count: int
    per: Seconds = 1.0
    burst: int | None = None

    def __post_init__(self) -> None:
        count = check.whole(self.count, "count", 1)
        if count is None:
            raise TypeError("Rate(count=…) is how many runs may start, not None")
        object.__setattr__(self, "per", _span(self.per, "Rate(per=…)"))
        burst = check.whole(self.burst, "burst", 1)
        object.__setattr__(self, "burst", count if burst is None else burst)


class QueueChanges(TypedDict, total=False):
    """What can be changed of a queue; None takes a limit away, and what is not named stays."""

    limit: int | None
    key_limit: int | None
    rate: Rate | None
    key_rate: Rate | None
    max_length: int | None
    ageing: Seconds | None
    retention: Retention | None


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue, and what holds for it across all workers; None = no such limit.

    `limit`: runs that are executed at once; `key_limit`: of those that have one key. `rate`: how
    often runs start; `key_rate`: of those that have one key. `max_length`: runs that are ready,
    beyond which enqueueing waits or raises. `ageing`: seconds of waiting that count as one step of
    priority; None = waiting counts for nothing. `retention`: of its ended runs, instead of the
    app's; None = as the app says.
    """

    name: str
    _: KW_ONLY
    limit: int | None = None
    key_limit: int | None = None
    rate: Rate | None = None
    key_rate: Rate | None = None
    max_length: int | None = None
    ageing: Seconds | None = None
    retention: Retention | None = None
    _declared: DeclaredQueue = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        frame = sys._getframe(2)  # past __init__
        if check.text(self.name, "name") is None:
            raise TypeError("Queue(name=…) is the name of a queue, not None")
        for name in ("limit", "key_limit", "max_length"):
            check.whole(getattr(self, name), name, 1)
        for name in ("rate", "key_rate"):
            _instance(getattr(self, name), Rate, f"Queue({name}=…) takes Rate(count, per=seconds)")
        _instance(self.retention, Retention, "Queue(retention=…) takes Retention(age=…, count=…)")
        if self.ageing is not None:
            object.__setattr__(self, "ageing", _span(self.ageing, "Queue(ageing=…)"))
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        declared = DeclaredQueue(self.name, _settings(self), place)
        object.__setattr__(self, "_declared", declared)


def _span(value: Seconds, what: str) -> float:
    number = seconds(value, what)
    if not 0 < number < _LONGEST:
        raise ValueError(f"{what} must be a span over 0 seconds and under 30 years, not {value!r}")
    return number


def _instance(value: Any, kind: type, hint: str) -> None:
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{hint}, not {value!r}")


def _settings(queue: Queue) -> QueueSettings:
    retention = queue.retention
    return QueueSettings(
        limit=queue.limit,
        key_limit=queue.key_limit,
        rate=_limit(queue.rate),
        key_rate=_limit(queue.key_rate),
        max_length=queue.max_length,
        ageing=None if queue.ageing is None else seconds(queue.ageing, "ageing"),
        keep_age=None if retention is None else retention.age_seconds,
        keep_count=None if retention is None else retention.count,
        keep_statuses={} if retention is None else statuses_of(retention),
    )


def _limit(rate: Rate | None) -> RateLimit | None:
    if rate is None:
        return None
    return RateLimit(rate.count, seconds(rate.per, "per"), rate.burst or rate.count)


def queue_of(name: str, settings: QueueSettings) -> Queue:
    """Return what is set for a queue as it would be declared."""
    return Queue(
        name,
        limit=settings.limit,
        key_limit=settings.key_limit,
        rate=_rate(settings.rate),
        key_rate=_rate(settings.key_rate),
        max_length=settings.max_length,
        ageing=settings.ageing,
        retention=retention_of(settings.keep_age, settings.keep_count, settings.keep_statuses),
    )


def _rate(limit: RateLimit | None) -> Rate | None:
    return None if limit is None else Rate(limit.count, limit.per, limit.burst)


def changed_settings(name: str, changes: Mapping[str, Any]) -> tuple[QueueSettings, list[str]]:
    """Return the new settings, and the names of those that are to be changed."""
    allowed = QueueChanges.__annotations__
    unknown = [one for one in changes if one not in allowed]
    if unknown or not changes:
        what = f"has no setting {unknown[0]!r}" if unknown else "needs a setting to change"
        raise TypeError(f"queue {name!r} {what}; there are: {', '.join(allowed)}")
    only = [one for one in changes if one != "retention"]
    if "retention" in changes:
        only += ["keep_age", "keep_count", "keep_statuses"]
    return settings_of(Queue(name, **changes)), only


def settings_of(queue: Queue) -> QueueSettings:
    """Return what holds for a queue as the store keeps it."""
    return queue._declared.settings


def name_of(queue: str | Queue | None, what: str = "queue") -> str | None:
    """Return the name of a queue that is given by it, or as a Queue."""
    given: Any = queue
    if isinstance(given, Queue):
        return given.name
    if given is not None and not isinstance(given, str):
        raise TypeError(f"{what}= takes a name or a Queue, not {queue!r}")
    return check.text(given, what)


def declared_of(queue: str | Queue | None) -> DeclaredQueue | None:
    return queue._declared if isinstance(queue, Queue) else None


def queue_options(queue: str | Queue | None) -> dict[str, Any]:
    """Return what a call notes of the queue that is chosen for it."""
    return {"queue": name_of(queue), "declared": declared_of(queue)}


def names_of(queues: Iterable[str | Queue]) -> tuple[list[str], tuple[DeclaredQueue, ...]]:
    """Return the names of the queues that a worker is to serve, and what is said of them there."""
    names: list[str] = []
    declared: list[DeclaredQueue] = []
    for queue in queues:
        name = name_of(queue, "queues")
        if name is None:
            raise TypeError("queues= takes names or Queues, not None")
        names.append(name)
        if isinstance(queue, Queue):
            declared.append(queue._declared)
    return names, tuple(declared)

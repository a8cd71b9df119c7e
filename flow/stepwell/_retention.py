"""How long ended runs are kept, as users say it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, cast

from stepwell import _options as check
from stepwell_queue.contract import Keep, NamedKeep, Status
from stepwell_runtime.definitions import Definition, Seconds, seconds

EndStatus = Literal["completed", "failed", "cancelled", "terminated", "expired"]
END_STATUSES = tuple(status.name.lower() for status in Status if status.terminal)


@dataclass(frozen=True)
class Retention:
    """How long ended runs are kept; workers delete the rest, whole trees, oldest first.

    `age`: seconds since the end; 0 = they may go at once, None = age does not matter. `count`: how
    many of the newest ended runs stay; 0 = none, None = count does not matter. `statuses`: another
    Retention for those that ended with this status; None there = these are kept, None = all are
    alike. At least one must be given.
    """

    age: Seconds | None = None
    count: int | None = None
    statuses: Mapping[EndStatus, Retention | None] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        if self.age is not None:
            object.__setattr__(self, "age", seconds(self.age, "Retention(age=…)"))
        check.whole(self.count, "count", 0)
        if self.statuses is not None:
            object.__setattr__(self, "statuses", MappingProxyType(_checked(self.statuses)))
        if self.age is None and self.count is None and not self.statuses:
            raise ValueError(
                "Retention needs age= (seconds), count= or statuses=; without it, runs are kept"
            )

    @property
    def age_seconds(self) -> float | None:
        """The age in seconds."""
        return check.span(self.age, "age")


def _checked(given: Any) -> dict[EndStatus, Retention | None]:
    if not isinstance(given, Mapping):
        raise TypeError(
            f"Retention(statuses=…) takes a dict such as {{'failed': Retention(…)}}, not {given!r}"
        )
    found: dict[Any, Any] = dict(given)  # pyright: ignore[reportUnknownArgumentType]  # checked next
    for status, retention in found.items():
        check.one_of(status, "a status of Retention(statuses=…)", END_STATUSES)
        if retention is not None and not isinstance(retention, Retention):
            raise TypeError(
                f"Retention(statuses=…) takes Retention(age=…, count=…) for {status!r}, or None, "
                f"not {retention!r}"
            )
        if retention is not None and retention.statuses:
            raise ValueError(f"the Retention of {status!r} is for that alone: it has no statuses=")
    return found


def retention(value: Retention | None) -> Retention | None:
    """Return `value`; raise TypeError for what is no Retention."""
    given: Any = value
    if given is not None and not isinstance(given, Retention):
        raise TypeError(f"retention= takes Retention(age=…, count=…), not {given!r}")
    return given


def statuses_of(retention: Retention) -> dict[int, Keep]:
    """Return the rules of statuses as the store keeps them."""
    return {
        Status[status.upper()].value: Keep() if one is None else Keep(one.age_seconds, one.count)
        for status, one in (retention.statuses or {}).items()
    }


def named_keep(name: str, retention: Retention | None) -> NamedKeep | None:
    """Return a retention as the store keeps it."""
    if retention is None:
        return None
    return NamedKeep(name, Keep(retention.age_seconds, retention.count), statuses_of(retention))


def retention_of(age: float | None, count: int | None, own: Mapping[int, Keep]) -> Retention | None:
    """Return what the store keeps as it would be declared."""
    if age is None and count is None and not own:
        return None
    statuses: dict[EndStatus, Retention | None] = {
        cast("EndStatus", Status(status).name.lower()): (
            None if keep == Keep() else Retention(age=keep.age, count=keep.count)
        )
        for status, keep in own.items()
    }
    return Retention(age=age, count=count, statuses=statuses or None)


def declared_keeps(definitions: Iterable[Definition]) -> list[NamedKeep]:
    """Return what the code at hand says of each name: of several versions the newest counts."""
    newest: dict[str, Definition] = {}
    for one in sorted(definitions, key=lambda one: (one.version, one.retention is not None)):
        newest[one.name] = one
    return [one.retention or NamedKeep(name, None) for name, one in newest.items()]

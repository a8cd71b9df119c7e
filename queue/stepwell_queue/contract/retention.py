"""Retention: what is said of how long ended runs are kept, and deleting those that are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec
from msgspec import Meta

from stepwell_queue.contract.queries import Query
from stepwell_queue.contract.rows import Time
from stepwell_queue.contract.verbs import Terminal, Verb

MOST_TREES: Final = 10_000
"""Trees in one verb that deletes them."""

Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Keep(msgspec.Struct, frozen=True, array_like=True):
    """How long ended runs are kept. Both None: for ever."""

    age: float | None = None  # seconds since the end
    count: int | None = None  # how many of the newest


class NamedKeep(msgspec.Struct, frozen=True, array_like=True):
    """How long the ended runs of a workflow or task are kept, in all versions and queues.

    `statuses`: of those that ended with this Status, instead. `keep` None: it has no such rule.
    """

    name: str
    keep: Keep | None
    statuses: Mapping[Terminal, Keep] = {}


class EndedFilter(msgspec.Struct, frozen=True, array_like=True):
    """Which trees of ended runs, by what is at their root. None and empty: any."""

    queue: str | None = None
    but_queues: Sequence[str] = ()
    name: str | None = None
    but_names: Sequence[str] = ()
    statuses: Sequence[Terminal] = ()


class EndedTree(msgspec.Struct, frozen=True, array_like=True):
    """A run that may be deleted with all of its children, and as what it was found."""

    run: Number
    id: str
    ended: Time
    size: Annotated[int, Meta(ge=1, le=2**63 - 1)]  # runs
    fences: Number  # the sum of them, which rises when one of the runs is taken up again


class FindPrunable(Query[Sequence[EndedTree]], frozen=True, array_like=True, tag=156):
    """Answered by whole trees of ended runs that may be deleted, those that ended first first.

    Of `limit` runs in all, but at least one tree. `before`: when their roots ended, None = any
    time; `since`: no earlier than that. A tree stays if one of its runs has not ended, is the
    run that was started last (since its number must not be given out again), has a unique key that
    is taken for a time, or is waited for by another run.
    """

    answer: ClassVar[Any] = list[EndedTree]
    which: EndedFilter
    before: float | None
    now: Time
    limit: int
    since: Time = 0.0


class KeptSince(Query[float | None], frozen=True, array_like=True, tag=101):
    """Answered by when the oldest of the newest `keep` ended runs without a parent ended.

    nil: there are fewer. It reads all that have ended.
    """

    answer: ClassVar[Any] = float | None
    keep: int
    which: EndedFilter


class Prune(Verb[int], frozen=True, array_like=True, tag=6, gc=False):
    """Delete trees of ended runs that were found; answers how many runs of them are gone.

    A tree stays if it is not as it was found, or may not be deleted any more (see FindPrunable).
    """

    trees: Sequence[EndedTree]


class KeepNames(Verb[None], frozen=True, array_like=True, tag=152, gc=False):
    """Set how long the ended runs of these workflows and tasks are kept, for all workers."""

    names: Sequence[NamedKeep]


class ListKept(Query[Sequence[NamedKeep]], frozen=True, array_like=True, tag=157):
    """Answered by the workflows and tasks for which it is said how long they are kept, by name."""

    answer: ClassVar[Any] = list[NamedKeep]


class LeaseUpkeep(Verb[bool], frozen=True, array_like=True, tag=153, gc=False):
    """Take it on to archive runs, or go on doing it; False: somebody else does.

    `holder`: a text of whoever asks. `until`: when another one may take it on.
    """

    holder: str
    until: Time

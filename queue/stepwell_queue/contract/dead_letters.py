"""Dead letters: tasks that have FAILED, and what is done about many of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import msgspec

from stepwell_queue.contract.queries import Query
from stepwell_queue.contract.rows import Time
from stepwell_queue.contract.verbs import Verb

MOST_DEAD_LETTERS: Final = 1000
"""Ids in one verb about dead letters."""


class Requeue(Verb[int], frozen=True, array_like=True, tag=73, gc=False):
    """Ask "requeue" of each of these runs; answers how many of them have become ready by it.

    What is no dead letter, or is refused by itself, is left as it is.
    """

    ids: Sequence[str]
    uid: str
    actor: str
    reason: str
    at: Time


class PurgeDeadLetters(Verb[int], frozen=True, array_like=True, tag=74, gc=False):
    """Delete those of these runs that are dead letters; answers how many of the ids are gone now.

    The child of a run that exists stays, since it goes with its parent, and so does the run that
    was started last, since its number must not be given out again, and one whose unique key is
    taken for a time, until then.
    """

    ids: Sequence[str]


class DeadLetterRow(msgspec.Struct, frozen=True, array_like=True):
    """A task that has FAILED."""

    run: int
    id: str
    name: str
    version: int
    queue: str
    failed: float  # when it ended
    attempts: int  # that failed
    crashes: int
    parent_id: str | None
    handled: bool  # its parent has taken the outcome, so it cannot be requeued
    error: bytes


class ListDeadLetters(Query[Sequence[DeadLetterRow]], frozen=True, array_like=True, tag=106):
    """Answered by at most `limit` dead letters, those that failed last first; None = any.

    Perhaps by fewer, if they are large, but by none only if there are no more. `after`: `failed`
    and `run` of the last row of the page before, or the id of that run. Raises RunNotFound if
    there is no run of this id.
    """

    answer: ClassVar[Any] = list[DeadLetterRow]
    queue: str | None = None
    name: str | None = None
    after: str | tuple[float, int] | None = None
    limit: int = 100

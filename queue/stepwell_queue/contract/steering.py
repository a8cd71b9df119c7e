"""Steering: what people do to runs, beside asking them to cancel and to go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from stepwell_queue.contract.queries import Query
from stepwell_queue.contract.rows import NewRun, Time
from stepwell_queue.contract.verbs import Started, Verb

Count = Annotated[int, Meta(ge=0, le=2**31)]


class Terminated(msgspec.Struct, frozen=True, array_like=True, gc=False):
    status: int  # of the run, afterwards
    more: bool  # children of it have not ended yet: say it again


class Terminate(Verb[Terminated], frozen=True, array_like=True, tag=88, gc=False):
    """End a run at once, TERMINATED, whatever it is about; no undo runs.

    So do the runs that it waits for (children, and steps on other queues) and theirs, at most 1,000
    in one transaction, whoever said it; detached ones go on. Whoever executes one of them loses it.
    `value`: the reason, for who waits for its end. Said again it goes on with those that are left.
    One that has ended otherwise stays as it is. Raises RunNotFound, RequestRefused (of a step).
    """

    id: str
    uid: str
    value: bytes
    at: Time
    actor: str = ""
    reason: str = ""


class PauseName(Verb[None], frozen=True, array_like=True, tag=89, gc=False):
    """Have no run of the workflows and tasks of this name claimed, until ResumeName.

    In all queues and versions, also those that come later. What is running goes on. `uid`: the same
    again, among the last 32 of the name, changes nothing.
    """

    name: str
    uid: str
    at: Time
    actor: str = ""
    reason: str = ""


class ResumeName(Verb[None], frozen=True, array_like=True, tag=90, gc=False):
    """Take that back; a pause that is not there is none."""

    name: str
    uid: str
    at: Time
    actor: str = ""
    reason: str = ""


class PausedName(msgspec.Struct, frozen=True, array_like=True):
    """Of the workflows and tasks of this name nothing is claimed."""

    name: str
    at: float
    actor: str
    reason: str


class ListPausedNames(Query[Sequence[PausedName]], frozen=True, array_like=True, tag=120):
    """Answered by the names that are paused, in their order."""

    answer: ClassVar[Any] = list[PausedName]


class Fork(Verb[Started], frozen=True, array_like=True, tag=91, gc=False):
    """Start a run with the first `length` records of the journal of another one.

    `run`: as it is to start, with the identity and queue of that one; it has no terms but its key.
    Open operations, messages and children are not copied, but the fork is told how children ended
    that were started before, and ended after that. Both get an audit row, "fork". Raises
    RunNotFound, IdConflict, RequestRefused (of what is no workflow run; of a length that the
    journal has not; of one that has what an undo has undone since, or a started child that has not
    ended or is deleted).
    """

    source: str
    length: Count
    run: NewRun
    uid: str
    at: Time
    actor: str = ""
    reason: str = ""

"""Schedules: what is to be started when, which is worked out elsewhere, and what became of it.

The store knows the next tick of a schedule and nothing of how it follows from the one before. Who
starts the run of a tick says which tick comes after it, and only the first to say so is heard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from stepwell_queue.contract.queries import Query
from stepwell_queue.contract.rows import NewRun, Time
from stepwell_queue.contract.verbs import Started, Verb


class PutSchedule(Verb[None], frozen=True, array_like=True, tag=80, gc=False):
    """Make a schedule, or change the one of this id.

    The same `digest` as it has changes nothing, not even the next tick. A changed one goes on with
    its history, and stays paused if it was. Raises RequestRefused when one is declared in code and
    the other is not.
    """

    id: str
    digest: bytes  # of the declaration
    plan: bytes  # opaque: when it ticks, and what it starts then
    overlap: int  # an Overlap
    source: str  # the module whose code declares it; "" = made at run time
    next: Time | None  # the first tick; None = there is none
    at: Time


class DropSchedule(Verb[None], frozen=True, array_like=True, tag=81, gc=False):
    """Forget a schedule and its history; its runs stay. One that is not there is none."""

    id: str


class PauseSchedule(Verb[None], frozen=True, array_like=True, tag=82, gc=False):
    """Have it tick no more until it is resumed. Raises ScheduleNotFound."""

    id: str


class ResumeSchedule(Verb[None], frozen=True, array_like=True, tag=83, gc=False):
    """Have a paused schedule tick again, from `next` on; ticks of the pause are not made up for.

    Not paused: no change. Raises ScheduleNotFound.
    """

    id: str
    next: Time | None


class Tick(Verb[str | None], frozen=True, array_like=True, tag=84, gc=False):
    """Start the run of a tick, or leave it out, and set the next one, in one transaction.

    Only while `tick` is the next tick of a schedule that is not paused and has this `digest`;
    else nothing changes. Answers the id of the run, None if there is none.

    `run` None: the tick is left out, for the reason `why`. Otherwise the schedule's Overlap may
    leave it out, or have the run wait for others.
    """

    id: str
    digest: bytes
    expected: Time  # what the next tick is
    tick: Time  # what is dealt with: that one, or a later one where those before are left out
    following: Time | None
    run: NewRun | None
    why: str
    at: Time


class RunSchedule(Verb[Started], frozen=True, array_like=True, tag=85, gc=False):
    """Start a run of a schedule now, whatever else it does. Raises ScheduleNotFound, IdConflict."""

    id: str
    run: NewRun


class ScheduleRow(msgspec.Struct, frozen=True):
    """A schedule as it stands."""

    id: str
    digest: bytes
    plan: bytes
    overlap: int
    source: str
    created: float
    updated: float
    next: float | None
    last: float | None  # the last tick that was dealt with
    paused: bool


class DueSchedules(msgspec.Struct, frozen=True):
    """Schedules whose tick has come, the earliest first, and when the next of the others comes."""

    due: Sequence[ScheduleRow]
    next: float | None


class TickRow(msgspec.Struct, frozen=True):
    """What became of a tick."""

    tick: float
    at: float
    run_id: str | None
    status: int | None  # of the run; None = there is none, or it has been deleted
    why: str  # it was left out, or what was left out before it
    manual: bool  # somebody asked for it: it was no tick


class ListSchedules(Query[Sequence[ScheduleRow]], frozen=True, array_like=True, tag=112):
    """Answered by schedules, by id: this one, or at most `limit` of those after `after`."""

    answer: ClassVar[Any] = list[ScheduleRow]
    id: str | None = None
    after: str = ""
    limit: int = 1000


class ScheduleHistory(Query[Sequence[TickRow]], frozen=True, array_like=True, tag=113):
    """Answered by what became of the last ticks of a schedule, the newest first."""

    answer: ClassVar[Any] = list[TickRow]
    id: str
    limit: int = 100


class FindDue(Query[DueSchedules], frozen=True, array_like=True, tag=114):
    """Answered by at most `limit` schedules whose tick has come by `now`."""

    answer: ClassVar[Any] = DueSchedules
    now: Time
    limit: int = 100

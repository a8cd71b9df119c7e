"""Copies of runs that another store has: for looking at them, for replaying and resuming them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec
from msgspec import Meta

from stepwell_queue.contract.notes import Item, ValueRow
from stepwell_queue.contract.queries import Query
from stepwell_queue.contract.rows import InboxRow, NewRun, OpenOp, Record, Time
from stepwell_queue.contract.verbs import Verb
from stepwell_queue.contract.views import AuditRow, FailedAttempt
from stepwell_queue.words import Phase, Rollback, Status

MOST_COPIES: Final = 10_000
"""Runs in one verb that stores copies."""

# Checked where a verb comes in over the network, like `Time`.
AnyStatus = Annotated[int, Meta(ge=int(Status.SCHEDULED), le=int(Status.EXPIRED))]
AnyPhase = Annotated[int, Meta(ge=int(Phase.FORWARD), le=int(Phase.ROLLING_BACK))]
AnyRollback = Annotated[int, Meta(ge=int(Rollback.NONE), le=int(Rollback.INCOMPLETE))]
Count = Annotated[int, Meta(ge=0, le=2**31)]


class AnswerCopy(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a run has answered to the question with this uid; `refused`: the value is why."""

    uid: str
    refused: bool
    value: bytes
    at: Time


class ListAnswers(Query[Sequence[AnswerCopy]], frozen=True, array_like=True, tag=148):
    """Answered by at most 100 answers of a run, by uid, those over `after`. Raises RunNotFound."""

    answer: ClassVar[Any] = list[AnswerCopy]
    id: str
    after: str = ""


class Aside(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is kept of a run beside what people see of it, and a copy of it needs."""

    again: AnyStatus | None  # what it is once it is resumed; None = it is not paused
    due: Time | None  # when it is due then
    said: tuple[int, int] | None  # generation and number of the last note of its code


class ReadAside(Query[Aside], frozen=True, array_like=True, tag=149):
    """Answered by what a copy of a run needs beside its history. Raises RunNotFound."""

    answer: ClassVar[Any] = Aside
    id: str


class RunCopy(msgspec.Struct, frozen=True, array_like=True):
    """A run as it stood in another store, with all that was recorded of it.

    `parent_id`: if that run is copied along, this one is its child here, too.
    """

    run: NewRun  # as it was started; of its terms, the key alone is copied
    status: AnyStatus
    phase: AnyPhase
    rollback: AnyRollback
    attempts: Count
    crashes: Count
    fence: Count
    generation: Count
    started: Time | None
    ended: Time | None
    waiting: str
    parent_id: str | None
    parent_path: str | None
    value: bytes
    journal: Sequence[Record]
    open_ops: Sequence[OpenOp]
    inbox: Sequence[InboxRow]
    audit: Sequence[AuditRow]
    failures: Sequence[FailedAttempt] = ()  # of itself alone, so their paths say nothing
    values: Sequence[ValueRow] = ()
    items: Sequence[Item] = ()  # of its streams, in the order of each
    answers: Sequence[AnswerCopy] = ()
    said: tuple[int, int] | None = None  # as in Aside
    absorbed: Sequence[InboxRow] = ()  # signals and questions that its journal has
    again: AnyStatus | None = None  # SCHEDULED or PARKED when it is resumed; None = READY
    due: Time | None = None  # when it is due then; None = never, or when it was to start


class ImportRuns(Verb[int], frozen=True, array_like=True, tag=144):
    """Store copies of runs, all or none; answers how many.

    Those that had ended are ended; all others are PAUSED, whatever they did, so that nothing of
    them is executed before somebody asks for it. Each gets an audit row, "import". A parent comes
    before its children. Raises IdConflict if there is a run of one of these ids.
    """

    runs: Sequence[RunCopy]
    uid: str
    actor: str
    reason: str
    at: Time

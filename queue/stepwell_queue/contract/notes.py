"""What the code of a run says to whoever listens: values, items of streams, answers to questions.

And how they are read, and followed as they come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final, Protocol, Self

import msgspec
from msgspec import Meta

from stepwell_queue.contract.queries import Query
from stepwell_queue.contract.rows import Record, Time
from stepwell_queue.contract.verbs import Verb
from stepwell_queue.words import Status

MOST_SAID: Final = 256 * 1024
"""Bytes of one encoded value, item, question or answer."""
MOST_VALUES: Final = 100
"""Names of values that the code of a workflow may set."""
MOST_ITEMS_OF_CODE: Final = 10_000
"""Items that the code of a workflow may emit, over all streams: a replay says them again."""
MOST_ITEMS: Final = 100_000
"""Items that the steps of a run may emit, over all streams, and those of one attempt."""
MOST_STREAM_BYTES: Final = 16 * 1024 * 1024
"""What the items of either may take."""
ITEMS_AT_ONCE: Final = 1000
"""Items of one `Emit`, and of one page of a stream."""

Offset = Annotated[int, Meta(ge=0)]


class Item(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a step or task has emitted to a stream of its run."""

    stream: str
    value: bytes
    at: Time
    path: str = ""  # of the step; "" = it is a task
    attempt: int = 1


class Emit(Verb[bool], frozen=True, array_like=True, tag=128, gc=False):
    """Items that attempts of a run, or of a step with a queue on its behalf, have emitted.

    Answers whether the run has as many as its steps may have. `number`: higher than in all with
    this fence before, by which one that is said again is known. At most ITEMS_AT_ONCE items. Raises
    StaleFence.
    """

    run: int
    fence: int
    number: int
    items: Sequence[Item]


class PutQuestion(Verb[None], frozen=True, array_like=True, tag=129, gc=False):
    """Put a question into the inbox of a workflow's run, and wake it.

    The same uid again, with the same name and value, changes nothing, also when the run has ended.
    Raises RunNotFound, RunEnded, RequestRefused (the uid is another question's; a task).
    """

    id: str
    uid: str
    name: str
    value: bytes
    at: Time


class RunState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a run stands, for who follows it."""

    run: int
    status: int
    generation: int

    @property
    def ended(self) -> bool:
        return self.status >= Status.COMPLETED


class ReadState(Query[RunState], frozen=True, array_like=True, tag=136):
    """Answered by where a run stands. Raises RunNotFound."""

    answer: ClassVar[Any] = RunState
    id: str


class ValueRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A value that the code of a run has set, and the run's time then."""

    name: str
    value: bytes
    at: float


class ReadValues(Query[Sequence[ValueRow]], frozen=True, array_like=True, tag=137):
    """Answered by the values of a run, by name. Raises RunNotFound.

    `name`: this one alone; None = all.
    """

    answer: ClassVar[Any] = list[ValueRow]
    id: str
    name: str | None = None


class AnswerRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the code of a run has answered to a question; `refused`: the value is its reason."""

    refused: bool
    value: bytes
    at: float


class ReadAnswer(Query[AnswerRow | None], frozen=True, array_like=True, tag=138):
    """Answered by the answer to a question; None = there is none. Raises RunNotFound."""

    answer: ClassVar[Any] = AnswerRow
    id: str
    uid: str


class ItemRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An item of a stream. Offsets are gapless from 1 in each stream of a run."""

    offset: int
    value: bytes
    at: float
    path: str  # of the step that emitted it; "" = the code of the workflow, or a task
    attempt: int


class ReadStream(Query[Sequence[ItemRow]], frozen=True, array_like=True, tag=139):
    """Answered by items of a stream with offsets over `after`, in order. Raises RunNotFound.

    At least one, if there is one; at most `limit`, and at most about 256 KiB of values.
    """

    answer: ClassVar[Any] = list[ItemRow]
    id: str
    stream: str
    after: Offset = 0
    limit: int = ITEMS_AT_ONCE


class StreamRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A stream of a run, and how many items it has."""

    stream: str
    items: int


class ListStreams(Query[Sequence[StreamRow]], frozen=True, array_like=True, tag=140):
    """Answered by the streams of a run, by name. Raises RunNotFound."""

    answer: ClassVar[Any] = list[StreamRow]
    id: str


class AuditEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What an operator asked for; later entries have higher numbers."""

    entry: int
    at: float
    action: str
    actor: str
    reason: str


class RemoteStep(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A step with a queue, which is a run of its own, at the path of a record."""

    path: str
    attempts: int
    started: float | None


class EventPage(msgspec.Struct, frozen=True, array_like=True):
    """A part of what has happened to a run."""

    records: Sequence[Record]
    voided: Sequence[int]  # the seqs of records that retries have set aside
    remote: Sequence[RemoteStep]
    audit: Sequence[AuditEntry]


class ReadEvents(Query[EventPage], frozen=True, array_like=True, tag=141):
    """Answered by journal records with a seq over `seq`, and audit entries over `entry`.

    At least one of each that has any, and at most about 256 KiB of values. Raises RunNotFound.
    """

    answer: ClassVar[Any] = EventPage
    id: str
    seq: int = -1
    entry: int = 0


class Follower(Protocol):
    """Who wants to hear of news of a run. A context manager: leaving it ends that."""

    async def news(self) -> None:
        """Return once there may be news that came after the last return, or after the begin."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

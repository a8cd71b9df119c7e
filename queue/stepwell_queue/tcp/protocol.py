"""What client and server say to each other; docs/reference/protocol.md is its prose.

A frame is four bytes of length, big-endian, and one msgpack value. A client sends lists of
`[number, request]`; verbs of the contract are requests as they are. The server answers each number
once, in whatever order, in frames of `[answers, events]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, get_args

import msgspec

from stepwell_queue import errors
from stepwell_queue.contract import (
    AnyQuery,
    Append,
    Ask,
    CancelRun,
    Claim,
    Claimed,
    Continue,
    CountEnds,
    CountRuns,
    DropSchedule,
    Emit,
    FindDue,
    FindPrunable,
    FindRunning,
    Finish,
    Fork,
    Hello,
    ImportRuns,
    InboxRow,
    KeepNames,
    KeptSince,
    LeaseUpkeep,
    ListAnswers,
    ListDeadLetters,
    ListKept,
    ListPausedNames,
    ListQueues,
    ListSchedules,
    ListSettings,
    ListStreams,
    Park,
    PauseName,
    PauseQueue,
    PauseSchedule,
    Prune,
    PurgeDeadLetters,
    PurgeQueue,
    PutQuestion,
    PutSchedule,
    ReadAnswer,
    ReadAside,
    ReadEvents,
    ReadLog,
    ReadProgress,
    ReadState,
    ReadStream,
    ReadValues,
    Report,
    Requeue,
    Reschedule,
    ResumeName,
    ResumeQueue,
    ResumeSchedule,
    RunFilter,
    RunSchedule,
    SayState,
    ScheduleHistory,
    SendSignal,
    SetQueue,
    Settle,
    Start,
    StartMany,
    Terminate,
    Tick,
)

MAGIC: Final = "stepwell"
VERSION: Final = 2
GREETING_LIMIT: Final = 64 * 1024
"""Bytes of a frame from somebody who has not been let in yet."""
FRAME_LIMIT: Final = 96 * 1024 * 1024
"""Bytes of a frame: the largest verb, and what its rows weigh beside their values."""
PAGE: Final = 256 * 1024
"""Bytes of one run in one answer to a claim; what is over that is asked for."""
CHUNK: Final = 1024 * 1024
"""Bytes of small requests that are put into one frame."""
AT_ONCE: Final = 32
"""Requests that are put into one frame: while the server deals with them, the client goes on."""
MOST_AT_ONCE: Final = 10_000
"""Requests of one frame; one with more is refused before anything is made of it."""
NOTE: Final = 0
"""The number of a request that is not answered."""
BEATS, REQUESTS = "beats", "requests"


class Greeting(msgspec.Struct, frozen=True, array_like=True):
    """The first frame of a client."""

    magic: str
    version: int
    capabilities: Sequence[str]  # of later versions; what the other side does not list is not used
    client: str  # the same for all connections of one client, as long as it lives
    channel: str  # "requests", or "beats": frames of session keys, answered by those not known
    token: str


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The first frame of a server that lets the client in."""

    version: int
    capabilities: Sequence[str]
    release: str  # of Stepwell
    durability: str
    lease: float
    workers: int  # that are registered
    now: float
    memory: str  # another one than before: the file may have lost its last moments meanwhile


class Turned(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The first and last frame of a server that does not."""

    reason: str


class OpenSession(msgspec.Struct, frozen=True, array_like=True, tag=32):
    """Register a worker, or go on with it after the connection broke.

    `number` names the session on this connection: what Claim and Start call their worker. `key`
    names it for ever. `holds`: what the worker has in hand, run -> fence; what was leased to it
    beside that was in an answer that got lost, and is released. `keeps`: parked runs whose
    coroutines it has. `places`: as in Offer. Answered by the runs that it holds no longer.
    """

    number: int
    key: str
    host: str
    pid: int
    hello: Hello
    holds: Mapping[int, int]
    keeps: Mapping[int, int]
    places: int = 0


class CloseSession(msgspec.Struct, frozen=True, array_like=True, tag=33):
    """Unregister the worker; whatever it still holds becomes ready."""

    number: int


class Dropped(msgspec.Struct, frozen=True, array_like=True, tag=34):
    """The worker no longer keeps the coroutine of this run. A note."""

    number: int
    run: int


class GetInfo(msgspec.Struct, frozen=True, array_like=True, tag=35):
    """Answered by RunInfo or nil."""

    id: str


class WaitEnded(msgspec.Struct, frozen=True, array_like=True, tag=36):
    """Answered by Ended, once the run has come to rest."""

    id: str


class Forget(msgspec.Struct, frozen=True, array_like=True, tag=37):
    """Nobody waits for the answer of this WaitEnded or WaitNews any more. A note."""

    number: int


class WaitNews(msgspec.Struct, frozen=True, array_like=True, tag=46):
    """Answered once there may be news of a run: what it has said, or what has happened to it.

    `run`: its number. What is asked for later is answered with at least the news until then.
    """

    id: str
    run: int


class ListRuns(msgspec.Struct, frozen=True, array_like=True, tag=38):
    """Answered by a page of RunInfo: at least one row if there are any, perhaps not all."""

    filter: RunFilter


class GetHistory(msgspec.Struct, frozen=True, array_like=True, tag=39):
    """Answered by History or nil; of its journal only the first page."""

    id: str


class ListWorkers(msgspec.Struct, frozen=True, array_like=True, tag=40):
    """Answered by a list of WorkerInfo."""


class Examine(msgspec.Struct, frozen=True, array_like=True, tag=41):
    """Answered by the list of Finding that `doctor` makes."""


class Ping(msgspec.Struct, frozen=True, array_like=True, tag=42):
    """Answered by the time of the server."""


class GetJournal(msgspec.Struct, frozen=True, array_like=True, tag=43):
    """Answered by [records from `seq` on, whether there are more]."""

    run: int
    seq: int


class GetInbox(msgspec.Struct, frozen=True, array_like=True, tag=44):
    """Answered by [rows that are not absorbed, with ids over `after`, whether there are more]."""

    run: int
    after: int


class Offer(msgspec.Struct, frozen=True, array_like=True, tag=45):
    """The worker takes so many runs at once; those that are free are its credit. A note.

    0 = none: then it is told Ready, and claims when it likes.
    """

    number: int
    places: int


VerbOnWire: TypeAlias = (
    Start
    | StartMany
    | SendSignal
    | CancelRun
    | Ask
    | Terminate
    | Fork
    | PauseName
    | ResumeName
    | Prune
    | Claim
    | Append
    | Park
    | Finish
    | Settle
    | Reschedule
    | Continue
    | SetQueue
    | PauseQueue
    | ResumeQueue
    | PurgeQueue
    | Report
    | Emit
    | PutQuestion
    | Requeue
    | PurgeDeadLetters
    | SayState
    | PutSchedule
    | DropSchedule
    | PauseSchedule
    | ResumeSchedule
    | Tick
    | RunSchedule
    | ImportRuns
    | KeepNames
    | LeaseUpkeep
)
QueryOnWire: TypeAlias = (
    ListQueues
    | ListPausedNames
    | CountRuns
    | CountEnds
    | FindRunning
    | KeptSince
    | FindPrunable
    | ListKept
    | ListSettings
    | ListDeadLetters
    | ReadProgress
    | ReadLog
    | ListSchedules
    | ScheduleHistory
    | FindDue
    | ReadState
    | ReadValues
    | ReadAnswer
    | ReadStream
    | ListStreams
    | ReadEvents
    | ListAnswers
    | ReadAside
)
QUERIES: Final[tuple[type[AnyQuery], ...]] = get_args(QueryOnWire)
Request: TypeAlias = (
    VerbOnWire
    | QueryOnWire
    | OpenSession
    | CloseSession
    | Dropped
    | GetInfo
    | WaitEnded
    | WaitNews
    | Forget
    | ListRuns
    | GetHistory
    | ListWorkers
    | Examine
    | Ping
    | GetJournal
    | GetInbox
    | Offer
)


class Reply(msgspec.Struct, frozen=True, array_like=True, tag=0, gc=False):
    """An answer with a value; an answer without one is the bare number."""

    number: int
    value: msgspec.Raw


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """The exception that refused a request."""

    number: int
    kind: str
    args: Sequence[str | int]


class Jobs(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a claim found; of the runs in `cut` the journal or the inbox goes on: ask for it."""

    runs: Sequence[Claimed]
    more: bool
    alone_waiting: bool
    cut: Sequence[int] = ()


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=0, gc=False):
    """There may be something to claim, and the session has offered no places."""

    session: int


class Told(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """Rows for the inboxes of runs that the session holds."""

    session: int
    rows: Sequence[InboxRow]


class Lost(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """Runs that the session holds no longer."""

    session: int
    runs: Sequence[int]


class Pushed(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """Runs that were claimed for free places of the session."""

    session: int
    jobs: Jobs


class Closing(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """The server ends this connection; what is not answered may be said again to the next one."""

    reason: str


Event: TypeAlias = Ready | Told | Lost | Pushed | Closing
Answer: TypeAlias = int | Reply | Refusal

encode: Final = msgspec.msgpack.Encoder().encode
decode_greeting: Final = msgspec.msgpack.Decoder(Greeting).decode
decode_welcome: Final = msgspec.msgpack.Decoder(Welcome | Turned).decode
decode_requests: Final = msgspec.msgpack.Decoder(list[tuple[int, Request]]).decode
decode_answers: Final = msgspec.msgpack.Decoder(tuple[list[Answer], list[Event]]).decode
decode_time: Final = msgspec.msgpack.Decoder(float).decode
decode_keys: Final = msgspec.msgpack.Decoder(list[str]).decode


def length_of(body: memoryview) -> int:
    """Return how many elements the array says it has that a frame consists of; 0 = it is none."""
    first = body[0] if body else 0
    if first in _LENGTH_BYTES:
        return int.from_bytes(body[1 : 1 + _LENGTH_BYTES[first]], "big")
    return first & 0x0F if first & 0xF0 == 0x90 else 0


_LENGTH_BYTES: Final = {0xDC: 2, 0xDD: 4}  # array 16 and array 32 of msgpack


def framed(body: bytes) -> bytes:
    """Return a frame with this body."""
    return len(body).to_bytes(4, "big") + body


_ERRORS: Final[dict[str, type[Exception]]] = {
    kind.__name__: kind
    for kind in (
        errors.StoreUnavailable,
        errors.StaleFence,
        errors.IdConflict,
        errors.RunNotFound,
        errors.RunEnded,
        errors.ScheduleNotFound,
        errors.QueueFull,
        errors.RequestRefused,
        errors.MalformedRequest,
        errors.StepwellError,
        ValueError,
        TypeError,
    )
}
_FIELDS: Final[dict[type[Exception], tuple[str, ...]]] = {
    errors.StaleFence: ("run", "fence"),
    errors.IdConflict: ("id", "existing", "asked"),
    errors.RunNotFound: ("id",),
    errors.RunEnded: ("id", "status", "asked"),
    errors.ScheduleNotFound: ("id",),
    errors.QueueFull: ("queue", "limit"),
}


def refusal(number: int, error: Exception) -> Refusal:
    """Return an exception as it goes over the wire."""
    fields: tuple[Any, ...] | None = None
    kind = type(error)
    if kind in _FIELDS:
        fields = tuple(getattr(error, name) for name in _FIELDS[kind])
    elif kind.__name__ not in _ERRORS:
        kind = errors.StepwellError
    return Refusal(number, kind.__name__, (str(error),) if fields is None else fields)


def rebuilt(said: Refusal) -> Exception:
    """Return the exception that a refusal stands for; StepwellError for one that is not known."""
    kind = _ERRORS.get(said.kind, errors.StepwellError)
    try:
        return kind(*said.args)
    except TypeError:
        return errors.StepwellError(f"{said.kind}: {', '.join(map(str, said.args))}")

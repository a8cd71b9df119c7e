"""The store contract: every way in which the layers above change or read durable state.

A verb is a value. `Store.submit` puts it into the open batch; one batch is one transaction; `done`
is called on the loop, after COMMIT, in submission order, with the verb's result or the exception
that refused it. The store never decodes `bytes` fields: arguments, results, errors and options are
opaque to it. Times are wall-clock seconds since the epoch. A run is addressed by its row number
(`run`) by workers, by its id by clients. What is said and answered is plain data, which cannot be
part of a cycle: the garbage collector need not look at it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Meta

from stepwell_queue.clock import Clock

# Said again here, so that whoever uses the contract has all of it from one place.
from stepwell_queue.words import InboxKind as InboxKind
from stepwell_queue.words import Kind as Kind
from stepwell_queue.words import Phase as Phase
from stepwell_queue.words import RecordKind as RecordKind
from stepwell_queue.words import Rollback as Rollback
from stepwell_queue.words import Status as Status

R = TypeVar("R")

# Checked where a verb comes in over the network; nowhere else can anything else be said.
Time = Annotated[float, Meta(ge=-sys.float_info.max)]  # any but NaN, which SQLite takes for NULL
Terminal = Annotated[int, Meta(ge=int(Status.COMPLETED), le=int(Status.CONTINUED))]
PutAside = Annotated[int, Meta(ge=int(Status.HELD), le=int(Status.STUCK))]


class NewRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A run to be inserted.

    `digest` = 4 bytes of signature hash + 12 bytes of canonical argument hash.
    """

    id: str
    kind: int
    name: str
    version: int
    queue: str
    args: bytes
    digest: bytes
    nonce: int
    at: float
    priority: int = 0
    due: Time | None = None  # not before this time; None = at once
    deadline: Time | None = None
    options: bytes = b""  # opaque to the store: per-call retry, timeout, ...


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One journal record.

    `seq` is gapless from 0 within a run. `digest`: crc32 of the arguments of a step, else 0.
    """

    seq: int
    kind: int
    path: str
    name: str
    value: bytes
    at: float
    attempt: int = 1
    started: float = 0.0  # when the attempt that ended began; 0 = does not apply
    digest: int = 0


class OpenOp(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A begun operation that has not ended.

    `due` = wall time at which it wants attention, None = none.
    """

    path: str
    kind: str  # "sleep", "wait", "retry", "child", "remote"
    name: str
    due: Time | None
    attempt: int = 0  # failures so far
    value: bytes = b""  # retry: the last error; child, remote: the id (utf-8)


class InboxRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message to a run, waiting to be absorbed."""

    id: int
    run: int
    kind: int
    uid: str  # made by the sender: the same uid twice is stored once
    name: str  # signal: its name; cancel: "cancel"; child ended: the child's id
    path: str
    status: int  # child ended: Status
    value: bytes
    at: float


class Claimed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A run handed to a worker, with all that is needed to go on."""

    run: int
    id: str
    kind: int
    name: str
    version: int
    queue: str
    fence: int
    attempts: int  # failures so far (tasks and node jobs)
    crashes: int  # claims in a row whose worker died before any progress
    phase: int
    priority: int
    nonce: int
    generation: int
    created: float
    due: float | None  # when it was to start (scheduled_at), else None
    deadline: float | None
    parent: int | None
    parent_id: str | None
    parent_path: str | None
    args: bytes
    error: bytes  # the last error of a retried task, of a held or of a reopened run
    options: bytes
    # The fence follows that in `Claim.live`: args, counts, parent, error, journal, ops not read.
    live: bool
    journal: Sequence[Record]
    open_ops: Sequence[OpenOp]
    inbox: Sequence[InboxRow]


def born(run: int, new: NewRun) -> Claimed:
    """Return a new run as the worker gets it for which it was started."""
    return Claimed(
        run, new.id, new.kind, new.name, new.version, new.queue, 1, 0, 0, 0, new.priority,
        new.nonce, 0, new.at, new.due, new.deadline, None, None, None, new.args, b"",
        new.options, False, (), (), (),
    )  # fmt: skip


class Verb(msgspec.Struct, Generic[R], frozen=True, array_like=True, gc=False):
    """A change; R is what it answers.

    While the store is unavailable, what clients say fails, and what workers say is kept and said
    again until it is stored. Any verb may be said twice, since its answer may get lost on the way:
    the second time it changes nothing and is answered as before. `tag` is its number on the wire.
    """


class Started(msgspec.Struct, frozen=True, array_like=True, gc=False):
    run: int
    id: str
    created: bool  # False: it existed already, with the same identity and arguments
    status: int
    claimed: Claimed | None = None  # set when it was born claimed by `Start.worker`


class Start(Verb[Started], frozen=True, array_like=True, tag=1, gc=False):
    """Insert a run, or find the same one. Raises IdConflict.

    `worker`: a session of this process that serves the queue and name and has a free slot: a run
    due at once is inserted as RUNNING with fence 1 and comes back in `Started.claimed`, unless
    older ready work of that queue waits (or the run existed). None: insert only.
    """

    run: NewRun
    worker: int | None = None


class StartMany(Verb[list[Started]], frozen=True, array_like=True, tag=2, gc=False):
    """Insert all or none."""

    runs: list[NewRun]


class SendSignal(Verb[None], frozen=True, array_like=True, tag=3, gc=False):
    """Put a signal into the inbox and wake the run.

    Raises RunNotFound, RunEnded. The same uid again changes nothing.
    """

    id: str
    uid: str
    name: str
    value: bytes
    at: float


class CancelRun(Verb[int], frozen=True, array_like=True, tag=4, gc=False):
    """Ask a run to cancel; answers its Status afterwards.

    A run that was never claimed ends at once; a HELD one becomes READY. Ended: no change.

    Cancelling the never-claimed child of a run tells the parent in the same transaction. Raises
    RunNotFound.
    """

    id: str
    uid: str
    reason: bytes
    at: float
    actor: str = ""


class Ask(Verb[int], frozen=True, array_like=True, tag=5, gc=False):
    """An operator's request; answers the Status afterwards; leaves an audit row.

    Raises RunNotFound, RequestRefused.

    `action`: "retry" (of a HELD or FAILED run without undos run; inbox RETRY, ready), "roll_back"
    (of a HELD run; inbox ROLL_BACK, ready), "resume_rollback" (of a FAILED or CANCELLED run with
    Rollback.INCOMPLETE; inbox RESUME_ROLLBACK, ready, phase ROLLING_BACK), "resume" (of a STUCK
    run: ready). Leaving a terminal status is refused if the parent absorbed the outcome; it also
    raises the fence.
    """

    id: str
    uid: str
    action: str
    actor: str
    reason: str
    at: float


class Prune(Verb[int], frozen=True, array_like=True, tag=6, gc=False):
    """Delete at most `limit` ended runs, whole trees only, oldest first; answers how many are gone.

    A run goes if it ended before `before` (None: age does not matter) or is not among the newest
    `keep` ended runs that have no parent (None: count does not matter), and all of its tree has
    ended. Children go with their parent, not before it. A tree over the limit goes alone. The run
    that was started last stays, since its number must not be given out again.
    """

    before: float | None
    keep: int | None
    limit: int


class ClaimResult(msgspec.Struct, frozen=True, array_like=True, gc=False):
    runs: list[Claimed]
    more: bool  # the limit was reached: there may be more
    alone_waiting: bool  # a run with >= 2 crashes waits until the worker holds nothing


class Claim(Verb[ClaimResult], frozen=True, array_like=True, tag=7, gc=False):
    """Claim up to `limit` ready runs that the session serves; due timers fire first.

    Highest priority first, then oldest. `live`: run -> fence at which the worker parked it and
    keeps its coroutine. `idle`: the worker holds nothing, so a run with >= 2 crashes may be
    claimed, alone.
    """

    worker: int
    limit: int
    live: Mapping[int, int]
    idle: bool = False


class Append(Verb[None], frozen=True, array_like=True, tag=8, gc=False):
    """Everything by which a run makes progress without giving up its claim, in one transaction.

    Raises StaleFence.

    `closed` open operations are deleted, `opened` ones upserted, inbox rows `absorbed` are marked,
    `children` are inserted with the run as parent: the same id again at the same path is fine, and
    its end, if past, is told again; any other existing id raises IdConflict. `cancels` asks the
    named children to cancel. `length`: how many records there were when this was said, by which one
    without a record shows that it is said again; None = nobody will say it again.
    """

    run: int
    fence: int
    records: Sequence[Record] = ()
    closed: Sequence[str] = ()
    opened: Sequence[OpenOp] = ()
    absorbed: Sequence[int] = ()
    children: Sequence[tuple[str, NewRun]] = ()  # (path, run); a detached child has path ""
    cancels: Sequence[str] = ()
    phase: int | None = None
    length: int | None = None


class Park(Verb[Sequence[InboxRow]], frozen=True, array_like=True, tag=9, gc=False):
    """Give up the claim and wait.

    If the inbox holds unabsorbed rows, the run stays RUNNING with this worker and they are
    answered; else the answer is empty and the run is PARKED until `due` or an inbox row. Raises
    StaleFence.

    `waiting` says for people what it waits for. `opened`, `closed` and `length` are as in Append:
    what it was told instead of being parked may be in the journal when this is said again, and is
    answered again.
    """

    run: int
    fence: int
    due: Time | None
    waiting: str
    opened: Sequence[OpenOp] = ()
    closed: Sequence[str] = ()
    length: int | None = None


class Finish(Verb[None], frozen=True, array_like=True, tag=10, gc=False):
    """End a run; its open operations go. Raises StaleFence.

    If it has a parent, CHILD_ENDED is put into the parent's inbox, which wakes.

    `value` is the result (COMPLETED) or the error (else). `clean`: it has no open operations and no
    children, so that one statement is enough. `attempts`: failures in total, for a task.
    """

    run: int
    fence: int
    status: Terminal
    value: bytes
    at: Time
    rollback: int = 0
    parent: int | None = None
    clean: bool = False
    attempts: int | None = None


class Settle(Verb[None], frozen=True, array_like=True, tag=11, gc=False):
    """Give up the claim and become HELD or STUCK, with the error or the reason.

    A run that was asked to cancel becomes READY instead of HELD.

    Raises StaleFence.
    """

    run: int
    fence: int
    status: PutAside
    error: bytes


class Reschedule(Verb[None], frozen=True, array_like=True, tag=12, gc=False):
    """Give up the claim; run again at `due` (None: at once). Raises StaleFence.

    `attempts` is the new number of failures (None: unchanged: hand-back, RetryLater). `error` None:
    unchanged.
    """

    run: int
    fence: int
    due: Time | None
    attempts: int | None = None
    error: bytes | None = None


class RunInfo(msgspec.Struct, frozen=True):
    """A run as people see it."""

    run: int
    id: str
    kind: int
    name: str
    version: int
    queue: str
    status: int
    phase: int
    rollback: int
    priority: int
    attempts: int
    crashes: int
    fence: int
    nonce: int
    created: float
    updated: float
    started: float | None
    ended: float | None
    due: float | None
    deadline: float | None
    waiting: str
    parent_id: str | None
    parent_path: str | None
    worker: int | None
    has_code: bool  # a live worker serves its queue and identity
    args: bytes
    value: bytes  # result or error

    @property
    def status_name(self) -> str:
        """The word for the status: the lower-case name, or "rolling_back"."""
        if self.phase == Phase.ROLLING_BACK and self.status in _ACTIVE:
            return "rolling_back"
        return Status(self.status).name.lower()


_ACTIVE = frozenset((Status.SCHEDULED, Status.READY, Status.RUNNING, Status.PARKED))


class Ended(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How a run came to rest: its Status, and its result, error or reason."""

    run: int
    status: int
    value: bytes


class RunFilter(msgspec.Struct, frozen=True):
    """What a listing shows; None = any.

    Newest first; `after` = the `run` of the last row of the page before.
    """

    statuses: Sequence[str] | None = None  # status words; also "no_code"
    name: str | None = None
    queue: str | None = None
    parent_id: str | None = None
    kinds: Sequence[int] = (Kind.TASK, Kind.WORKFLOW)
    after: int | None = None
    limit: int = 100


class AuditRow(msgspec.Struct, frozen=True):
    at: float
    action: str
    actor: str
    reason: str


class History(msgspec.Struct, frozen=True):
    """Everything the store knows of one run."""

    run: RunInfo
    journal: Sequence[Record]
    open_ops: Sequence[OpenOp]
    inbox: Sequence[InboxRow]  # not (yet) absorbed
    audit: Sequence[AuditRow]
    children: Sequence[RunInfo]


class Finding(msgspec.Struct, frozen=True):
    """One broken invariant, found by `doctor`."""

    rule: str
    run_id: str | None
    detail: str


class WorkerInfo(msgspec.Struct, frozen=True):
    """A registered worker, as people see it."""

    worker: int
    name: str
    host: str
    pid: int
    started: float
    queues: Sequence[str]
    names: Sequence[str]
    alive: bool
    held: int


class Identity(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """What a worker has code for: the durable identity of a workflow, task, or `queue=` step."""

    kind: int
    name: str
    version: int


class Hello(msgspec.Struct, frozen=True):
    """How a worker introduces itself."""

    name: str
    queues: Sequence[str]
    serves: Sequence[Identity]


class SessionEvents(Protocol):
    """What the store tells a session, on the loop, after the commit that caused it."""

    def on_ready(self) -> None:
        """Ready work that this session could claim has appeared (a hint; it may be gone)."""
        ...

    def on_inbox(self, rows: Sequence[InboxRow]) -> None:
        """Rows for runs that this session holds. A row may be told twice."""
        ...

    def on_lost(self, runs: Sequence[int]) -> None:
        """These runs were claimed by somebody else, or ended from outside."""
        ...

    def on_claimed(self, result: ClaimResult) -> None:
        """Runs that a broker claimed for this session, which has offered places."""
        ...

    def on_answered(self) -> None:
        """The callbacks of all verbs that were answered together have been called."""
        ...

    def holds(self) -> Mapping[int, int]:
        """Return the runs that this session holds, each with its fence."""
        ...

    def keeps(self) -> Mapping[int, int]:
        """Return the parked runs whose coroutines it keeps, each with the fence it parked at."""
        ...


class Session(Protocol):
    """A registered worker: its lease is beaten by a thread of its own while it holds anything."""

    @property
    def worker(self) -> int: ...

    def offer(self, places: int) -> None:
        """Say how many runs the worker takes at once; 0 = none, until it asks.

        A broker claims for the places that are free, as work becomes ready, and tells it by
        `on_claimed`; a store in the same process tells `on_ready`.
        """
        ...

    def dropped(self, run: int) -> None:
        """Say that the worker no longer keeps the coroutine of a run that it parked."""
        ...

    async def close(self) -> None:
        """Unregister; whatever it still holds becomes ready at once, with no crash counted."""
        ...


class Store(Protocol):
    """Durable runs, journals and inboxes. All methods are called on the loop that opened it."""

    @property
    def clock(self) -> Clock:
        """The clock by which it decides what is due, and by which all times are to be made."""
        ...

    def submit(self, verb: Verb[R], done: Callable[[R | Exception], None]) -> None:
        """Put a verb into the open batch. Raises at once if the verb is malformed or too large."""
        ...

    def flush(self) -> None:
        """Commit what is waiting now, not in the next turn of the loop.

        Does nothing while a commit is on its way. The commit and its callbacks may happen inside
        the call.
        """
        ...

    async def do(self, verb: Verb[R]) -> R:
        """Submit and wait; raises what refused it."""
        ...

    async def open_session(self, hello: Hello, events: SessionEvents) -> Session: ...

    async def info(self, id: str) -> RunInfo | None: ...

    async def wait_ended(self, id: str) -> Ended:
        """Return once the run is terminal, HELD or STUCK (at once if it is).

        Pushed, not polled. Raises RunNotFound.
        """
        ...

    async def list_runs(self, filter: RunFilter) -> list[RunInfo]: ...

    async def history(self, id: str) -> History | None: ...

    async def workers(self) -> list[WorkerInfo]: ...

    async def doctor(self) -> list[Finding]: ...

    async def close(self) -> None:
        """Commit what was submitted, then close.

        Verbs submitted later are refused with StoreUnavailable.
        """
        ...


AnyVerb = Verb[Any]

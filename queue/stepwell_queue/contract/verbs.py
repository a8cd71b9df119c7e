"""The verbs: every change of a run, as a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta

from stepwell_queue.contract.rows import Claimed, InboxRow, NewRun, Note, OpenOp, Record, Time
from stepwell_queue.words import Status, WorkerState

R = TypeVar("R")

# Checked where a verb comes in over the network, like `Time`.
Terminal = Annotated[int, Meta(ge=int(Status.COMPLETED), le=int(Status.EXPIRED))]
PutAside = Annotated[int, Meta(ge=int(Status.HELD), le=int(Status.STUCK))]
About = Annotated[int, Meta(ge=int(WorkerState.STARTING), le=int(WorkerState.STOPPING))]


class Verb(msgspec.Struct, Generic[R], frozen=True, array_like=True, gc=False):
    """A change; R is what it answers.

    While the store is unavailable, what clients say fails, and what workers say is kept and said
    again until it is stored. Any verb may be said twice, since its answer may get lost on the way:
    the second time it changes nothing and is answered as before. Those that take as much as there
    is (Claim, PurgeQueue) are carried out again, and so is what says how a schedule is to
    be. `tag` is its number on the wire.
    """


class Started(msgspec.Struct, frozen=True, array_like=True, gc=False):
    run: int
    id: str
    created: bool  # False: it existed already, with this id or the unique key that was asked for
    status: int
    claimed: Claimed | None = None  # set when it was born claimed by `Start.worker`


class Start(Verb[Started], frozen=True, array_like=True, tag=1, gc=False):
    """Insert a run, or find the same one, or that which has its unique key.

    Raises IdConflict, RunNotFound (of what it is to wait for), QueueFull, RequestRefused (what it
    would replace waits, by what it is to wait for, for itself).

    `worker`: a session of this process that serves the queue and name and has a free slot: a run
    due at once is inserted as RUNNING with fence 1 and comes back in `Started.claimed`, unless
    older ready work of that queue waits, or the run existed, or has terms. None: insert only.
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
    why: str = ""  # the reason, for the audit


class Ask(Verb[int], frozen=True, array_like=True, tag=5, gc=False):
    """An operator's request; answers the Status afterwards; leaves an audit row.

    Raises RunNotFound, RequestRefused.

    `action`: "retry" (of a HELD or FAILED workflow run without undos run; inbox RETRY, ready),
    "roll_back" (of a HELD run; inbox ROLL_BACK, ready), "resume_rollback" (of a FAILED or CANCELLED
    run with Rollback.INCOMPLETE; inbox RESUME_ROLLBACK, ready, phase ROLLING_BACK), "resume" (of a
    STUCK run: ready; of a PAUSED one: as it was, times that have passed have their effect), "pause"
    (PAUSED at once; a RUNNING run when its worker gives up the claim, of which inbox PAUSE tells
    it), "requeue" (of a FAILED task, a dead letter: ready, with no failures and crashes counted,
    its deadline as far off as it was at first, and what it was sent forgotten).
    Leaving a terminal status is refused if the parent absorbed the outcome, if another run has its
    unique key by now, and while very many who wait for its end are still told of it; it also raises
    the fence.
    """

    id: str
    uid: str
    action: str
    actor: str
    reason: str
    at: float


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
    without a record shows that it is said again; None = nobody will say it again. `notes`: what its
    code has said, in order, since the last; those that it has said before are passed over.
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
    notes: Sequence[Note] = ()


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
    unchanged. `unstarted`: it was not begun, so what its start took of a rate limit is returned.
    """

    run: int
    fence: int
    due: Time | None
    attempts: int | None = None
    error: bytes | None = None
    unstarted: bool = False


class SayState(Verb[None], frozen=True, array_like=True, tag=70, gc=False):
    """Note for people what a worker is about, as a WorkerState."""

    worker: int
    state: About


AnyVerb = Verb[Any]

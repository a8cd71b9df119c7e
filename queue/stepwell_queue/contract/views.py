"""What people see of runs and workers, and how a worker introduces itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from stepwell_queue.contract.rows import InboxRow, OpenOp, Record, Time
from stepwell_queue.words import Kind, Phase, Status


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
    key: str | None = None  # whose limits, rates and turns in the queue it shares
    generation: int = 0
    scheduled: float | None = None  # when it was to start
    digest: bytes = b""  # of its arguments, as in NewRun
    options: bytes = b""  # as in NewRun

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
    key: str | None = None
    created_after: Time | None = None  # at this time or later
    created_before: Time | None = None
    ended_after: Time | None = None  # likewise
    ended_before: Time | None = None
    kinds: Sequence[int] = (Kind.TASK, Kind.WORKFLOW)
    after: int | None = None
    limit: int = 100


class AuditRow(msgspec.Struct, frozen=True):
    at: float
    action: str
    actor: str
    reason: str


class FailedAttempt(msgspec.Struct, frozen=True, array_like=True):
    """An attempt of a task, or of a step with a queue, that did not end well."""

    path: str  # of the step; "" = it is of the run itself
    number: int
    started: float  # when it was claimed
    ended: float
    worker: str  # its name
    crashed: bool  # the worker died, or was taken for dead
    error: bytes  # empty = it crashed, or the error was too large to be kept


class History(msgspec.Struct, frozen=True):
    """Everything the store knows of one run."""

    run: RunInfo
    journal: Sequence[Record]
    open_ops: Sequence[OpenOp]
    inbox: Sequence[InboxRow]  # not (yet) absorbed
    audit: Sequence[AuditRow]
    children: Sequence[RunInfo]
    failures: Sequence[FailedAttempt] = ()  # oldest first: the first few of each, and the last


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
    state: str = "running"  # the lower-case name of a WorkerState
    holding: Mapping[str, int] = {}  # how many runs of each name it holds


class Identity(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """What a worker has code for: the durable identity of a workflow, task, or `queue=` step."""

    kind: int
    name: str
    version: int


class Hello(msgspec.Struct, frozen=True):
    """How a worker introduces itself.

    `limits`: of these of its queues it takes no more runs at once than this.
    """

    name: str
    queues: Sequence[str]
    serves: Sequence[Identity]
    limits: Mapping[str, int] = {}

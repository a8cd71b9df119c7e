"""Runs as people see them: plain values, aware UTC times, statuses as words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, cast

from stepwell_queue import contract
from stepwell_queue.clock import utc
from stepwell_queue.contract import Kind, Record, RecordKind, Rollback, Status
from stepwell_runtime.codec import Codec, DecodingError
from stepwell_runtime.policy import code_of

RunStatus = Literal[
    "scheduled",
    "ready",
    "running",
    "parked",
    "paused",
    "held",
    "stuck",
    "rolling_back",
    "completed",
    "failed",
    "cancelled",
    "terminated",
    "expired",
]
STATUSES = (*(status.name.lower() for status in Status), "rolling_back", "no_code")


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run, as it stands. Times are aware, in UTC; None = not yet, or does not apply."""

    id: str
    kind: Literal["workflow", "task", "step"]
    name: str
    version: int
    queue: str
    status: RunStatus
    rollback: Literal["none", "complete", "incomplete"]
    waiting: str
    """What a parked run waits for."""
    attempts: int
    """Failures so far."""
    crashes: int
    priority: int
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    due_at: datetime | None
    deadline_at: datetime | None
    parent_id: str | None
    has_code: bool
    """A live worker serves its queue and has its code."""
    error: str | None
    """Type and message of the failure; the reason, if it was cancelled, is held or stuck."""
    key: str | None = None
    """Whose limits, rates and turns in the queue it shares; None = nobody's."""
    generation: int = 0
    """How often it has begun anew, with `continue_as_new`."""
    code: str | None = None
    """The build, or a fingerprint of the workflow's function, with which it was started; None = a
    task, or it was not noted."""

    @property
    def ended(self) -> bool:
        """Whether its status is final."""
        return Status[self.status.upper()].terminal if self.status != "rolling_back" else False


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a run's history: what its journal delivered, or what it has begun."""

    path: str
    name: str
    kind: str
    """Of what has ended: step, timer, signal, question, child, started, cancel, failure, reopen,
    roll_back or marker; of what is open: sleep, wait, ask, deadline, retry, child or remote."""
    outcome: Literal["ok", "failed", "cancelled", "open"]
    attempt: int
    started_at: datetime | None
    ended_at: datetime | None
    value: Any
    error: BaseException | None
    due_at: datetime | None = None
    """When an open operation wants attention."""
    voided: bool = False
    """A retry has set it aside."""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt of a task, or of a step with a queue, that did not end well."""

    path: str
    """Where in the code of its workflow the step stands; empty for a task."""
    number: int
    """1, and one more for each failure; a requeue counts anew."""
    started_at: datetime
    """When a worker took it."""
    ended_at: datetime
    worker: str
    """The name of the worker."""
    crashed: bool
    """The worker died, or was taken for dead."""
    error: BaseException | None
    """None if it crashed, and of errors over 64 KiB, of which only the last is kept, by the run."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What an operator asked for."""

    at: datetime
    action: str
    actor: str
    reason: str


@dataclass(frozen=True, slots=True)
class History:
    """Everything that is known of one run, with decoded values."""

    run: RunInfo
    events: tuple[Event, ...]
    """What has ended, in the order in which it was delivered, then what is open."""
    undelivered: tuple[tuple[str, str], ...]
    """Kind and name of what was sent to the run and not taken yet."""
    audit: tuple[Audit, ...]
    children: tuple[RunInfo, ...]
    failures: tuple[FailedAttempt, ...] = ()
    """Attempts of a task, and of steps with a queue, that failed: the first 10 of each and the last
    50."""


_FORWARD = frozenset(("scheduled", "ready", "running", "parked", "paused"))


def _goes_on(row: contract.RunInfo) -> bool:
    """Whether it is about its work: then why it was stuck or held is over.

    What a task has failed with so far is why it waits, so that counts.
    """
    if row.status == Status.COMPLETED:
        return True
    return row.kind == Kind.WORKFLOW and row.status_name in _FORWARD


def run_info(row: contract.RunInfo, codec: Codec) -> RunInfo:
    return RunInfo(
        id=row.id,
        kind=cast("Literal['workflow', 'task', 'step']", Kind(row.kind).name.lower()),
        name=row.name,
        version=row.version,
        queue=row.queue,
        status=cast("RunStatus", row.status_name),
        rollback=cast(
            "Literal['none', 'complete', 'incomplete']", Rollback(row.rollback).name.lower()
        ),
        waiting=row.waiting,
        attempts=row.attempts,
        crashes=row.crashes,
        priority=row.priority,
        created_at=utc(row.created),
        started_at=moment(row.started),
        ended_at=moment(row.ended),
        due_at=moment(row.due),
        deadline_at=moment(row.deadline),
        parent_id=row.parent_id,
        has_code=row.has_code,
        error=reason(row.value, codec) if row.value and not _goes_on(row) else None,
        key=row.key,
        generation=row.generation,
        code=code_of(row.options),
    )


def moment(seconds: float | None) -> datetime | None:
    return utc(seconds) if seconds else None


def reason(value: bytes, codec: Codec) -> str:
    """Say in one line what an error or a cancel reason is; imports and raises nothing."""
    shown = codec.to_json(value)
    if isinstance(shown, str):
        return shown
    info = codec.error_info(value)
    return f"{info.type}: {info.message}" if info.message else info.type


def decoded(value: bytes, codec: Codec) -> Any:
    """Return a stored value, or what can be shown of it where its class is gone."""
    if not value:
        return None
    try:
        return codec.decode(value)
    except DecodingError:
        return codec.to_json(value)


RECORD_KINDS: dict[int, tuple[str, Literal["ok", "failed", "cancelled"]]] = {
    RecordKind.STEP_OK: ("step", "ok"),
    RecordKind.STEP_FAILED: ("step", "failed"),
    RecordKind.STEP_CUT: ("step", "cancelled"),
    RecordKind.TIMER: ("timer", "ok"),
    RecordKind.SIGNAL: ("signal", "ok"),
    RecordKind.CHILD_OK: ("child", "ok"),
    RecordKind.CHILD_FAILED: ("child", "failed"),
    RecordKind.CHILD_CANCELLED: ("child", "cancelled"),
    RecordKind.STARTED: ("started", "ok"),
    RecordKind.CANCEL: ("cancel", "ok"),
    RecordKind.FAILURE: ("failure", "failed"),
    RecordKind.REOPEN: ("reopen", "ok"),
    RecordKind.ROLL_BACK: ("roll_back", "ok"),
    RecordKind.MARK: ("marker", "ok"),
    RecordKind.QUESTION: ("question", "ok"),
}
_VALUED = frozenset(
    (
        RecordKind.STEP_OK,
        RecordKind.SIGNAL,
        RecordKind.QUESTION,
        RecordKind.CHILD_OK,
        RecordKind.CHILD_CANCELLED,  # the reason
        RecordKind.CANCEL,
    )
)


def value_of(record: Record) -> bytes:
    """Return what a record delivers; a question's is stored with its uid."""
    if record.kind != RecordKind.QUESTION:
        return record.value
    import msgspec

    return msgspec.msgpack.decode(record.value, type=tuple[str, bytes])[1]


def record_event(
    record: Record,
    codec: Codec,
    voided: frozenset[int],
    remote: Mapping[str, contract.RunInfo] | Mapping[str, contract.RemoteStep],
) -> Event:
    kind, outcome = RECORD_KINDS[record.kind]
    job = remote.get(record.path) if kind == "child" else None
    failed = outcome != "ok" and record.kind not in _VALUED and bool(record.value)
    return Event(
        path=record.path,
        name=record.name,
        kind=kind if job is None else "step",
        outcome=outcome,
        attempt=record.attempt if job is None else job.attempts + (outcome == "ok"),
        started_at=moment(record.started if job is None else job.started),
        ended_at=moment(record.at),
        value=decoded(value_of(record), codec) if record.kind in _VALUED else None,
        error=codec.decode_error(record.value) if failed else None,
        voided=record.seq in voided,
    )


def open_event(op: contract.OpenOp, codec: Codec) -> Event:
    return Event(
        path=op.path,
        name=op.name,
        kind=op.kind,
        outcome="open",
        attempt=op.attempt + 1,
        started_at=None,
        ended_at=None,
        value=op.value.decode() if op.kind in ("child", "remote") else None,
        error=codec.decode_error(op.value) if op.kind == "retry" and op.value else None,
        due_at=moment(op.due),
    )


def history_of(found: contract.History, codec: Codec) -> History:
    voided = frozenset(
        seq
        for record in found.journal
        if record.kind == RecordKind.REOPEN
        for seq in voided_by(record)
    )
    # A step on another queue is a job of its own in the store, and a step to its workflow.
    remote = {one.parent_path or "": one for one in found.children if one.kind == Kind.STEP}
    return History(
        run=run_info(found.run, codec),
        events=(
            *(record_event(record, codec, voided, remote) for record in found.journal),
            *(open_event(op, codec) for op in found.open_ops),
        ),
        undelivered=tuple(
            (contract.InboxKind(row.kind).name.lower(), row.name) for row in found.inbox
        ),
        audit=tuple(Audit(utc(row.at), row.action, row.actor, row.reason) for row in found.audit),
        children=tuple(
            run_info(child, codec) for child in found.children if child.kind != Kind.STEP
        ),
        failures=tuple(failed_attempt(one, codec) for one in found.failures),
    )


def failed_attempt(row: contract.FailedAttempt, codec: Codec) -> FailedAttempt:
    error = codec.decode_error(row.error) if row.error else None
    return FailedAttempt(
        row.path, row.number, utc(row.started), utc(row.ended), row.worker, row.crashed, error
    )


def voided_by(record: Record) -> list[int]:
    import msgspec

    if not record.value:  # the resume of a rollback sets nothing aside
        return []
    return msgspec.msgpack.decode(record.value, type=list[int])

"""What a journal record, or a signal, means to the line of code that waits for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, cast

import msgspec

from stepwell_queue.contract import Record, RecordKind
from stepwell_runtime.codec import Codec, DecodingError, SerializationError
from stepwell_runtime.core.branch import Op
from stepwell_runtime.core.commands import NO_DEFAULT, JoinCommand, QuestionCommand, WaitCommand
from stepwell_runtime.core.continuing import UNDOS_STAND
from stepwell_runtime.errors import (
    AskTimeout,
    Cancelled,
    ContinueAsNew,
    DeadlineExceeded,
    DurabilityError,
    RunCancelled,
    SignalTimeout,
    StepFailed,
)
from stepwell_runtime.fitting import fits

_STEP_KINDS = frozenset((RecordKind.STEP_OK, RecordKind.STEP_FAILED, RecordKind.STEP_CUT))
_CHILD_KINDS = frozenset((RecordKind.CHILD_OK, RecordKind.CHILD_FAILED, RecordKind.CHILD_CANCELLED))
RETURNED = frozenset((RecordKind.STEP_OK, RecordKind.CHILD_OK))
SUCCEEDED = frozenset((RecordKind.STEP_OK, RecordKind.CHILD_OK, RecordKind.STARTED))
FITTING: dict[str, frozenset[RecordKind]] = {
    "step": _STEP_KINDS,
    "remote": _CHILD_KINDS,
    "child": _CHILD_KINDS,
    "start": frozenset((RecordKind.STARTED, RecordKind.CHILD_FAILED)),
    "sleep": frozenset((RecordKind.TIMER,)),
    "wait": frozenset((RecordKind.TIMER,)),
    "ask": frozenset((RecordKind.TIMER,)),
}
"""Which records may end which kind of operation."""

Resumed = tuple[Any, BaseException | None]
"""What a branch is resumed with: a value, or an error to raise."""

Delivered = tuple[int, int, bool]
"""Of a record: its seq, how many records came before its operation was asked for, and whether the
operation was cut."""


Verdict = Literal["completed", "failed", "cancelled", "continued"]


class Outcome(msgspec.Struct):
    """How the forward code of a run ended."""

    verdict: Verdict
    value: bytes = b""
    error: BaseException | None = None


def completed(codec: Codec, value: object, workflow: str) -> Outcome:
    """Return the outcome of code that returned; a result that cannot be stored fails the run."""
    try:
        return Outcome("completed", codec.encode(value, f"the result of workflow {workflow!r}"))
    except Exception as refused:  # noqa: BLE001 - whatever encoding a user's value raises
        return Outcome("failed", error=refused)


def continued(error: ContinueAsNew) -> Outcome:
    return Outcome("continued", value=error.encoded)


def at_last(outcome: Outcome, undos: bool, cancel_name: str | None, run_id: str) -> Outcome:
    """Return the outcome once all branches have ended: only then is it known to begin anew."""
    if outcome.verdict != "continued":
        return outcome
    if cancel_name is not None:
        return ended_by(Cancelled(), cancel_name, run_id)
    return Outcome("failed", error=DurabilityError(UNDOS_STAND)) if undos else outcome


def ended_by(error: BaseException, cancel_name: str | None, run_id: str) -> Outcome:
    """Return the outcome of code that raised, while the run was being cancelled or not."""
    if isinstance(error, (Cancelled, ContinueAsNew)) and cancel_name is not None:
        if cancel_name != "deadline":
            return Outcome("cancelled", error=Cancelled())
        error = DeadlineExceeded(f"run {run_id!r} did not end by its deadline")
    return Outcome("failed", error=error)


def after_timer(codec: Codec, op: Op) -> Resumed:
    """Return the outcome of a sleep that is over, or of a wait whose time has passed."""
    command = op.command
    if not isinstance(command, WaitCommand):
        return None, None
    if isinstance(command, QuestionCommand):
        return None, AskTimeout(command.name, command.timeout or 0.0)
    if command.default is not NO_DEFAULT:
        return codec.decode(default_of(codec, command)), None
    return None, SignalTimeout(command.name, command.timeout or 0.0)


def default_of(codec: Codec, command: WaitCommand) -> bytes:
    """Return the default of a wait as it would be stored. Raises SerializationError."""
    if command.default is NO_DEFAULT:
        return b""
    return codec.encode(command.default, f"the default of wait_for_signal({command.name!r})")


def after_signal(codec: Codec, op: Op, data: bytes) -> Resumed:
    """Return the value of a signal; one that does not fit is raised at the wait, and consumed."""
    assert isinstance(op.command, WaitCommand)
    where, wanted = f"signal {op.name!r}", op.command.type
    try:
        value = codec.decode(data, wanted, trusted=False, where=where)
        return value if fits(value, wanted) else codec.convert(value, wanted, where), None
    except (DecodingError, SerializationError) as error:
        return None, error


def after_child(codec: Codec, op: Op, record: Record) -> Resumed:
    """Return how a detached child ended, to the line that waits for its result."""
    assert isinstance(op.command, JoinCommand)
    if record.kind == RecordKind.CHILD_OK:
        where = f"the result of run {record.name!r}"
        return codec.decode(record.value, op.command.result_type, where=where), None
    if record.kind == RecordKind.CHILD_CANCELLED:
        return None, child_cancelled(codec, record, record.name)
    return None, throwable(codec, record.value)


def child_cancelled(codec: Codec, record: Record, run_id: str) -> RunCancelled:
    reason = codec.to_json(record.value) if record.value else ""
    return RunCancelled(run_id, str(reason or ""))


def throwable(codec: Codec, data: bytes) -> BaseException:
    """Return a stored error as an exception that workflow code can meet and handle."""
    error = codec.decode_error(data)
    if isinstance(error, Exception) and not isinstance(error, (StopIteration, StopAsyncIteration)):
        return error
    return StepFailed(type(error).__name__, str(error))


def described(record: Record) -> str:
    return f"{RecordKind(record.kind).name.lower().replace('_', ' ')} {record.name!r}"


def voids(
    error: BaseException,
    failures: Iterable[tuple[int, BaseException]],
    delivered: Iterable[Delivered],
) -> list[int]:
    """Return the seqs to void so that a run goes on from what failed it.

    Void are the records that brought the error, or what it is made of, whatever was asked for after
    the first of them, and what was cut.
    """
    chain = causes(error)
    guilty = {seq for seq, brought in failures if id(brought) in chain}
    if not guilty:
        return []
    first = min(guilty)
    return [
        seq
        for seq, opened_after, cut in delivered
        if seq in guilty or opened_after > first or (cut and seq > first)
    ]


def causes(error: BaseException) -> set[int]:
    """Return the ids of `error` and of all that it came from or contains."""
    found: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        one = pending.pop()
        if one is None or id(one) in found:
            continue
        found.add(id(one))
        pending += (one.__cause__, one.__context__)
        if isinstance(one, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", one)
            pending += group.exceptions
    return found

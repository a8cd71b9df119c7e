"""A journal against the code at hand: whether that would go on where the run stands.

Nothing of a run is executed but the code of its workflow: what it awaits is taken from the journal.
"""

from __future__ import annotations

from contextvars import Context
from typing import Final, Literal

import msgspec

from stepwell_queue.contract import Claimed, RunCopy, Status
from stepwell_runtime.activation._replaying import execution_of, misfit, standing
from stepwell_runtime.codec import Codec, DecodingError
from stepwell_runtime.core.execution import Execution
from stepwell_runtime.core.guard import GuardLoop
from stepwell_runtime.definitions import WorkflowDefinition
from stepwell_runtime.errors import Diverged

Verdict = Literal["ok", "diverged", "raises", "not_durable", "cannot_decode", "no_code"]

THE_END: Final = "the end"
_WAITED: Final = frozenset((Status.PARKED, Status.STUCK))
# These end from outside, wherever the code stands.
_CUT: Final = frozenset((Status.TERMINATED, Status.EXPIRED))


class Outcome(msgspec.Struct, frozen=True):
    """What became of a replay; `message` says it for people, empty = nothing is wrong."""

    verdict: Verdict
    message: str = ""
    path: str | None = None
    recorded: str | None = None
    asked: str | None = None


_OK: Final = Outcome("ok")


def replayed(
    copy: RunCopy, definition: WorkflowDefinition, codec: Codec, guard: GuardLoop
) -> Outcome:
    """Replay a workflow run against `definition`."""
    claimed = _claimed(copy)
    try:
        execution = execution_of(claimed, definition, codec, Context(), guard, trusted=True)
    except DecodingError as misread:
        return Outcome("cannot_decode", str(misread))
    try:
        execution.replaying = True
        execution.begin()
        for record in standing(copy.journal):
            if execution.stuck is not None:
                break
            execution.deliver(record)
        return _judged(copy, execution, codec)
    finally:
        execution.close()
        execution.forget()


def _judged(copy: RunCopy, execution: Execution, codec: Codec) -> Outcome:
    if execution.stuck is None and copy.status < Status.COMPLETED:
        for row in copy.open_ops:
            execution.stuck = misfit(execution, execution.ops.get(row.path), row)
            if execution.stuck is not None:
                break
    stuck = execution.stuck
    if stuck is not None:
        return _stuck(stuck, execution)
    return _at_the_end(copy, execution, codec)


def _stuck(stuck: Exception, execution: Execution) -> Outcome:
    if isinstance(stuck, Diverged):
        asked, raised = stuck.asked, _raised(execution)
        if raised is not None and not execution.rolling_back:
            asked = f"nothing, for it has raised {raised}"
        stuck = Diverged(stuck.path, stuck.recorded, asked)
        return Outcome("diverged", str(stuck), stuck.path, stuck.recorded, asked)
    if isinstance(stuck, DecodingError):
        return Outcome("cannot_decode", str(stuck))
    return Outcome("not_durable", str(stuck))


def _raised(execution: Execution) -> str | None:
    outcome = execution.outcome
    if outcome is None or outcome.error is None:
        return None
    said = str(outcome.error)
    return f"{type(outcome.error).__name__}: {said}" if said else type(outcome.error).__name__


def _at_the_end(copy: RunCopy, execution: Execution, codec: Codec) -> Outcome:
    status = Status(copy.status)
    if not status.terminal:
        raised = _raised(execution)
        if raised is None or status not in _WAITED or execution.rolling_back:
            return _OK
        done = "waited" if status is Status.PARKED else "was stuck"
        return Outcome("raises", f"the code raises {raised} where the run {done}, and would fail")
    if status in _CUT or (not copy.journal and status is not Status.COMPLETED):
        return _OK  # it may never have begun
    recorded, outcome = f"a run that {_ended(status)}", execution.outcome
    if outcome is None or not execution.finished:
        waits = [f"{op.kind} {op.name!r} at path {op.path}" for op in execution.waits_for()[:1]]
        return _other_end(recorded, waits[0] if waits else "more")
    if outcome.verdict != status.name.lower():
        raised = _raised(execution)
        how = outcome.verdict if raised is None else f"{outcome.verdict}, with {raised}"
        return _other_end(recorded, f"an end as {how}")
    if outcome.error is None:
        if outcome.value != copy.value and not _equal(outcome.value, copy.value, codec):
            return _other_end("another result", "an end with this one")
    elif status is Status.FAILED:
        there = codec.error_info(copy.value).type
        here = codec.error_info(codec.encode_error(outcome.error, "a replay")).type
        if there != here:
            return _other_end(f"a failure with {there}", f"one with {_raised(execution)}")
    return _OK


def _ended(status: Status) -> str:
    return "was cancelled" if status is Status.CANCELLED else status.name.lower()


def _other_end(recorded: str, asked: str) -> Outcome:
    return Outcome("diverged", str(Diverged(THE_END, recorded, asked)), THE_END, recorded, asked)


def _equal(one: bytes, other: bytes, codec: Codec) -> bool:
    """Whether two results are equal though their bytes differ, as those of sets do."""
    return codec.digest(codec.decode(one)) == codec.digest(codec.decode(other))


def _claimed(copy: RunCopy) -> Claimed:
    run = copy.run
    return Claimed(
        0, run.id, run.kind, run.name, run.version, run.queue, copy.fence + 1, copy.attempts,
        copy.crashes, copy.phase, run.priority, run.nonce, copy.generation, run.at, run.due,
        run.deadline, None, copy.parent_id, copy.parent_path, run.args, b"", run.options, False,
        copy.journal, copy.open_ops, (),
    )  # fmt: skip

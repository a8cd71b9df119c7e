"""What a replay is made of, for a worker that goes on with a run, and for a trial of new code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import Context

import msgspec
from msgspec.structs import replace

from stepwell_queue.contract import Claimed, OpenOp, Record, RecordKind
from stepwell_runtime.activation._facts import facts_of
from stepwell_runtime.activation._work import ROW_KIND
from stepwell_runtime.codec import Codec
from stepwell_runtime.core.branch import Op
from stepwell_runtime.core.execution import Execution
from stepwell_runtime.core.guard import GuardLoop
from stepwell_runtime.core.marks import marks_in
from stepwell_runtime.definitions import WorkflowDefinition
from stepwell_runtime.errors import Diverged
from stepwell_runtime.launch import decode_arguments
from stepwell_runtime.policy import origin_of

_decode_seqs = msgspec.msgpack.Decoder(list[int]).decode


def seed_of(claimed: Claimed) -> str:
    """Return what the chance of a run, its keys and its children's ids are made of."""
    return f"{claimed.id}/{claimed.nonce}/{claimed.generation}"


def execution_of(
    claimed: Claimed,
    definition: WorkflowDefinition,
    codec: Codec,
    context: Context,
    guard: GuardLoop,
    *,
    trusted: bool,
) -> Execution:
    """Return the execution of a run, before its first line. Raises DecodingError."""
    args, kwargs = decode_arguments(codec, definition, claimed.args, trusted=trusted)
    seed, began = origin_of(claimed)
    if began is not None:  # a fork goes on in the time of the run that it was forked of
        claimed = replace(claimed, created=began, due=None)
    execution = Execution(
        lambda: definition.fn(*args, **kwargs),
        facts_of(claimed),
        seed=seed or seed_of(claimed),
        now=claimed.created if claimed.due is None else max(claimed.created, claimed.due),
        codec=codec,
        context=context,
        guard=guard,
    )
    execution.replaying = claimed.fence > 1 and (
        not claimed.generation or bool(claimed.journal or claimed.open_ops)
    )
    if claimed.journal:
        execution.marks = marks_in(claimed.journal)
    return execution


def standing(journal: Sequence[Record]) -> Iterator[Record]:
    """Yield the records that no retry has set aside."""
    voided: set[int] = set()
    for record in journal:
        if record.kind == RecordKind.REOPEN and record.name == "retry":
            voided.update(_decode_seqs(record.value))
    for record in journal:
        if record.seq not in voided:
            yield record


def misfit(execution: Execution, op: Op | None, row: OpenOp) -> Diverged | None:
    """Say what is wrong with a stored open operation; `op`: what the code waits for at its path.

    None = it fits, or the code has asked for it and waits for it no longer.
    """
    recorded = f"an open {row.kind} {row.name!r}"
    if op is not None:
        if ROW_KIND.get(op.kind) == row.kind and op.name == row.name:
            return None
        return Diverged(row.path, recorded, f"{op.kind} {op.name!r}")
    if execution.was_asked(row.path):
        return None
    return Diverged(row.path, recorded, "nothing there")

"""From a fresh claim to an execution that has not begun."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell_queue.contract import Claimed, Finish, Status
from stepwell_runtime.activation._facts import facts_of
from stepwell_runtime.codec import DecodingError
from stepwell_runtime.core.execution import Execution
from stepwell_runtime.core.marks import marks_in
from stepwell_runtime.errors import DeadlineExceeded, WorkerCrashed
from stepwell_runtime.launch import decode_arguments

if TYPE_CHECKING:
    from stepwell_runtime.activation._activation import Activation


def enter(activation: Activation, claimed: Claimed) -> Execution | None:
    """Return the execution of a fresh claim; None: the claim was given up, and why was stored."""
    worker, definition = activation.worker, activation.definition
    if claimed.crashes > definition.max_crashes:
        # Failing its running steps did not help, so it is the workflow's own code that kills
        # the process.
        died = f"run {claimed.id!r}: its worker died {claimed.crashes} times in a row"
        activation.settle(Status.STUCK, WorkerCrashed(died))
        return None
    if claimed.fence == 1 and activation.timers.deadline_passed:
        # Nothing of it has run, and nothing shall.
        error = DeadlineExceeded(f"run {claimed.id!r} had not begun by its deadline")
        data = worker.codec.encode_error(error, f"run {claimed.id!r}")
        activation.give_up(
            Finish(
                claimed.run,
                claimed.fence,
                int(Status.FAILED),
                data,
                worker.clock.now(),
                parent=claimed.parent,
                clean=True,
            )
        )
        return None
    try:
        args, kwargs = decode_arguments(
            worker.codec, definition, claimed.args, trusted=worker.trusts_clients
        )
    except DecodingError as misfit:
        activation.settle(Status.STUCK, misfit)
        return None
    execution = Execution(
        lambda: definition.fn(*args, **kwargs),
        facts_of(claimed),
        seed=activation.seed,
        now=claimed.created if claimed.due is None else max(claimed.created, claimed.due),
        codec=worker.codec,
        context=worker.context.copy(),
        guard=worker.guard,
    )
    execution.replaying = claimed.fence > 1
    if claimed.journal:
        execution.marks = marks_in(claimed.journal)
    return execution

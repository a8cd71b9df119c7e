"""From a fresh claim to an execution that has not begun."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell_queue.contract import Claimed, Finish, Status
from stepwell_runtime.activation._replaying import execution_of
from stepwell_runtime.codec import DecodingError
from stepwell_runtime.core.execution import Execution
from stepwell_runtime.errors import DeadlineExceeded, WorkerCrashed

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
    codec, context, trusted = worker.codec, worker.context.copy(), worker.trusts_clients
    try:
        execution = execution_of(claimed, definition, codec, context, worker.guard, trusted=trusted)
    except DecodingError as misfit:
        activation.settle(Status.STUCK, misfit)
        return None
    return execution

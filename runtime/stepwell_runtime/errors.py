"""Errors that user code meets in workflows, steps, and results."""

from __future__ import annotations

import signal

from stepwell_queue.errors import StepwellError
from stepwell_runtime.spans import Seconds, seconds


class Cancelled(BaseException):
    """Raised inside a workflow at its durable operations once it, or its branch, is cancelled."""


class ContinueAsNew(BaseException):
    """Ends this generation of a run, to begin the next one; `args` are its encoded arguments."""

    def __init__(self, args: bytes) -> None:
        super().__init__("the run begins anew: let continue_as_new() end the workflow")
        self.encoded = args


class DurabilityError(StepwellError):
    """Base of mistakes in the use of the durable primitives."""


class OutsideWorkflow(DurabilityError):
    """A durable primitive was used where no workflow is running."""

    def __init__(self, what: str, remedy: str, where: str = "a workflow") -> None:
        super().__init__(f"{what} works only inside {where}: {remedy}")


class StepInStep(DurabilityError):
    """A step with `queue=` or `compensate=` was awaited inside another step."""


class NotDurable(DurabilityError):
    """Workflow code used what cannot be replayed: asyncio, anyio, sockets, a foreign await."""


class Diverged(StepwellError):
    """The code asks for something else than its journal holds.

    The run is stuck until fitting code resumes it.
    """

    def __init__(self, path: str, recorded: str, asked: str) -> None:
        super().__init__(f"at path {path}: the journal has {recorded}, the code asks for {asked}")
        self.path, self.recorded, self.asked = path, recorded, asked


class StepFailed(StepwellError):
    """A step's own exception that cannot be rebuilt here; its type name and message are kept."""

    def __init__(self, type_name: str, message: str) -> None:
        super().__init__(f"{type_name}: {message}" if message else type_name)
        self.type_name, self.message = type_name, message


class StepTimeout(StepwellError, TimeoutError):
    """One attempt of a step took longer than its timeout."""


class TaskTimeout(StepwellError, TimeoutError):
    """One attempt of a task took longer than its timeout."""


class ChildDied(StepwellError):
    """The child process that executed an attempt of a step or task ended before its function did.

    `code`: its exit status; negative = the number of the signal that killed it.
    """

    def __init__(self, what: str, code: int) -> None:
        how = f"was killed by {_signal_name(-code)}" if code < 0 else f"exited with status {code}"
        super().__init__(f"{what}: the child process that executed it {how}")
        self.code = code


class SignalTimeout(StepwellError, TimeoutError):
    """No signal of this name came in time."""

    def __init__(self, name: str, timeout: float) -> None:
        super().__init__(
            f"no signal {name!r} came within {timeout:g} s; pass default= or catch "
            "SignalTimeout to go on"
        )
        self.name, self.timeout = name, timeout


class AskTimeout(StepwellError, TimeoutError):
    """No question of this name came to the workflow in time."""

    def __init__(self, name: str, timeout: float) -> None:
        super().__init__(
            f"no question {name!r} came within {timeout:g} s: catch AskTimeout to go on"
        )
        self.name, self.timeout = name, timeout


class AskRefused(StepwellError):
    """The workflow has refused the question; `reason` is what it said."""

    def __init__(self, run_id: str, name: str, reason: str) -> None:
        super().__init__(f"run {run_id!r} has refused the question {name!r}: {reason}")
        self.run_id, self.name, self.reason = run_id, name, reason


class NoValue(StepwellError, LookupError):
    """The run has not set a value of this name."""

    def __init__(self, run_id: str, name: str) -> None:
        super().__init__(
            f"run {run_id!r} has not set a value {name!r}: pass default=, or wait with wait_value()"
        )
        self.run_id, self.name = run_id, name


class StreamFull(StepwellError):
    """As much was emitted as may be; the item was not."""

    def __init__(self, stream: str, most: int, whose: str) -> None:
        super().__init__(
            f"emit({stream!r}): {whose} may emit {most:,} items in all streams together, and "
            "16 MiB: emit less, or larger parts at once, or store the data outside"
        )
        self.stream = stream


class DeadlineExceeded(StepwellError, TimeoutError):
    """The run, or a block with `deadline()`, did not end in time."""


class WorkerCrashed(StepwellError):
    """The worker process died again and again while it ran this; see `max_crashes`."""


class BatchMismatch(StepwellError):
    """The function of a task with `batch=` did not return one result for each item."""


class RunFailed(StepwellError):
    """The run failed with an exception that cannot be rebuilt here.

    Its type name and message are kept.
    """

    def __init__(self, run_id: str, type_name: str, message: str) -> None:
        super().__init__(f"run {run_id!r} failed with {type_name}: {message}")
        self.run_id, self.type_name, self.message = run_id, type_name, message


class RunCancelled(StepwellError):
    """The awaited run was cancelled."""

    def __init__(self, run_id: str, reason: str = "") -> None:
        super().__init__(f"run {run_id!r} was cancelled" + (f": {reason}" if reason else ""))
        self.run_id, self.reason = run_id, reason


class RunTerminated(StepwellError):
    """The awaited run was terminated: it ended at once, and its undos have not run."""

    def __init__(self, run_id: str, reason: str = "") -> None:
        super().__init__(f"run {run_id!r} was terminated" + (f": {reason}" if reason else ""))
        self.run_id, self.reason = run_id, reason


class RunExpired(StepwellError):
    """The awaited run was not started by the time given as its `expires`, so it never runs."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id!r} expired: it was not started in time, and never runs")
        self.run_id = run_id


class DependencyFailed(StepwellError):
    """A run that this one was to start after did not end well; `run_id` is that one's."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"run {run_id!r}, after which this one was to start, did not complete: look at that "
            'one; after_failed="start" starts a run however the others end'
        )
        self.run_id = run_id


class RunHeld(StepwellError):
    """The awaited run failed and is held before its rollback, so that an operator may decide."""

    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(f"run {run_id!r} is held: {reason}; retry it, or let it roll back")
        self.run_id, self.reason = run_id, reason


class RunStuck(StepwellError):
    """The code on disk cannot continue the awaited run.

    It waits for fitting code and has not failed.
    """

    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(
            f"run {run_id!r} is stuck: {reason}; deploy fitting code, or `stepwell resume {run_id}`"
        )
        self.run_id, self.reason = run_id, reason


class DefinitionError(StepwellError, TypeError):
    """A function cannot be a workflow, step or task as it is written, or two share one identity."""


class RetryLater(Exception):
    """Raise in a step or task: execute it again after `delay` seconds; costs no attempt."""

    def __init__(self, delay: Seconds) -> None:
        super().__init__(delay)
        self.delay = seconds(delay, "RetryLater")


class GiveUp(Exception):
    """Raise in a step or task: it fails with this at once, whatever attempts are left."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

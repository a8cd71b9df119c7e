"""Durable workflows and job queues for Python."""

from stepwell._branches import parallel, race
from stepwell._calls import Call, StepCall, TaskCall, WorkflowCall
from stepwell._children import ChildRun
from stepwell._decorated import Step, Task, Workflow
from stepwell._decorators import step, task, workflow
from stepwell._log import Logger, get_logger
from stepwell._primitives import Undo, compensate, sleep, sleep_until, start
from stepwell._scopes import current_app, current_run, current_step, now, random, uuid4
from stepwell._signals import Signal, wait_for_signal
from stepwell_queue.errors import (
    IdConflict,
    RequestRefused,
    RunEnded,
    RunNotFound,
    StepwellError,
    StoreRefused,
    StoreUnavailable,
)
from stepwell_runtime.definitions import Retry
from stepwell_runtime.errors import (
    Cancelled,
    DeadlineExceeded,
    DefinitionError,
    Diverged,
    DurabilityError,
    NotDurable,
    OutsideWorkflow,
    RetryLater,
    RunCancelled,
    RunFailed,
    RunHeld,
    RunStuck,
    SignalTimeout,
    StepFailed,
    StepInStep,
    StepTimeout,
    WorkerCrashed,
)

__all__ = [
    "Call",
    "Cancelled",
    "ChildRun",
    "DeadlineExceeded",
    "DefinitionError",
    "Diverged",
    "DurabilityError",
    "IdConflict",
    "Logger",
    "NotDurable",
    "OutsideWorkflow",
    "RequestRefused",
    "Retry",
    "RetryLater",
    "RunCancelled",
    "RunEnded",
    "RunFailed",
    "RunHeld",
    "RunNotFound",
    "RunStuck",
    "Signal",
    "SignalTimeout",
    "Step",
    "StepCall",
    "StepFailed",
    "StepInStep",
    "StepTimeout",
    "StepwellError",
    "StoreRefused",
    "StoreUnavailable",
    "Task",
    "TaskCall",
    "Undo",
    "WorkerCrashed",
    "Workflow",
    "WorkflowCall",
    "compensate",
    "current_app",
    "current_run",
    "current_step",
    "get_logger",
    "now",
    "parallel",
    "race",
    "random",
    "sleep",
    "sleep_until",
    "start",
    "step",
    "task",
    "uuid4",
    "wait_for_signal",
    "workflow",
]

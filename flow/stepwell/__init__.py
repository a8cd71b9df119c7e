"""Durable workflows and job queues for Python."""

from stepwell._app.app import Stepwell
from stepwell._app.handles import Run
from stepwell._app.settings import Retention
from stepwell._app.views import Audit, Event, History, RunInfo, RunStatus
from stepwell._app.worker import Worker
from stepwell._blocking.app import BlockingStepwell, BlockingWorker, run
from stepwell._blocking.calls import BlockingCalls
from stepwell._blocking.handles import BlockingRun
from stepwell._branches import parallel, race
from stepwell._calls import Call, StepCall, TaskCall, WorkflowCall
from stepwell._children import ChildRun
from stepwell._decorated import Step, Task, Workflow
from stepwell._decorators import step, task, workflow
from stepwell._log import Logger, get_logger
from stepwell._primitives import Undo, compensate, sleep, sleep_until, start
from stepwell._scopes import (
    current_app,
    current_run,
    current_step,
    is_replaying,
    now,
    random,
    uuid4,
)
from stepwell._signals import Signal, wait_for_signal
from stepwell_queue.contract import Finding, WorkerInfo
from stepwell_queue.errors import (
    IdConflict,
    RequestRefused,
    RunEnded,
    RunNotFound,
    StepwellError,
    StoreRefused,
    StoreUnavailable,
)
from stepwell_queue.tcp.access import Access
from stepwell_runtime.codec import DecodingError, PayloadTooLarge, SerializationError
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
from stepwell_runtime.scope import RunFacts, StepScope

__all__ = [
    "Access",
    "Audit",
    "BlockingCalls",
    "BlockingRun",
    "BlockingStepwell",
    "BlockingWorker",
    "Call",
    "Cancelled",
    "ChildRun",
    "DeadlineExceeded",
    "DecodingError",
    "DefinitionError",
    "Diverged",
    "DurabilityError",
    "Event",
    "Finding",
    "History",
    "IdConflict",
    "Logger",
    "NotDurable",
    "OutsideWorkflow",
    "PayloadTooLarge",
    "RequestRefused",
    "Retention",
    "Retry",
    "RetryLater",
    "Run",
    "RunCancelled",
    "RunEnded",
    "RunFacts",
    "RunFailed",
    "RunHeld",
    "RunInfo",
    "RunNotFound",
    "RunStatus",
    "RunStuck",
    "SerializationError",
    "Signal",
    "SignalTimeout",
    "Step",
    "StepCall",
    "StepFailed",
    "StepInStep",
    "StepScope",
    "StepTimeout",
    "Stepwell",
    "StepwellError",
    "StoreRefused",
    "StoreUnavailable",
    "Task",
    "TaskCall",
    "Undo",
    "Worker",
    "WorkerCrashed",
    "WorkerInfo",
    "Workflow",
    "WorkflowCall",
    "compensate",
    "current_app",
    "current_run",
    "current_step",
    "get_logger",
    "is_replaying",
    "now",
    "parallel",
    "race",
    "random",
    "run",
    "sleep",
    "sleep_until",
    "start",
    "step",
    "task",
    "uuid4",
    "wait_for_signal",
    "workflow",
]

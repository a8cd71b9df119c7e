"""Durable workflows and job queues for Python."""

from stepwell._app.app import Stepwell
from stepwell._app.bulk import Bulk
from stepwell._app.dead_letters import DeadLetter
from stepwell._app.handles import Run
from stepwell._app.queues import QueueHandle, QueueInfo, Throughput
from stepwell._app.replays import Replayed
from stepwell._app.reports import LogLine, Progress
from stepwell._app.schedules import Schedule, ScheduleInfo, ScheduleTick
from stepwell._app.steering import PausedWorkflow, RefusedRun, SteeredMany
from stepwell._app.talking import HistoryEntry, StreamItem
from stepwell._app.views import Audit, Event, FailedAttempt, History, RunInfo, RunStatus
from stepwell._app.worker import Worker
from stepwell._batches import BatchTask
from stepwell._blocking.app import BlockingStepwell, BlockingWorker, run
from stepwell._blocking.calls import BlockingCalls
from stepwell._blocking.handles import BlockingRun
from stepwell._blocking.queues import BlockingQueueHandle
from stepwell._blocking.schedules import BlockingSchedule
from stepwell._blocks import deadline, rollback_scope
from stepwell._branches import parallel, race
from stepwell._calls import Call, StepCall, TaskCall, WorkflowCall
from stepwell._children import ChildRun
from stepwell._decorated import Step, Task, Workflow
from stepwell._decorators import step, task, workflow
from stepwell._evolution import continue_as_new, patched
from stepwell._log import Logger, get_logger
from stepwell._primitives import Undo, compensate, sleep, sleep_until, start
from stepwell._queues import Queue, QueueChanges, Rate
from stepwell._retention import Retention
from stepwell._schedules import schedule
from stepwell._scopes import (
    current_app,
    current_job,
    current_run,
    current_step,
    is_replaying,
    now,
    random,
    uuid4,
)
from stepwell._signals import Signal, wait_for_signal
from stepwell._talking import Ask, Question, emit, set_value, wait_for_ask
from stepwell._terms import StartOptions
from stepwell_queue.contract import Finding, WorkerInfo
from stepwell_queue.errors import (
    IdConflict,
    MalformedRequest,
    QueueFull,
    RequestRefused,
    RunEnded,
    RunNotFound,
    ScheduleNotFound,
    StepwellError,
    StoreRefused,
    StoreUnavailable,
)
from stepwell_queue.tcp.access import Access
from stepwell_runtime.codec import DecodingError, PayloadTooLarge, SerializationError
from stepwell_runtime.definitions import Retry
from stepwell_runtime.errors import (
    AskRefused,
    AskTimeout,
    BatchMismatch,
    Cancelled,
    ChildDied,
    DeadlineExceeded,
    DefinitionError,
    DependencyFailed,
    Diverged,
    DurabilityError,
    GiveUp,
    NotDurable,
    NoValue,
    OutsideWorkflow,
    RetryLater,
    RunCancelled,
    RunExpired,
    RunFailed,
    RunHeld,
    RunStuck,
    RunTerminated,
    SignalTimeout,
    StepFailed,
    StepInStep,
    StepTimeout,
    StreamFull,
    TaskTimeout,
    WorkerCrashed,
)
from stepwell_runtime.middleware import CallNext, Middleware, Outcome
from stepwell_runtime.retention import ArchivedRun
from stepwell_runtime.scope import JobScope, RunFacts

__all__ = [
    "Access",
    "ArchivedRun",
    "Ask",
    "AskRefused",
    "AskTimeout",
    "Audit",
    "BatchMismatch",
    "BatchTask",
    "BlockingCalls",
    "BlockingQueueHandle",
    "BlockingRun",
    "BlockingSchedule",
    "BlockingStepwell",
    "BlockingWorker",
    "Bulk",
    "Call",
    "CallNext",
    "Cancelled",
    "ChildDied",
    "ChildRun",
    "DeadLetter",
    "DeadlineExceeded",
    "DecodingError",
    "DefinitionError",
    "DependencyFailed",
    "Diverged",
    "DurabilityError",
    "Event",
    "FailedAttempt",
    "Finding",
    "GiveUp",
    "History",
    "HistoryEntry",
    "IdConflict",
    "JobScope",
    "LogLine",
    "Logger",
    "MalformedRequest",
    "Middleware",
    "NoValue",
    "NotDurable",
    "Outcome",
    "OutsideWorkflow",
    "PausedWorkflow",
    "PayloadTooLarge",
    "Progress",
    "Question",
    "Queue",
    "QueueChanges",
    "QueueFull",
    "QueueHandle",
    "QueueInfo",
    "Rate",
    "RefusedRun",
    "Replayed",
    "RequestRefused",
    "Retention",
    "Retry",
    "RetryLater",
    "Run",
    "RunCancelled",
    "RunEnded",
    "RunExpired",
    "RunFacts",
    "RunFailed",
    "RunHeld",
    "RunInfo",
    "RunNotFound",
    "RunStatus",
    "RunStuck",
    "RunTerminated",
    "Schedule",
    "ScheduleInfo",
    "ScheduleNotFound",
    "ScheduleTick",
    "SerializationError",
    "Signal",
    "SignalTimeout",
    "StartOptions",
    "SteeredMany",
    "Step",
    "StepCall",
    "StepFailed",
    "StepInStep",
    "StepTimeout",
    "Stepwell",
    "StepwellError",
    "StoreRefused",
    "StoreUnavailable",
    "StreamFull",
    "StreamItem",
    "Task",
    "TaskCall",
    "TaskTimeout",
    "Throughput",
    "Undo",
    "Worker",
    "WorkerCrashed",
    "WorkerInfo",
    "Workflow",
    "WorkflowCall",
    "compensate",
    "continue_as_new",
    "current_app",
    "current_job",
    "current_run",
    "current_step",
    "deadline",
    "emit",
    "get_logger",
    "is_replaying",
    "now",
    "parallel",
    "patched",
    "race",
    "random",
    "rollback_scope",
    "run",
    "schedule",
    "set_value",
    "sleep",
    "sleep_until",
    "start",
    "step",
    "task",
    "uuid4",
    "wait_for_ask",
    "wait_for_signal",
    "workflow",
]

"""`@workflow`, `@step` and `@task`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, ParamSpec, TypeVar, overload

from stepwell import _options as check
from stepwell._batches import BatchDecorator, BatchTask, batch_fields
from stepwell._calls import Call, is_call
from stepwell._decorated import (
    Step,
    StepDecorator,
    Task,
    TaskDecorator,
    UndoableDecorator,
    Workflow,
    WorkflowDecorator,
)
from stepwell._definitions import (
    KeyOf,
    checked,
    common_fields,
    executor_of,
    shown,
    terms_of,
    timeout_of,
)
from stepwell._queues import Queue
from stepwell._retention import Retention
from stepwell_runtime.definitions import (
    NO_RETRY,
    Retry,
    Seconds,
    StepDefinition,
    TaskDefinition,
    WorkflowDefinition,
    registry,
)
from stepwell_runtime.errors import DefinitionError

P = ParamSpec("P")
R = TypeVar("R")


@overload
def step(fn: Callable[P, Awaitable[R]], /) -> Step[P, R, Awaitable[R]]: ...
@overload
def step(fn: Callable[P, R], /) -> Step[P, R, R]: ...
@overload
def step(
    *,
    compensate: Callable[[R], Call[Any]],
    name: str | None = None,
    version: int = 1,
    retry: Retry | None = None,
    timeout: Seconds | None = None,
    on_cancel: Literal["finish", "interrupt"] = "finish",
    queue: str | Queue | None = None,
    executor: Literal["thread", "process"] = "thread",
) -> UndoableDecorator[R]: ...
@overload
def step(
    *,
    name: str | None = None,
    version: int = 1,
    retry: Retry | None = None,
    timeout: Seconds | None = None,
    on_cancel: Literal["finish", "interrupt"] = "finish",
    queue: str | Queue | None = None,
    executor: Literal["thread", "process"] = "thread",
) -> StepDecorator: ...
def step(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    compensate: Callable[[Any], Call[Any]] | None = None,
    name: str | None = None,
    version: int = 1,
    retry: Retry | None = None,
    timeout: Seconds | None = None,
    on_cancel: Literal["finish", "interrupt"] = "finish",
    queue: str | Queue | None = None,
    executor: Literal["thread", "process"] = "thread",
) -> Any:
    """Make a function a step: its result is journaled, so that it is not executed again.

    A plain function runs in a thread, or with `executor="process"` in a child process. `retry`:
    None = one attempt. `timeout`: seconds for one attempt; None = no limit. `compensate` makes the
    call that undoes it out of its result. `on_cancel`: "finish" lets a step that has begun end,
    "interrupt" stops it. `queue`: executed by a worker that serves this queue; None = in the
    worker that holds the run. `name`: None = the qualified name. Raises DefinitionError for what
    cannot be a step.
    """

    def decorate(fn: Callable[..., Any]) -> Step[..., Any, Any]:
        definition = StepDefinition(
            **common_fields(fn, "step", name, version, queue),
            executor=executor_of("step", fn, executor),
            retry=checked("step", fn, check.retry, retry) or NO_RETRY,
            timeout=timeout_of("step", fn, timeout),
            compensate=undo_maker(fn, compensate),
            on_cancel=checked(
                "step", fn, check.one_of, on_cancel, "on_cancel", ("finish", "interrupt")
            ),
        )
        if definition.queue is not None:
            registry.add(definition)
        return Step(definition)

    return decorate if fn is None else decorate(fn)


@overload
def task(fn: Callable[P, Awaitable[R]], /) -> Task[P, R, Awaitable[R]]: ...
@overload
def task(fn: Callable[P, R], /) -> Task[P, R, R]: ...
@overload
def task(
    *,
    batch: int,
    linger: Seconds = 0.0,
    name: str | None = None,
    version: int = 1,
    queue: str | Queue | None = None,
    retry: Retry | None = None,
    timeout: Seconds | None = None,
    deadline: Seconds | None = None,
    expires: Seconds | None = None,
    priority: int = 0,
    key: KeyOf | None = None,
    retention: Retention | None = None,
    max_crashes: int = 3,
    executor: Literal["thread", "process"] = "thread",
) -> BatchDecorator: ...
@overload
def task(
    *,
    name: str | None = None,
    version: int = 1,
    queue: str | Queue | None = None,
    retry: Retry | None = None,
    timeout: Seconds | None = None,
    deadline: Seconds | None = None,
    expires: Seconds | None = None,
    priority: int = 0,
    key: KeyOf | None = None,
    retention: Retention | None = None,
    max_crashes: int = 3,
    executor: Literal["thread", "process"] = "thread",
) -> TaskDecorator: ...
def task(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    version: int = 1,
    queue: str | Queue | None = None,
    retry: Retry | None = None,
    timeout: Seconds | None = None,
    deadline: Seconds | None = None,
    expires: Seconds | None = None,
    priority: int = 0,
    key: KeyOf | None = None,
    retention: Retention | None = None,
    max_crashes: int = 3,
    executor: Literal["thread", "process"] = "thread",
    batch: int | None = None,
    linger: Seconds = 0.0,
) -> Any:
    """Make a function a task: a plain queue job.

    A plain function runs in a thread, or with `executor="process"` in a child process. `queue`:
    None = "default". `retry`: None = one attempt. `timeout`: seconds for one attempt, `deadline`:
    seconds in total from its start; None = no limit. `expires`: seconds within which it must be
    started, or it ends as expired; None = any. A higher `priority` goes first. `key`: a function of
    its arguments that says whose limits, rates and turns in the queue it shares; None = nobody's.
    `retention`: of its ended runs, in all versions; None = as its queue or the app says.
    `max_crashes`: how many workers may die in it before it fails. `batch`: the function gets a list
    of at most so many items, one of each call, and returns a list of results; None = one call at a
    time. `linger`: seconds that a batch waits to become full; 0 = it begins with what is there.
    `name`: None = the qualified name. Raises DefinitionError for what cannot be a task.
    """

    def decorate(fn: Callable[..., Any]) -> Task[..., Any, Any]:
        fields = common_fields(fn, "task", name, version, queue)
        if batch is not None:
            fields = batch_fields(fn, batch, linger, max_crashes, fields)
        elif linger != 0.0:
            raise DefinitionError(f"@task {shown(fn)}: linger= is for batches: give it batch=, too")
        definition = TaskDefinition(
            **fields,
            executor=executor_of("task", fn, executor),
            retry=checked("task", fn, check.retry, retry) or NO_RETRY,
            timeout=timeout_of("task", fn, timeout),
            deadline=timeout_of("task", fn, deadline, "deadline"),
            **terms_of("task", fn, expires, priority, key, retention, fields["name"]),
            max_crashes=checked("task", fn, check.whole, max_crashes, "max_crashes", 1),
        )
        registry.add(definition)
        return Task(definition) if batch is None else BatchTask[Any, Any, Any](definition)

    return decorate if fn is None else decorate(fn)


@overload
def workflow(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    version: int = 1,
    queue: str | Queue | None = None,
    on_failure: Literal["rollback", "hold"] = "rollback",
    deadline: Seconds | None = None,
    expires: Seconds | None = None,
    priority: int = 0,
    key: KeyOf | None = None,
    retention: Retention | None = None,
    max_crashes: int = 3,
) -> WorkflowDecorator: ...
def workflow(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    version: int = 1,
    queue: str | Queue | None = None,
    on_failure: Literal["rollback", "hold"] = "rollback",
    deadline: Seconds | None = None,
    expires: Seconds | None = None,
    priority: int = 0,
    key: KeyOf | None = None,
    retention: Retention | None = None,
    max_crashes: int = 3,
) -> Any:
    """Make an `async def` a workflow: deterministic code that resumes where it stopped.

    `queue`: None = "default". `on_failure`: "rollback" runs the undos, "hold" waits for an operator
    first. `deadline`: seconds in total from its start; None = no limit. `expires`: seconds within
    which it must be started, or it ends as expired; None = any. A higher `priority` goes first.
    `key`: a function of its arguments that says whose limits, rates and turns in the queue it
    shares; None = nobody's. `retention`: of its ended runs, in all versions; None = as its queue or
    the app says. `max_crashes`: how many workers in a row may die without progress
    before the steps that were running fail with WorkerCrashed.
    `name`: None = the qualified name. Raises DefinitionError for what cannot be a workflow.
    """

    def decorate(fn: Callable[..., Any]) -> Workflow[..., Any]:
        fields = common_fields(fn, "workflow", name, version, queue)
        definition = WorkflowDefinition(
            **fields,
            on_failure=checked(
                "workflow", fn, check.one_of, on_failure, "on_failure", ("rollback", "hold")
            ),
            deadline=timeout_of("workflow", fn, deadline, "deadline"),
            **terms_of("workflow", fn, expires, priority, key, retention, fields["name"]),
            max_crashes=checked("workflow", fn, check.whole, max_crashes, "max_crashes", 1),
        )
        registry.add(definition)
        return Workflow(definition)

    return decorate if fn is None else decorate(fn)


def undo_maker(
    fn: Callable[..., Any], compensate: Callable[[Any], Call[Any]] | None
) -> Callable[[Any], Call[Any]] | None:
    if compensate is None:
        return None
    if not callable(compensate):
        raise DefinitionError(
            f"@step {shown(fn)}: compensate= takes a step, or a function of the result that "
            f"returns a call, not {compensate!r}"
        )

    def make(result: Any) -> Call[Any]:
        call: Any = compensate(result)
        if not is_call(call):
            raise TypeError(
                f"compensate= of step {shown(fn)} must return a call such as undo(result), "
                f"not {call!r}"
            )
        return call.hand_on()

    return make

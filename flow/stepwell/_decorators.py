"""`@workflow`, `@step` and `@task`, and the objects they make of functions."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from types import MethodType
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, Self, cast, overload

from typing_extensions import TypeVar

from stepwell import _options as check
from stepwell._calls import Call, StepCall, TaskCall, WorkflowCall
from stepwell._definitions import checked, common_fields, shown, timeout_of
from stepwell_runtime.definitions import (
    NO_RETRY,
    Definition,
    Retry,
    Seconds,
    StepDefinition,
    TaskDefinition,
    WorkflowDefinition,
    registry,
)
from stepwell_runtime.errors import DefinitionError

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
F_co = TypeVar("F_co", covariant=True, default=Any)


class _Decorated:
    """What steps, tasks and workflows share: they look like their function, and calling them makes a call."""

    definition: Definition
    __name__: str
    __qualname__: str

    def __init__(self, definition: Definition) -> None:
        functools.update_wrapper(cast("Callable[..., Any]", self), definition.fn)
        self.definition = definition

    @property
    def name(self) -> str:
        """The durable name."""
        return self.definition.name

    @property
    def version(self) -> int:
        """The durable version."""
        return self.definition.version

    def __repr__(self) -> str:
        return f"<{self.definition.word} {self.definition.name} from {self.definition.place}>"


class Step(_Decorated, Generic[P, R_co, F_co]):
    """A side effect whose result is journaled. Calling it makes a call and runs nothing."""

    definition: StepDefinition

    @property
    def fn(self) -> Callable[P, F_co]:
        """The function that was decorated."""
        return self.definition.fn

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> StepCall[R_co]:
        definition = self.definition
        arity = definition.plain_arity
        if kwargs or arity is None or not arity[0] <= len(args) <= arity[1]:
            definition.bind(args, kwargs)
        return StepCall(definition, args, kwargs)

    @overload
    def __get__(self, obj: None, owner: type[Any], /) -> Self: ...
    @overload
    def __get__(
        self: Callable[Concatenate[T, Q], S], obj: T, owner: type[Any], /
    ) -> Callable[Q, S]: ...
    def __get__(self, obj: Any, owner: type[Any], /) -> Any:
        return self if obj is None else MethodType(self, obj)


class Task(_Decorated, Generic[P, R_co, F_co]):
    """A plain queue job. Calling it makes a call and runs nothing."""

    definition: TaskDefinition

    @property
    def fn(self) -> Callable[P, F_co]:
        """The function that was decorated."""
        return self.definition.fn

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> TaskCall[R_co]:
        definition = self.definition
        arity = definition.plain_arity
        if kwargs or arity is None or not arity[0] <= len(args) <= arity[1]:
            definition.bind(args, kwargs)
        return TaskCall(definition, args, kwargs)

    @overload
    def __get__(self, obj: None, owner: type[Any], /) -> Self: ...
    @overload
    def __get__(
        self: Callable[Concatenate[T, Q], S], obj: T, owner: type[Any], /
    ) -> Callable[Q, S]: ...
    def __get__(self, obj: Any, owner: type[Any], /) -> Any:
        return self if obj is None else MethodType(self, obj)


class Workflow(_Decorated, Generic[P, R_co]):
    """Deterministic orchestration of steps. Calling it makes a call and runs nothing."""

    definition: WorkflowDefinition

    @property
    def fn(self) -> Callable[P, Coroutine[Any, Any, R_co]]:
        """The function that was decorated."""
        return self.definition.fn

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> WorkflowCall[R_co]:
        definition = self.definition
        arity = definition.plain_arity
        if kwargs or arity is None or not arity[0] <= len(args) <= arity[1]:
            definition.bind(args, kwargs)
        return WorkflowCall(definition, args, kwargs)

    @overload
    def __get__(self, obj: None, owner: type[Any], /) -> Self: ...
    @overload
    def __get__(
        self: Callable[Concatenate[T, Q], S], obj: T, owner: type[Any], /
    ) -> Callable[Q, S]: ...
    def __get__(self, obj: Any, owner: type[Any], /) -> Any:
        return self if obj is None else MethodType(self, obj)


class StepDecorator(Protocol):
    """What `step(…)` with options returns."""

    @overload
    def __call__(self, fn: Callable[P, Awaitable[R]], /) -> Step[P, R, Awaitable[R]]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Step[P, R, R]: ...


class UndoableDecorator(Protocol[R]):
    """What `step(compensate=…)` returns: the undo takes what the step returns."""

    @overload
    def __call__(self, fn: Callable[P, Awaitable[R]], /) -> Step[P, R, Awaitable[R]]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Step[P, R, R]: ...


class TaskDecorator(Protocol):
    """What `task(…)` with options returns."""

    @overload
    def __call__(self, fn: Callable[P, Awaitable[R]], /) -> Task[P, R, Awaitable[R]]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R, R]: ...


class WorkflowDecorator(Protocol):
    """What `workflow(…)` with options returns."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...


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
    queue: str | None = None,
) -> UndoableDecorator[R]: ...
@overload
def step(
    *,
    name: str | None = None,
    version: int = 1,
    retry: Retry | None = None,
    timeout: Seconds | None = None,
    on_cancel: Literal["finish", "interrupt"] = "finish",
    queue: str | None = None,
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
    queue: str | None = None,
) -> Any:
    """Make a function a step: its result is journaled, so that it is not executed again. A plain one runs in a thread.

    `retry`: None = one attempt. `timeout`: seconds for one attempt; None = no limit. `compensate` makes the call that
    undoes it out of its result. `on_cancel`: "finish" lets a step that has begun end, "interrupt" stops it.
    `queue`: executed by a worker that serves this queue; None = in the worker that holds the run.
    `name`: None = the qualified name. Raises DefinitionError for what cannot be a step.
    """

    def decorate(fn: Callable[..., Any]) -> Step[..., Any, Any]:
        definition = StepDefinition(
            **common_fields(fn, "step", name, version, queue),
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
    name: str | None = None,
    version: int = 1,
    queue: str | None = None,
    retry: Retry | None = None,
    timeout: Seconds | None = None,
    deadline: Seconds | None = None,
    max_crashes: int = 3,
) -> TaskDecorator: ...
def task(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    version: int = 1,
    queue: str | None = None,
    retry: Retry | None = None,
    timeout: Seconds | None = None,
    deadline: Seconds | None = None,
    max_crashes: int = 3,
) -> Any:
    """Make a function a task: a plain queue job. A plain one runs in a thread.

    `queue`: None = "default". `retry`: None = one attempt. `timeout`: seconds for one attempt, `deadline`: seconds in
    total from its start; None = no limit. `max_crashes`: how many workers may die in it before it fails.
    `name`: None = the qualified name. Raises DefinitionError for what cannot be a task.
    """

    def decorate(fn: Callable[..., Any]) -> Task[..., Any, Any]:
        definition = TaskDefinition(
            **common_fields(fn, "task", name, version, queue),
            retry=checked("task", fn, check.retry, retry) or NO_RETRY,
            timeout=timeout_of("task", fn, timeout),
            deadline=timeout_of("task", fn, deadline, "deadline"),
            max_crashes=checked("task", fn, check.whole, max_crashes, "max_crashes", 1),
        )
        registry.add(definition)
        return Task(definition)

    return decorate if fn is None else decorate(fn)


@overload
def workflow(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    version: int = 1,
    queue: str | None = None,
    on_failure: Literal["rollback", "hold"] = "rollback",
    deadline: Seconds | None = None,
    max_crashes: int = 3,
) -> WorkflowDecorator: ...
def workflow(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    version: int = 1,
    queue: str | None = None,
    on_failure: Literal["rollback", "hold"] = "rollback",
    deadline: Seconds | None = None,
    max_crashes: int = 3,
) -> Any:
    """Make an `async def` a workflow: deterministic code that resumes where it stopped.

    `queue`: None = "default". `on_failure`: "rollback" runs the undos, "hold" waits for an operator first.
    `deadline`: seconds in total from its start; None = no limit. `max_crashes`: how many workers in a row may die
    without progress before the steps that were running fail with WorkerCrashed.
    `name`: None = the qualified name. Raises DefinitionError for what cannot be a workflow.
    """

    def decorate(fn: Callable[..., Any]) -> Workflow[..., Any]:
        definition = WorkflowDefinition(
            **common_fields(fn, "workflow", name, version, queue),
            on_failure=checked(
                "workflow", fn, check.one_of, on_failure, "on_failure", ("rollback", "hold")
            ),
            deadline=timeout_of("workflow", fn, deadline, "deadline"),
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
            f"@step {shown(fn)}: compensate= takes a step, or a function of the result that returns a call, "
            f"not {compensate!r}"
        )

    def make(result: Any) -> Call[Any]:
        call: Any = compensate(result)
        if not isinstance(call, Call):
            raise TypeError(
                f"compensate= of step {shown(fn)} must return a call such as undo(result), not {call!r}"
            )
        return cast("Call[Any]", call).hand_on()

    return make

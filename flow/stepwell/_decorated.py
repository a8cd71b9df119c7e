"""`@workflow`, `@step` and `@task`, and the objects they make of functions."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, cast, overload

from typing_extensions import TypeVar

from stepwell._calls import StepCall, TaskCall, WorkflowCall
from stepwell_runtime.definitions import (
    Definition,
    StepDefinition,
    TaskDefinition,
    WorkflowDefinition,
)

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
F_co = TypeVar("F_co", covariant=True, default=Any)


class Decorated:
    """What steps, tasks and workflows share: they look like their function."""

    definition: Any  # a Definition; each kind of decorated function says which
    __name__: str
    __qualname__: str

    def __init__(self, definition: Definition) -> None:
        functools.update_wrapper(cast("Callable[..., Any]", self), definition.fn)
        self.definition = definition
        # How many positional arguments fit without binding; none where keywords are needed.
        self._fewest, self._most = definition.plain_arity or (1, 0)

    @property
    def name(self) -> str:
        """The durable name."""
        return str(self.definition.name)

    @property
    def version(self) -> int:
        """The durable version."""
        return int(self.definition.version)

    def __repr__(self) -> str:
        return f"<{self.definition.word} {self.definition.name} from {self.definition.place}>"


class Step(Decorated, Generic[P, R_co, F_co]):
    """A side effect whose result is journaled. Calling it makes a call and runs nothing."""

    definition: StepDefinition

    @property
    def fn(self) -> Callable[P, F_co]:
        """The function that was decorated."""
        return self.definition.fn

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> StepCall[R_co]:
        definition = self.definition
        if kwargs or not self._fewest <= len(args) <= self._most:
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


class Task(Decorated, Generic[P, R_co, F_co]):
    """A plain queue job. Calling it makes a call and runs nothing."""

    definition: TaskDefinition

    @property
    def fn(self) -> Callable[P, F_co]:
        """The function that was decorated."""
        return self.definition.fn

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> TaskCall[R_co]:
        definition = self.definition
        if kwargs or not self._fewest <= len(args) <= self._most:
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


class Workflow(Decorated, Generic[P, R_co]):
    """Deterministic orchestration of steps. Calling it makes a call and runs nothing."""

    definition: WorkflowDefinition

    @property
    def fn(self) -> Callable[P, Coroutine[Any, Any, R_co]]:
        """The function that was decorated."""
        return self.definition.fn

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> WorkflowCall[R_co]:
        definition = self.definition
        if kwargs or not self._fewest <= len(args) <= self._most:
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

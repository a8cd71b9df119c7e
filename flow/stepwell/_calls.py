"""Calls: a decorated function bound to its arguments. Who runs a call decides how."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Generator
from dataclasses import replace
from types import CodeType
from typing import Any, ClassVar, Generic, Literal, Self, TypeGuard

from anyio import to_thread
from typing_extensions import TypeVar, Unpack

from stepwell import _options as check
from stepwell._queues import Queue, queue_options
from stepwell._terms import StartOptions, checked, consistent, parent_cancel
from stepwell_runtime.core.commands import (
    CallCommand,
    ChildCommand,
    Command,
    JoinCommand,
    StartCommand,
    StepCommand,
)
from stepwell_runtime.definitions import (
    DEFAULT_OPTIONS,
    CallOptions,
    Definition,
    Retry,
    Seconds,
    StepDefinition,
    TaskDefinition,
    WorkflowDefinition,
)
from stepwell_runtime.errors import OutsideWorkflow, StepInStep
from stepwell_runtime.scope import JobScope, WorkflowScope, scope_here

R_co = TypeVar("R_co", covariant=True)


class Call(CallCommand, Generic[R_co]):
    """A decorated function bound to its arguments; nothing has run yet.

    Awaited in a workflow, it is itself the command that its driver gets.
    """

    # `_built`: where workflow code built it (code, instruction), until it is awaited or handed on.
    __slots__ = ("_built",)

    definition: Any  # a Definition; each kind of call says which
    word: ClassVar[str] = "call"

    def __init__(
        self,
        definition: Definition,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: CallOptions = DEFAULT_OPTIONS,
    ) -> None:
        self.definition = definition
        self.args = args
        self.kwargs = kwargs
        self.options = options
        self._built: tuple[CodeType, int] | None
        scope = scope_here()
        if scope is None or isinstance(scope, JobScope):
            self._built = None
        else:
            frame = sys._getframe(2)  # past the decorated function (or with_options): the user's
            self._built = frame.f_code, frame.f_lasti

    def __await__(self) -> Generator[Any, Any, R_co]:
        raise NotImplementedError

    def __repr__(self) -> str:
        values = [repr(value) for value in self.args]
        values += [f"{name}={value!r}" for name, value in self.kwargs.items()]
        return f"<{self.word} call {self.definition.name}({', '.join(values)})>"

    def __del__(self) -> None:
        if self._built is not None:
            warn_forgotten(self, self._built)

    def hand_on(self) -> Self:
        """Say that someone will see to this call, so that it does not warn."""
        self._built = None
        return self

    def replaced(self, changes: dict[str, Any]) -> CallOptions:
        """Return the options with what is not None in `changes`, for a twin in its place."""
        self._built = None
        return replace(
            self.options, **{name: value for name, value in changes.items() if value is not None}
        )


hears_forgotten: list[Callable[[Call[Any], str], None]] = []
"""Who is told of a call that was never awaited, and where it was built, in place of a warning."""


def warn_forgotten(call: Call[Any], built: tuple[CodeType, int]) -> None:
    scope = scope_here()
    if scope is not None and not isinstance(scope, JobScope) and scope.closing:
        return  # the workflow is put aside, and will build the call again when it goes on
    code, instruction = built
    if hears_forgotten:
        hears_forgotten[-1](call, f"{code.co_filename}:{line_of(code, instruction)}")
        return
    warnings.warn_explicit(
        f"the {call.word} call {call.definition.name}(…) was built in a workflow and never "
        "awaited: put await before it, or hand it to parallel, race, compensate or start",
        RuntimeWarning,
        code.co_filename,
        line_of(code, instruction),
    )


def is_call(value: object) -> TypeGuard[Call[Any]]:
    return isinstance(value, Call)


def line_of(code: CodeType, instruction: int) -> int:
    """Return the line of an instruction; worked out only when it is needed, which is seldom."""
    for index, position in enumerate(code.co_positions()):
        if index == instruction // 2 and position[0] is not None:
            return position[0]
    return code.co_firstlineno


class StepCall(Call[R_co], StepCommand):
    """A call of a step. Awaited in a workflow it is durable, elsewhere it runs the function."""

    __slots__ = ()
    definition: StepDefinition
    word = "step"

    def __await__(self) -> Generator[Any, Any, R_co]:
        self._built = None
        scope = scope_here()
        if scope is None or isinstance(scope, JobScope):
            return (yield from run_plainly(self, scope).__await__())
        if scope.closing:
            scope.refuse()
        self.handling = sys.exception()
        result: R_co = yield self
        return result

    def with_options(
        self,
        *,
        timeout: Seconds | None = None,
        retry: Retry | None = None,
        queue: str | Queue | None = None,
        priority: int | None = None,
        key: str | None = None,
    ) -> Self:
        """Return this call with other options; None leaves what the decorator says.

        `timeout` of one attempt is in seconds. `queue`, `priority` (higher goes first) and `key`
        (whose limits, rates and turns in the queue it shares) are for steps with a queue.
        """
        given = {"queue": queue, "priority": priority, "key": key}
        if self.definition.queue is None and any(one is not None for one in given.values()):
            name = next(name for name, one in given.items() if one is not None)
            raise ValueError(
                f"step {self.definition.name!r} has no queue of its own, so other workers do not "
                f"know it: declare it with @step(queue=…), then with_options({name}=…) can choose "
                "another one"
            )
        options = self.replaced(
            {
                "timeout": check.positive_seconds(timeout, "timeout"),
                "retry": check.retry(retry),
                "priority": check.priority(priority),
                "key": check.text(key, "key"),
                **queue_options(queue),
            }
        )
        return type(self)(self.definition, self.args, self.kwargs, options)


class TaskCall(Call[R_co], ChildCommand):
    """A call of a task. Awaited in a workflow it is a child run, elsewhere it runs the function."""

    __slots__ = ()
    definition: TaskDefinition
    word = "task"

    def __await__(self) -> Generator[Any, Any, R_co]:
        self._built = None
        scope = scope_here()
        if scope is None or isinstance(scope, JobScope):
            return (yield from run_plainly(self, scope).__await__())
        return (yield from await_child(self, scope))

    def with_options(
        self,
        *,
        timeout: Seconds | None = None,
        deadline: Seconds | None = None,
        retry: Retry | None = None,
        on_parent_cancel: Literal["cancel", "leave"] | None = None,
        **options: Unpack[StartOptions],
    ) -> Self:
        """Return this call with other options; None leaves what the decorator says.

        `timeout` of one attempt and `deadline` in total are in seconds. `on_parent_cancel`: what
        becomes of it, as a child, when what waits for it, or has started it, is cancelled; None =
        "cancel" if it is awaited, "leave" if it is started. For the others see StartOptions.
        """
        if timeout is not None and self.definition.batch is not None:
            raise ValueError(
                f"task {self.definition.name!r} is executed in batches, and a timeout is for a "
                "whole batch: set it with @task(timeout=…), or give this call a deadline="
            )
        changed = self.replaced(
            {
                "timeout": check.positive_seconds(timeout, "timeout"),
                "deadline": check.positive_seconds(deadline, "deadline"),
                "retry": check.retry(retry),
                "on_parent_cancel": parent_cancel(on_parent_cancel),
                **checked(options),
            }
        )
        return type(self)(self.definition, self.args, self.kwargs, consistent(changed))


class WorkflowCall(Call[R_co], ChildCommand):
    """A call of a workflow. Awaited in a workflow it is a child run; elsewhere an app starts it."""

    __slots__ = ()
    definition: WorkflowDefinition
    word = "workflow"

    def __await__(self) -> Generator[Any, Any, R_co]:
        self._built = None
        scope = scope_here()
        if scope is None or isinstance(scope, JobScope):
            raise OutsideWorkflow(
                f"await {self.definition.name}(…)",
                "use `await app.start(…)`, or `await app.run(…)` to execute it here",
            )
        return (yield from await_child(self, scope))

    def with_options(
        self,
        *,
        deadline: Seconds | None = None,
        on_parent_cancel: Literal["cancel", "leave"] | None = None,
        **options: Unpack[StartOptions],
    ) -> Self:
        """Return this call with other options; None leaves what the decorator says.

        `deadline` in total is in seconds. `on_parent_cancel`: what becomes of it, as a child, when
        what waits for it, or has started it, is cancelled; None = "cancel" if it is awaited,
        "leave" if it is started. For the others see StartOptions.
        """
        changed = self.replaced(
            {
                "deadline": check.positive_seconds(deadline, "deadline"),
                "on_parent_cancel": parent_cancel(on_parent_cancel),
                **checked(options),
            }
        )
        return type(self)(self.definition, self.args, self.kwargs, consistent(changed))


def await_child(call: Call[R_co], scope: WorkflowScope) -> Generator[Command, Any, R_co]:
    if scope.closing:
        scope.refuse()
    if call.options.on_parent_cancel == "leave":
        return (yield from _left(call).__await__())
    call.handling = sys.exception()
    result: R_co = yield call
    return result


async def _left(call: Call[R_co]) -> R_co:
    """Wait for a child that nobody's cancellation reaches: it is detached, and joined."""
    id = await StartCommand(call.definition, call.args, call.kwargs, call.options)
    found: R_co = await JoinCommand(id, call.definition.result_type)
    return found


async def run_plainly(call: Call[R_co], scope: JobScope | None) -> R_co:
    """Run the function of a step or task call here: in a step, or outside of any run."""
    definition: Definition = call.definition
    if scope is None:
        refuse_in_discarded_workflow()
    elif isinstance(definition, StepDefinition):
        refuse_run_of_its_own(definition, scope)
    result: R_co
    if isinstance(definition, TaskDefinition) and definition.batch is not None:
        from stepwell_runtime.batch import of_one

        result = of_one(definition, await run_function(definition, ([*call.args],), {}))
    else:
        result = await run_function(definition, call.args, call.kwargs)
    return result


async def run_function(
    definition: Definition, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if definition.is_async:
        return await definition.fn(*args, **kwargs)
    outcome: Any = await to_thread.run_sync(functools.partial(definition.fn, *args, **kwargs))
    return await outcome if inspect.isawaitable(outcome) else outcome


def refuse_in_discarded_workflow() -> None:
    # A workflow closed by the garbage collector runs its `finally` outside of any scope:
    # nothing may execute there.
    error = sys.exception()
    if isinstance(error, GeneratorExit):
        raise error


def refuse_run_of_its_own(definition: StepDefinition, scope: JobScope) -> None:
    option = (
        "queue="
        if definition.queue is not None
        else "compensate="
        if definition.compensate is not None
        else None
    )
    if option is not None:
        raise StepInStep(
            f"step {definition.name!r} has {option}, which needs a run, but it was awaited inside "
            f"{scope.name!r}, where a step is a plain function: await it in the workflow, or take "
            "the option away"
        )

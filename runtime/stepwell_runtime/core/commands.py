"""What workflow code yields to its driver. Nothing else may be yielded."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Any, Literal

from stepwell_runtime.definitions import CallOptions, Definition, StepDefinition

if TYPE_CHECKING:
    from stepwell_runtime.core.scopes import UndoScope


class Command:
    """A durable operation, asked for by `await`; the driver resumes the branch with its outcome.

    `handling` is the exception that is being handled where the await stands: what is asked for
    while a cancellation is being handled is exempt from it.
    """

    __slots__ = ("handling",)
    handling: BaseException | None
    always = False  # a cancelled branch may ask for it, too

    def __await__(self) -> Generator[Command, Any, Any]:
        self.handling = sys.exception()
        return (yield self)


class CallCommand(Command):
    """A call of a step, task or workflow."""

    __slots__ = ("args", "definition", "kwargs", "options")

    def __init__(
        self,
        definition: Definition,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: CallOptions,
    ) -> None:
        self.definition, self.args, self.kwargs, self.options = definition, args, kwargs, options


class StepCommand(CallCommand):
    """Execute a step.

    On the queue `options.queue or definition.queue` if there is one, else here.
    """

    __slots__ = ()
    definition: StepDefinition


class ChildCommand(CallCommand):
    """Run a workflow or task as a child and wait for its outcome."""

    __slots__ = ()


class StartCommand(CallCommand):
    """Start a detached child; resumed with its run id (str)."""

    __slots__ = ()


class SleepCommand(Command):
    """Wait `delay` seconds from now, or until the wall time `until`."""

    __slots__ = ("delay", "until")

    def __init__(self, delay: float | None, until: float | None) -> None:
        self.delay, self.until = delay, until


NO_DEFAULT: Any = object()


class WaitCommand(Command):
    """Wait for a signal.

    Resumed with its value, decoded to `type`, or with `default`, or SignalTimeout.
    """

    __slots__ = ("default", "name", "timeout", "type")

    def __init__(
        self, name: str, type: Any, timeout: float | None, default: Any = NO_DEFAULT
    ) -> None:
        self.name, self.type, self.timeout, self.default = name, type, timeout, default


class QuestionCommand(WaitCommand):
    """Wait for a question; resumed with its uid and its payload, or AskTimeout."""

    __slots__ = ()


class GroupCommand(Command):
    """Run awaitables as branches.

    `parallel` resumes with a list of outcomes, `race` with (index, value).
    """

    __slots__ = ("branches", "limit", "mode", "return_exceptions")

    def __init__(
        self,
        mode: Literal["parallel", "race"],
        branches: tuple[Awaitable[Any], ...],
        limit: int | None = None,
        return_exceptions: bool = False,
    ) -> None:
        self.mode, self.branches, self.limit, self.return_exceptions = (
            mode,
            branches,
            limit,
            return_exceptions,
        )


class JoinCommand(Command):
    """Wait for the outcome of a detached child."""

    __slots__ = ("result_type", "run_id")

    def __init__(self, run_id: str, result_type: Any) -> None:
        self.run_id, self.result_type = run_id, result_type


class DeadlineCommand(Command):
    """Begin a block that is cancelled after so many seconds; resumed at once."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class UnwindCommand(Command):
    """Run the undos of a scope; resumed with the errors of those that failed."""

    __slots__ = ("scope",)
    always = True

    def __init__(self, scope: UndoScope) -> None:
        self.scope = scope

"""What a workflow may wait for, and what it may note."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from datetime import datetime
from typing import Any, Literal, TypeVar, cast, overload

from stepwell import _options as check
from stepwell._calls import Call, StepCall, TaskCall, WorkflowCall
from stepwell._children import ChildRun
from stepwell._decorators import Step, Task, Workflow
from stepwell._scopes import enter_workflow
from stepwell_runtime.core.commands import GroupCommand, SleepCommand, StartCommand
from stepwell_runtime.definitions import Seconds, seconds
from stepwell_runtime.scope import UndoEntry

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")
T6 = TypeVar("T6")
R = TypeVar("R")


class Undo:
    """A registered undo."""

    __slots__ = ("_entry",)

    def __init__(self, entry: UndoEntry) -> None:
        self._entry = entry

    def discard(self) -> None:
        """Forget it: past the point of no return. Discarding twice changes nothing."""
        enter_workflow("Undo.discard()", "return, and let the workflow discard it")
        self._entry.discard()


async def sleep(delay: Seconds, /) -> None:
    """Wait `delay` seconds, durably: the end is fixed when it is first reached. Raises OutsideWorkflow."""
    enter_workflow("sleep()", "use asyncio.sleep() or time.sleep()")
    await SleepCommand(seconds(delay, "sleep()"), None)


async def sleep_until(when: datetime, /) -> None:
    """Wait until an aware datetime; a past one is over at once. Raises OutsideWorkflow."""
    enter_workflow("sleep_until()", "use asyncio.sleep() or time.sleep()")
    await SleepCommand(None, check.wall_time(when, "sleep_until()"))


def compensate(call: Call[Any], /) -> Undo:
    """Register the call that undoes what was done, should the run fail or be cancelled; undos run newest first.

    Raises OutsideWorkflow.
    """
    scope = enter_workflow(
        "compensate()", "register the undo in the workflow, or with @step(compensate=…)"
    )
    given: Any = call
    if not isinstance(given, (StepCall, TaskCall, WorkflowCall)):
        raise TypeError(
            f"compensate() takes a call, such as refund(receipt), not {described(given)}"
        )
    return Undo(scope.compensate(cast("Call[Any]", given).hand_on()))


async def start(call: WorkflowCall[R] | TaskCall[R], /, *, id: str | None = None) -> ChildRun[R]:
    """Start a detached child, which the parent's cancel does not touch; return its handle at once.

    `id`: None = derived from this run and the place. Raises OutsideWorkflow, and IdConflict at its await.
    """
    enter_workflow("start()", "use `await current_app().start(…)` or `.enqueue(…)`")
    given: Any = call
    if not isinstance(given, (WorkflowCall, TaskCall)):
        raise TypeError(f"start() takes a call of a workflow or task, not {described(given)}")
    chosen: WorkflowCall[R] | TaskCall[R] = call if id is None else call.with_options(id=id)
    chosen.hand_on()
    started: str = await StartCommand(chosen.definition, chosen.args, chosen.kwargs, chosen.options)
    return ChildRun(started)


def branches(what: str, given: tuple[Any, ...]) -> tuple[Awaitable[Any], ...]:
    """Check the arguments of `parallel` and `race`; what is refused leaves no warning about its coroutines."""
    try:
        seen: set[int] = set()
        for position, item in enumerate(given, 1):
            if isinstance(item, Call):
                continue
            if not inspect.iscoroutine(item):
                raise TypeError(
                    f"{what} takes calls and coroutines; argument {position} is {described(item)}"
                )
            if id(item) in seen:
                raise ValueError(
                    f"{what} got the same coroutine twice (argument {position}): call the function twice"
                )
            seen.add(id(item))
    except (TypeError, ValueError):
        for item in given:
            if inspect.iscoroutine(item):
                item.close()
            elif isinstance(item, Call):
                cast("Call[Any]", item).hand_on()
        raise
    for item in given:
        if isinstance(item, Call):
            cast("Call[Any]", item).hand_on()
    return given


def described(value: Any) -> str:
    if isinstance(value, (Step, Task, Workflow)):
        decorated = cast("Step[..., Any]", value)
        return (
            f"the {decorated.definition.word} {decorated.name} itself: call it, {decorated.name}(…)"
        )
    if inspect.isfunction(value):
        return f"the function {value.__qualname__} itself: call it, {value.__qualname__}(…)"
    if inspect.isgenerator(value) or isinstance(value, (list, tuple, set)):
        return f"a {type(value).__name__}: unpack it with *"  # pyright: ignore[reportUnknownArgumentType]  # any contents
    return repr(value)


@overload
async def parallel(
    c1: Awaitable[T1], /, *, limit: int | None = None, return_exceptions: Literal[False] = False
) -> tuple[T1]: ...
@overload
async def parallel(
    c1: Awaitable[T1],
    c2: Awaitable[T2],
    /,
    *,
    limit: int | None = None,
    return_exceptions: Literal[False] = False,
) -> tuple[T1, T2]: ...
@overload
async def parallel(
    c1: Awaitable[T1],
    c2: Awaitable[T2],
    c3: Awaitable[T3],
    /,
    *,
    limit: int | None = None,
    return_exceptions: Literal[False] = False,
) -> tuple[T1, T2, T3]: ...
@overload
async def parallel(
    c1: Awaitable[T1],
    c2: Awaitable[T2],
    c3: Awaitable[T3],
    c4: Awaitable[T4],
    /,
    *,
    limit: int | None = None,
    return_exceptions: Literal[False] = False,
) -> tuple[T1, T2, T3, T4]: ...
@overload
async def parallel(
    c1: Awaitable[T1],
    c2: Awaitable[T2],
    c3: Awaitable[T3],
    c4: Awaitable[T4],
    c5: Awaitable[T5],
    /,
    *,
    limit: int | None = None,
    return_exceptions: Literal[False] = False,
) -> tuple[T1, T2, T3, T4, T5]: ...
@overload
async def parallel(
    c1: Awaitable[T1],
    c2: Awaitable[T2],
    c3: Awaitable[T3],
    c4: Awaitable[T4],
    c5: Awaitable[T5],
    c6: Awaitable[T6],
    /,
    *,
    limit: int | None = None,
    return_exceptions: Literal[False] = False,
) -> tuple[T1, T2, T3, T4, T5, T6]: ...
@overload
async def parallel(
    *calls: Awaitable[T], limit: int | None = None, return_exceptions: Literal[False] = False
) -> tuple[T, ...]: ...
@overload
async def parallel(
    c1: Awaitable[T1], /, *, limit: int | None = None, return_exceptions: Literal[True]
) -> tuple[T1 | Exception]: ...
@overload
async def parallel(
    c1: Awaitable[T1],
    c2: Awaitable[T2],
    /,
    *,
    limit: int | None = None,
    return_exceptions: Literal[True],
) -> tuple[T1 | Exception, T2 | Exception]: ...
@overload
async def parallel(
    c1: Awaitable[T1],
    c2: Awaitable[T2],
    c3: Awaitable[T3],
    /,
    *,
    limit: int | None = None,
    return_exceptions: Literal[True],
) -> tuple[T1 | Exception, T2 | Exception, T3 | Exception]: ...
@overload
async def parallel(
    c1: Awaitable[T1],
    c2: Awaitable[T2],
    c3: Awaitable[T3],
    c4: Awaitable[T4],
    /,
    *,
    limit: int | None = None,
    return_exceptions: Literal[True],
) -> tuple[T1 | Exception, T2 | Exception, T3 | Exception, T4 | Exception]: ...
@overload
async def parallel(
    c1: Awaitable[T1],
    c2: Awaitable[T2],
    c3: Awaitable[T3],
    c4: Awaitable[T4],
    c5: Awaitable[T5],
    /,
    *,
    limit: int | None = None,
    return_exceptions: Literal[True],
) -> tuple[T1 | Exception, T2 | Exception, T3 | Exception, T4 | Exception, T5 | Exception]: ...
@overload
async def parallel(
    c1: Awaitable[T1],
    c2: Awaitable[T2],
    c3: Awaitable[T3],
    c4: Awaitable[T4],
    c5: Awaitable[T5],
    c6: Awaitable[T6],
    /,
    *,
    limit: int | None = None,
    return_exceptions: Literal[True],
) -> tuple[
    T1 | Exception, T2 | Exception, T3 | Exception, T4 | Exception, T5 | Exception, T6 | Exception
]: ...
@overload
async def parallel(
    *calls: Awaitable[T], limit: int | None = None, return_exceptions: bool
) -> tuple[T | Exception, ...]: ...
async def parallel(
    *calls: Awaitable[Any], limit: int | None = None, return_exceptions: bool = False
) -> tuple[Any, ...]:
    """Run calls and coroutines as branches; return their results in the order of the arguments.

    `limit`: how many run at once; None = all. When one fails, the others' waits end, and once all have settled the
    first failure is raised; with `return_exceptions` nothing is cancelled and failures are returned. Raises
    OutsideWorkflow.
    """
    enter_workflow("parallel()", "use asyncio.gather() or a task group")
    chosen = branches("parallel()", calls)
    check.whole(limit, "limit", 1)
    if not chosen:
        return ()
    return tuple(await GroupCommand("parallel", chosen, limit, return_exceptions))


@overload
async def race(c1: Awaitable[T1], /) -> tuple[Literal[0], T1]: ...
@overload
async def race(
    c1: Awaitable[T1], c2: Awaitable[T2], /
) -> tuple[Literal[0], T1] | tuple[Literal[1], T2]: ...
@overload
async def race(
    c1: Awaitable[T1], c2: Awaitable[T2], c3: Awaitable[T3], /
) -> tuple[Literal[0], T1] | tuple[Literal[1], T2] | tuple[Literal[2], T3]: ...
@overload
async def race(
    c1: Awaitable[T1], c2: Awaitable[T2], c3: Awaitable[T3], c4: Awaitable[T4], /
) -> (
    tuple[Literal[0], T1] | tuple[Literal[1], T2] | tuple[Literal[2], T3] | tuple[Literal[3], T4]
): ...
@overload
async def race(*calls: Awaitable[T]) -> tuple[int, T]: ...
async def race(*calls: Awaitable[Any]) -> tuple[int, Any]:
    """Return `(index, value)` of the first branch to end, at once; the others are cancelled. Its failure is raised.

    Raises OutsideWorkflow.
    """
    enter_workflow("race()", "use asyncio.wait(…, return_when=FIRST_COMPLETED)")
    chosen = branches("race()", calls)
    if not chosen:
        raise ValueError("race() needs at least one call or coroutine")
    index, value = await GroupCommand("race", chosen)
    return index, value

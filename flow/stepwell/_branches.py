"""`parallel` and `race`."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from typing import Any, Literal, TypeVar, overload

from stepwell import _options as check
from stepwell._arguments import branches, drop
from stepwell._scopes import enter_workflow
from stepwell_runtime.core.commands import GroupCommand

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")
T6 = TypeVar("T6")


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
def parallel(
    *calls: Awaitable[Any], limit: int | None = None, return_exceptions: bool = False
) -> Coroutine[Any, Any, tuple[Any, ...]]:
    """Run calls and coroutines as branches; return their results in the order of the arguments.

    `limit`: how many run at once; None = all. When one fails, the others' waits end, and once all
    have settled the first failure is raised; with `return_exceptions` nothing is cancelled and
    failures are returned. Raises OutsideWorkflow.
    """
    # No `async def`: the calls must be known as handed on even if this coroutine never starts.
    _enter("parallel()", "use asyncio.gather() or a task group", calls)
    chosen = branches("parallel()", calls)
    check.whole(limit, "limit", 1)
    return _parallel(GroupCommand("parallel", chosen, limit, return_exceptions))


async def _parallel(command: GroupCommand) -> tuple[Any, ...]:
    return tuple(await command) if command.branches else ()


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
def race(*calls: Awaitable[Any]) -> Coroutine[Any, Any, tuple[int, Any]]:
    """Return `(index, value)` of the first branch to end, at once; cancel the others.

    Its failure is raised. Raises OutsideWorkflow.
    """
    _enter("race()", "use asyncio.wait(…, return_when=FIRST_COMPLETED)", calls)
    chosen = branches("race()", calls)
    if not chosen:
        raise ValueError("race() needs at least one call or coroutine")
    return _race(GroupCommand("race", chosen))


async def _race(command: GroupCommand) -> tuple[int, Any]:
    index, value = await command
    return index, value


def _enter(what: str, in_step: str, calls: tuple[Any, ...]) -> None:
    try:
        enter_workflow(what, in_step)
    except GeneratorExit:  # the workflow is being discarded: nobody will run its branches
        drop(calls)
        raise

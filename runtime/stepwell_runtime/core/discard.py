"""Ending coroutines and async generators by hand, so that the garbage collector never does."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any

from stepwell_runtime.core.branch import Group
from stepwell_runtime.core.commands import CallCommand

if TYPE_CHECKING:
    from stepwell_runtime.core.execution import Execution


def is_over(coroutine: Coroutine[Any, Any, Any]) -> bool:
    return getattr(coroutine, "cr_frame", None) is None


def close_coroutine(
    context: Context, coroutine: Coroutine[Any, Any, Any], zombies: list[object]
) -> None:
    """Close a coroutine in its own context; one that will not die goes to `zombies`."""
    try:
        context.run(coroutine.close)
    except RuntimeError:
        if not is_over(coroutine):
            zombies.append(coroutine)
            make_immortal(coroutine)
    except BaseException:  # noqa: BLE001 - nobody is left to tell of a discarded coroutine
        return


def make_immortal(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Leak a reference: being freed, even at exit, would run the code again, perhaps for ever."""
    import ctypes  # as good as never needed

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(coroutine))


def finish_generator(generator: AsyncGenerator[Any, Any]) -> None:
    """Run an async generator's `finally` by hand; whatever it awaits ends it."""
    closing = generator.aclose()
    try:
        closing.send(None)
    except BaseException:  # noqa: BLE001 - StopIteration when done; nobody hears its own error
        return
    closing.close()


def close_all(execution: Execution) -> None:
    """Close what is left of a run's coroutines and generators, the innermost first."""
    guard = execution.guard
    outermost = guard.enter()
    try:
        for branch in reversed(list(execution.live)):
            branch.closing = True
            if isinstance(branch.waiting, Group):
                branch.waiting.drop_unstarted()
            if branch.code is not None and not isinstance(branch.code, CallCommand):
                close_coroutine(branch.context, branch.code, execution.zombies)
        execution.take_generators()
        while execution.generators:
            finish_generator(execution.generators.pop(0))
            execution.take_generators()
    finally:
        if outermost:
            guard.leave()

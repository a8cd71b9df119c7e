"""From a thread into an event loop, and back with the outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from stepwell._app.app import Stepwell
from stepwell_queue.errors import StepwellError
from stepwell_runtime.core.guard import refuse_in_workflow

T = TypeVar("T")
Work = Callable[[Stepwell], Coroutine[Any, Any, T]]


def wait_for(app: Stepwell, loop: asyncio.AbstractEventLoop, work: Work[T]) -> T:
    """Run `work` in the loop's thread and wait for it; an interrupted wait cancels it."""
    refuse_in_workflow("a blocking method", "await the call itself, or start(call)")
    if running_loop() is loop:
        raise StepwellError(
            "a blocking method was called in the event loop that it would wait for: "
            "use the methods of Stepwell with await"
        )
    future: Future[T] = asyncio.run_coroutine_threadsafe(work(app), loop)
    try:
        return future.result()
    except CancelledError:
        raise StepwellError(f"{app!r} was closed while this call waited") from None
    except BaseException:
        future.cancel()
        raise


def running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None

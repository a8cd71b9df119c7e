"""From a thread into an event loop, and back with the outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, wait
from typing import Any, TypeVar

from stepwell._app.app import Stepwell
from stepwell_queue.errors import StepwellError
from stepwell_runtime.core.guard import refuse_in_workflow

T = TypeVar("T")
_LOOK_EVERY = 1.0  # seconds, whether the loop still is open
Work = Callable[[Stepwell], Coroutine[Any, Any, T]]


def wait_for(app: Stepwell, loop: asyncio.AbstractEventLoop, work: Work[T]) -> T:
    """Run `work` in the loop's thread and wait for it; an interrupted wait cancels it."""
    refuse_in_workflow("a blocking method", "await the call itself, or start(call)")
    if running_loop() is loop:
        raise StepwellError(
            "a blocking method was called in the event loop that it would wait for: "
            "use the methods of Stepwell with await"
        )
    return outcome(app, loop, submit(app, loop, work(app)))


def submit(
    app: Stepwell, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]
) -> Future[T]:
    """Run a coroutine in the loop's thread."""
    try:
        return asyncio.run_coroutine_threadsafe(coroutine, loop)
    except RuntimeError:
        coroutine.close()
        raise StepwellError(f"{app!r} was closed: nothing can be done in it any more") from None


def outcome(app: Stepwell, loop: asyncio.AbstractEventLoop, future: Future[T]) -> T:
    """Wait for what happens in the loop's thread; an interrupted wait cancels it."""
    try:
        while not wait((future,), _LOOK_EVERY).done:
            # What is submitted at the moment at which a loop closes is neither done nor refused.
            if loop.is_closed() and not future.done():
                raise _closed(app)
        return future.result()
    except (CancelledError, asyncio.CancelledError):
        raise _closed(app) from None
    except BaseException:
        future.cancel()
        raise


def _closed(app: Stepwell) -> StepwellError:
    return StepwellError(f"{app!r} was closed while this call waited")


def running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None

"""The turns of an attempt's coroutine on the loop: each in its context, and each measured."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import TYPE_CHECKING, Any

from stepwell_runtime.lag import clock

if TYPE_CHECKING:
    from stepwell_runtime.attempt import Attempt


class Turns:
    """Awaits what is left of a coroutine, each turn in a context that is not the task's."""

    __slots__ = ("_attempt", "_call", "_context", "_waits_for")

    def __init__(
        self, attempt: Attempt, context: Context, call: Coroutine[Any, Any, Any], waits_for: Any
    ) -> None:
        self._attempt, self._context, self._call = attempt, context, call
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        run, call, waits_for = self._context.run, self._call, self._waits_for
        while True:
            caught: BaseException | None = None
            try:
                yield waits_for
            except BaseException as thrown:  # noqa: BLE001 - it is the step's to handle
                caught = thrown
            begun = clock()
            try:
                waits_for = run(call.send, None) if caught is None else run(call.throw, caught)
            except StopIteration as stop:
                return stop.value
            finally:
                caught = None  # its traceback may hold this frame
                self._attempt.turn_over(begun)

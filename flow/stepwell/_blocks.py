"""Blocks of workflow code that end together."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from stepwell import _options as check
from stepwell._scopes import enter_workflow
from stepwell_runtime.core.commands import DeadlineCommand
from stepwell_runtime.definitions import Seconds
from stepwell_runtime.errors import DurabilityError
from stepwell_runtime.scope import WorkflowScope


class Deadline:
    """What `async with deadline(seconds)` enters; used once."""

    __slots__ = ("_block", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._block: Any = None

    async def __aenter__(self) -> None:
        if self._block is not None:
            raise DurabilityError("call deadline() for each `async with`: it is used once")
        _enter("deadline()")
        self._block = await DeadlineCommand(self._seconds)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, GeneratorExit):
            return  # the workflow is being discarded
        exceeded: Exception | None = self._block.leave(_enter("deadline()"), error)
        if exceeded is not None:
            try:
                raise exceeded from None
            finally:
                del exceeded  # its traceback holds this frame


def deadline(seconds: Seconds, /) -> Deadline:
    """Give the block so many seconds, from when it is first reached; restarts do not change that.

    Then what it does is cancelled, as in a branch that is cancelled, and DeadlineExceeded is raised
    at its end. 0: it is over at its first durable operation. Raises OutsideWorkflow.
    """
    _enter("deadline()")
    limit = check.span(seconds, "deadline() seconds")
    if limit is None:
        raise TypeError("deadline() takes seconds, such as deadline(30.0)")
    return Deadline(limit)


class RollbackScope:
    """What `async with rollback_scope()` enters; used once."""

    __slots__ = ("_scope",)

    def __init__(self) -> None:
        self._scope: Any = None

    async def __aenter__(self) -> None:
        if self._scope is not None:
            raise DurabilityError("call rollback_scope() for each `async with`: it is used once")
        self._scope = _enter("rollback_scope()").enter_undo_scope()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, GeneratorExit):
            return  # the workflow is being discarded
        unwinding = _enter("rollback_scope()").leave_undo_scope(
            self._scope, failed=error is not None
        )
        if unwinding is None or error is None:
            return
        for failed in await unwinding:
            error.add_note(
                f"rollback of the scope incomplete: an undo failed with "
                f"{type(failed).__name__}: {failed}"
            )


def rollback_scope() -> RollbackScope:
    """Run the undos that the block has registered when it fails; then its error goes on.

    Newest first. When the block ends well, they stay registered, with what is around it; so does
    an undo that fails, which is noted on the error. Raises OutsideWorkflow.
    """
    _enter("rollback_scope()")
    return RollbackScope()


def _enter(what: str) -> WorkflowScope:
    return enter_workflow(what, "call it in the workflow, around its steps")

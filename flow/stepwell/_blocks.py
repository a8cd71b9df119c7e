"""Blocks of workflow code that end together."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from stepwell._scopes import enter_workflow
from stepwell_runtime.errors import DurabilityError


class RollbackScope:
    """What `async with rollback_scope()` enters; used once."""

    __slots__ = ("_scope",)

    def __init__(self) -> None:
        self._scope: Any = None

    async def __aenter__(self) -> None:
        if self._scope is not None:
            raise DurabilityError("call rollback_scope() for each `async with`: it is used once")
        self._scope = _enter().enter_undo_scope()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, GeneratorExit):
            return  # the workflow is being discarded
        unwinding = _enter().leave_undo_scope(self._scope, failed=error is not None)
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
    _enter()
    return RollbackScope()


def _enter() -> Any:
    return enter_workflow("rollback_scope()", "call it in the workflow, around its steps")

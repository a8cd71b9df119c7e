"""The handle of a detached child."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from stepwell_runtime.core.commands import JoinCommand
from stepwell_runtime.errors import OutsideWorkflow
from stepwell_runtime.scope import job_scope, workflow_scope

if TYPE_CHECKING:
    from stepwell._app.app import Stepwell

R = TypeVar("R")


@dataclass(frozen=True)
class ChildRun(Generic[R]):
    """A detached child of a workflow. It is a value: it can be passed to steps and returned."""

    id: str

    async def result(self) -> R:
        """Wait for the child's result, durably in a workflow.

        Raises what the child raised, or RunCancelled; OutsideWorkflow where neither a workflow nor
        a step is running.
        """
        scope = workflow_scope()
        if scope is not None:
            if scope.closing:
                scope.refuse()
            found: R = await JoinCommand(self.id, Any)
            return found
        step = job_scope()
        if step is None or step.app is None:
            raise OutsideWorkflow(
                "ChildRun.result()", "use `await app.get(child.id, definition).result()`"
            )
        found = await cast("Stepwell", step.app).get(self.id).result()
        result: R = found
        return result


# Stored as `stepwell:ChildRun`, so that stored handles outlive a move of this module.
ChildRun.__module__ = "stepwell"

"""Where the code runs right now, and what it may know of it."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, cast
from uuid import UUID

from stepwell_runtime.errors import DurabilityError, OutsideWorkflow
from stepwell_runtime.scope import (
    JobScope,
    RunFacts,
    WorkflowScope,
    job_scope,
    scope_here,
    workflow_scope,
)

if TYPE_CHECKING:
    from stepwell._app.app import Stepwell


def in_workflow(what: str, in_step: str) -> WorkflowScope:
    """Return the scope of the workflow that is running; raise OutsideWorkflow if there is none."""
    scope = scope_here()
    if scope is None:
        raise OutsideWorkflow(what, "call it from an `async def` that is decorated with @workflow")
    if isinstance(scope, JobScope):
        raise OutsideWorkflow(what, f"in a step or task, {in_step}")
    return scope


def enter_workflow(what: str, in_step: str) -> WorkflowScope:
    """Like `in_workflow`, for what has an effect: refused while the workflow is being discarded."""
    scope = in_workflow(what, in_step)
    if scope.closing:
        scope.refuse()
    return scope


def now() -> datetime:
    """Return the run's time (aware, UTC): when the last thing happened to it, also on replay."""
    scope = in_workflow("now()", "use datetime.now(UTC)")
    return datetime.fromtimestamp(scope.now(), UTC)


def uuid4() -> UUID:
    """Return a random UUID; the n-th one of a branch is the same at every replay."""
    return in_workflow(
        "uuid4()", "use uuid.uuid4(), or current_step().key, which is the same at every retry"
    ).uuid4()


def random() -> Random:
    """Return the branch's random generator, which gives the same numbers at every replay."""
    return in_workflow("random()", "use the random module").random()


def current_run() -> RunFacts:
    """Return what the running workflow may know of itself: id, workflow, attempt and so on."""
    return in_workflow("current_run()", "use current_step().run_id").facts


def is_replaying() -> bool:
    """Return whether a workflow is only repeating what it did before; False elsewhere.

    For output alone: a workflow that does something else on replay cannot be resumed.
    """
    scope = workflow_scope()
    return scope is not None and scope.replaying


def current_step() -> JobScope:
    """Return the attempt that is running: run_id, path, attempt, key, cancelled.

    The key is the same across retries and crashes. Raises DurabilityError outside of steps and
    tasks.
    """
    return _attempt_here("current_step()")


def current_job() -> JobScope:
    """Return what `current_step` does, under the name that reads better in a task."""
    return _attempt_here("current_job()")


def _attempt_here(what: str) -> JobScope:
    scope = job_scope()
    if scope is None:
        where = (
            "in a workflow, use current_run()"
            if workflow_scope() is not None
            else "no step or task is running here"
        )
        raise DurabilityError(f"{what} works only inside a step or task: {where}")
    return scope


def current_app() -> Stepwell:
    """Return the app whose worker runs this step or task. Raises DurabilityError elsewhere."""
    scope = job_scope()
    if scope is None or scope.app is None:
        where = (
            "a workflow must not have effects that are not journaled: call it in a step"
            if workflow_scope() is not None
            else "there is no app in a child process"
            if scope is not None
            else "no worker is running this; pass the app as an argument"
        )
        raise DurabilityError(f"current_app() works only inside a step or task: {where}")
    return cast("Stepwell", scope.app)

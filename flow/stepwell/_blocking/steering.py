"""Runs that are ended, paused and copied from outside, for code that blocks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

from stepwell._app.steering import PausedWorkflow, SteeredMany, SteeringAction
from stepwell._app.views import RunStatus
from stepwell._blocking.waiting import Work
from stepwell._decorated import Task, Workflow
from stepwell._queues import Queue

T = TypeVar("T")


class BlockingSteering:
    """The methods of an app that steer runs; they block."""

    def do(self, work: Work[T]) -> T:
        """Run a coroutine function of the app in the loop's thread, and wait for its outcome."""
        raise NotImplementedError

    def terminate(self, id: str, /, *, reason: str = "", actor: str = "") -> RunStatus:
        """End a run at once, without its undos; see Stepwell.terminate. Raises RunEnded."""
        return self.do(lambda app: app.terminate(id, reason=reason, actor=actor))

    def pause(self, id: str, /, *, reason: str = "", actor: str = "") -> RunStatus:
        """Have a run begin nothing more; see Stepwell.pause. Raises RequestRefused."""
        return self.do(lambda app: app.pause(id, reason=reason, actor=actor))

    def pause_workflow(
        self,
        which: Workflow[..., Any] | Task[..., Any] | str,
        /,
        *,
        reason: str = "",
        actor: str = "",
    ) -> None:
        """Have no run of a workflow or task claimed; see Stepwell.pause_workflow."""
        self.do(lambda app: app.pause_workflow(which, reason=reason, actor=actor))

    def resume_workflow(
        self,
        which: Workflow[..., Any] | Task[..., Any] | str,
        /,
        *,
        reason: str = "",
        actor: str = "",
    ) -> None:
        """End that pause; without one, nothing changes."""
        self.do(lambda app: app.resume_workflow(which, reason=reason, actor=actor))

    def paused_workflows(self) -> list[PausedWorkflow]:
        """Return the workflows and tasks that are paused, by name."""
        return self.do(lambda app: app.paused_workflows())

    def steer_many(
        self,
        action: SteeringAction,
        /,
        *,
        status: str | Sequence[str] | None = None,
        name: str | None = None,
        queue: str | Queue | None = None,
        parent: str | None = None,
        key: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        ended_after: datetime | None = None,
        ended_before: datetime | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        reason: str = "",
        actor: str = "",
    ) -> SteeredMany:
        """Do to each run that fits what the method of that name does; see Stepwell.steer_many."""
        return self.do(
            lambda app: app.steer_many(
                action,
                status=status,
                name=name,
                queue=queue,
                parent=parent,
                key=key,
                created_after=created_after,
                created_before=created_before,
                ended_after=ended_after,
                ended_before=ended_before,
                limit=limit,
                dry_run=dry_run,
                reason=reason,
                actor=actor,
            )
        )

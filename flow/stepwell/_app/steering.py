"""Runs that are ended, paused and copied from outside, one by one, by name, or many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, get_args

from stepwell import _options as check
from stepwell._app.handles import Run
from stepwell._app.views import RunStatus
from stepwell._decorated import Task, Workflow
from stepwell._queues import Queue
from stepwell_queue.clock import utc
from stepwell_queue.contract import ListPausedNames, Status
from stepwell_queue.errors import RequestRefused, RunEnded, RunNotFound

if TYPE_CHECKING:
    from stepwell._app.app import Stepwell
    from stepwell_runtime.engine import Engine

SteeringAction: TypeAlias = Literal[
    "cancel", "terminate", "pause", "resume", "retry", "roll_back", "resume_rollback"
]
ACTIONS: Final[tuple[str, ...]] = get_args(SteeringAction)
_UNENDED: Final = ("scheduled", "ready", "running", "parked", "rolling_back")
FITTING: Final[Mapping[str, tuple[str, ...]]] = {
    "cancel": (*_UNENDED, "paused", "held", "stuck"),
    "terminate": (*_UNENDED, "paused", "held", "stuck"),
    "pause": _UNENDED,
    "resume": ("paused", "stuck"),
    "retry": ("held", "failed"),
    "roll_back": ("held",),
    "resume_rollback": ("failed", "cancelled"),
}
"""The statuses of runs to which an action may apply."""
_PAGE: Final = 500
MOST_REFUSALS: Final = 1000


@dataclass(frozen=True, slots=True)
class PausedWorkflow:
    """A workflow or task, by name, of which no worker claims a run."""

    name: str
    paused_at: datetime
    actor: str
    reason: str


@dataclass(frozen=True, slots=True)
class RefusedRun:
    """A run that was not steered, and why not."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class SteeredMany:
    """What became of many runs."""

    matched: int
    """Runs that fit the filters; of a dry run that is all."""
    changed: Mapping[RunStatus, int]
    """How many were steered, by the status that they had afterwards."""
    refused: int
    refusals: tuple[RefusedRun, ...]
    """The first 1,000 of those."""


class SteeringMethods:
    """What an app does to runs that go on, beside cancelling them."""

    @property
    def engine(self) -> Engine:
        raise NotImplementedError

    async def terminate(self, id: str, /, *, reason: str = "", actor: str = "") -> RunStatus:
        """End a run at once, whatever it is about; none of its undos run.

        The children that it waits for end with it, detached ones go on. Raises RunNotFound,
        RunEnded.
        """
        check.asked(id, reason, actor)
        return _word(await self.engine.steering.terminate(id, actor=actor, reason=reason))

    async def pause(self, id: str, /, *, reason: str = "", actor: str = "") -> RunStatus:
        """Have a run begin nothing more until `resume`; return its status now.

        While its steps that have begun reach an outcome it is still running. Raises RunNotFound,
        RequestRefused.
        """
        check.asked(id, reason, actor)
        return _word(await self.engine.ask(id, "pause", reason=reason, actor=actor))

    async def pause_workflow(
        self,
        which: Workflow[..., Any] | Task[..., Any] | str,
        /,
        *,
        reason: str = "",
        actor: str = "",
    ) -> None:
        """Have no worker claim a run of a workflow or task, in all versions, until it is resumed.

        `which`: it, or its name. Runs that are being executed go on until they wait or end.
        """
        name = _name_of(which, "pause_workflow")
        check.asked(name, reason, actor)
        await self.engine.steering.pause_name(name, actor=actor, reason=reason)

    async def resume_workflow(
        self,
        which: Workflow[..., Any] | Task[..., Any] | str,
        /,
        *,
        reason: str = "",
        actor: str = "",
    ) -> None:
        """End that pause; without one, nothing changes."""
        name = _name_of(which, "resume_workflow")
        check.asked(name, reason, actor)
        await self.engine.steering.resume_name(name, actor=actor, reason=reason)

    async def paused_workflows(self) -> list[PausedWorkflow]:
        """Return the workflows and tasks that are paused, by name."""
        return [
            PausedWorkflow(row.name, utc(row.at), row.actor, row.reason)
            for row in await self.engine.store.read(ListPausedNames())
        ]

    async def fork(
        self,
        run_id: str,
        /,
        *,
        from_step: str,
        id: str | None = None,
        changes: Mapping[str, Any] | None = None,
        reason: str = "",
        actor: str = "",
    ) -> Run[Any]:
        """Start a new run that takes over what a workflow run has recorded before a step.

        `from_step`: its path, or its name if the run has it once. The step, and all after it, is
        executed anew, by keys of its own; what was registered to be undone before it is undone by
        the fork, too, should it fail. `id`: of the new run; None = a new one. `changes`: other
        values of arguments, by name. Raises RunNotFound, RequestRefused, IdConflict.
        """
        app = cast("Stepwell", self)
        check.asked(run_id, reason, actor)
        step = check.text(from_step, "from_step", longest=1000)
        if step is None:
            raise TypeError("from_step= takes the name or path of a step, not None")
        started = await self.engine.forks.fork(
            run_id,
            step,
            new_id=id,
            changes=changes or {},
            definitions=app.definitions() if changes else {},
            actor=actor,
            reason=reason,
        )
        return Run(app, started.id, Any, started.created)

    async def steer_many(
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
        """Do to each run that fits what the method of that name does to one; newest first.

        The filters are those of `runs`. `status` None = those to which the action may apply.
        `limit`: at most so many, None = all. `dry_run`: only count them. Runs are steered a few
        hundred at a time; those that were are so, if this raises.
        """
        check.one_of(action, "action", ACTIONS)
        check.whole(limit, "limit", 1)
        check.asked("", reason, actor)
        app = cast("Stepwell", self)
        act = cast("Callable[..., Awaitable[RunStatus]]", getattr(self, action))
        filters: dict[str, Any] = {
            "status": FITTING[action] if status is None else status,
            "name": name,
            "queue": queue,
            "parent": parent,
            "key": key,
            "created_after": created_after,
            "created_before": created_before,
            "ended_after": ended_after,
            "ended_before": ended_before,
        }
        matched, changed = 0, dict[RunStatus, int]()
        refused, refusals = 0, list[RefusedRun]()
        after: str | None = None
        while limit is None or matched < limit:
            room = _PAGE if limit is None else min(_PAGE, limit - matched)
            page = await app.runs(**filters, after=after, limit=room)
            matched += len(page)
            outcomes = (
                ()
                if dry_run
                else await asyncio.gather(*(_tried(act, info.id, reason, actor) for info in page))
            )
            for outcome in outcomes:
                if isinstance(outcome, RefusedRun):
                    refused += 1
                    if len(refusals) < MOST_REFUSALS:
                        refusals.append(outcome)
                else:
                    changed[outcome] = changed.get(outcome, 0) + 1
            if len(page) < room:
                break
            after = page[-1].id
        return SteeredMany(matched, changed, refused, tuple(refusals))


async def _tried(
    act: Callable[..., Awaitable[RunStatus]], id: str, reason: str, actor: str
) -> RunStatus | RefusedRun:
    try:
        return await act(id, reason=reason, actor=actor)
    except (RequestRefused, RunEnded, RunNotFound) as refusal:
        return RefusedRun(id, str(refusal))


def _name_of(which: object, method: str) -> str:
    if isinstance(which, (Workflow, Task)):
        return which.name
    if isinstance(which, str):
        return check.text(which, "the name of a workflow or task") or ""
    raise TypeError(f"{method}() takes a workflow or task, or its name, not {which!r}")


def _word(status: Status) -> RunStatus:
    return cast("RunStatus", status.name.lower())

"""`cancel`, `terminate`, `retry`, `pause` and `resume`, of one run or of all that fit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import typer

from stepwell._app.app import Stepwell
from stepwell._app.steering import PausedWorkflow, SteeredMany, SteeringAction
from stepwell.cli import _print as out
from stepwell.cli._client import in_store
from stepwell.cli._look import StatusOption
from stepwell.cli._options import (
    ActorOption,
    AfterOption,
    BeforeOption,
    JsonOption,
    KeyOption,
    NameOption,
    QueueOption,
    ReasonOption,
    StoreOption,
    login,
)
from stepwell.cli._shapes import Shape, iso

RunOption = Annotated[str | None, typer.Argument(metavar="ID", help="The id of the run.")]
AllOption = Annotated[
    bool, typer.Option("--all", help="Instead of one run: all that fit the options.")
]
LimitOption = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="At most so many, newest first.", show_default="all that fit"
    ),
]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Only count those that fit.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask whether all are meant.")]
WorkflowOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Instead of one run: the workflow or task of this name."),
]
_SAID = {"terminate": "; undos that it had registered have not run"}


def add_to(app: typer.Typer) -> None:
    app.command()(cancel)
    app.command()(terminate)
    app.command()(retry)
    app.command()(pause)
    app.command()(resume)
    app.command()(paused)


class Who(NamedTuple):
    """Which runs are meant, on whose behalf, and why."""

    id: str | None
    every: bool
    filters: dict[str, Any]
    dry_run: bool
    yes: bool
    store: str
    reason: str
    actor: str | None
    as_json: bool


def steer(action: SteeringAction, who: Who) -> None:
    actor = login() if who.actor is None else who.actor
    given = [name for name, value in who.filters.items() if value]
    if who.id is not None:
        if who.every or given or who.dry_run:
            raise typer.BadParameter("give an ID, or --all with what limits it, not both")
        _one(action, who, who.id, actor)
        return
    if not who.every:
        raise typer.BadParameter("give the ID of a run, or --all")
    if not (who.yes or who.dry_run):
        which = "those that fit" if given else "ALL that there are"
        typer.confirm(f"{action} many runs, {which}?", abort=True, err=True)

    async def work(app: Stepwell) -> SteeredMany:
        filters = {name: value or None for name, value in who.filters.items()}
        return await app.steer_many(
            action, **filters, dry_run=who.dry_run, reason=who.reason, actor=actor
        )

    done = in_store(who.store, work)
    if who.as_json:
        out.document(_shape(done))
        return
    for one in done.refusals:
        typer.echo(f"{one.id}: {one.reason}", err=True)
    if who.dry_run:
        typer.echo(f"would {action} {out.counted(done.matched, 'run')}")
        return
    parts = [f"{count} {status}" for status, count in done.changed.items()]
    parts += [f"{done.refused} refused"] if done.refused else []
    runs = out.counted(done.matched, "run")
    typer.echo(runs + (f": {', '.join(parts)}" if parts else ""))


def _one(action: SteeringAction, who: Who, id: str, actor: str) -> None:
    async def work(app: Stepwell) -> str:
        verb: Callable[..., Any] = getattr(app, action)
        status: str = await verb(id, reason=who.reason, actor=actor)
        return status

    status = in_store(who.store, work)
    if who.as_json:
        out.document({"id": id, "status": status})
    else:
        typer.echo(f"{id}: {status}{_SAID.get(action, '')}")


def _shape(done: SteeredMany) -> Shape:
    return {
        "matched": done.matched,
        "changed": dict(done.changed),
        "refused": done.refused,
        "refusals": [{"id": one.id, "reason": one.reason} for one in done.refusals],
    }


def _filters(
    status: list[str] | None,
    name: str | None,
    queue: str | None,
    key: str | None,
    created_after: datetime | None,
    created_before: datetime | None,
    limit: int | None,
) -> dict[str, Any]:
    return {
        "status": status,
        "name": name,
        "queue": queue,
        "key": key,
        "created_after": created_after,
        "created_before": created_before,
        "limit": limit,
    }


def _command(action: SteeringAction, text: str) -> Callable[..., None]:
    def command(
        store: StoreOption,
        id: RunOption = None,
        every: AllOption = False,
        status: StatusOption = None,
        name: NameOption = None,
        queue: QueueOption = None,
        key: KeyOption = None,
        created_after: AfterOption = None,
        created_before: BeforeOption = None,
        limit: LimitOption = None,
        dry_run: DryOption = False,
        yes: YesOption = False,
        reason: ReasonOption = "",
        actor: ActorOption = None,
        as_json: JsonOption = False,
    ) -> None:
        filters = _filters(status, name, queue, key, created_after, created_before, limit)
        steer(action, Who(id, every, filters, dry_run, yes, store, reason, actor, as_json))

    command.__name__, command.__doc__ = action, text
    return command


def _command_by_name(action: SteeringAction, text: str, said: str) -> Callable[..., None]:
    def command(
        store: StoreOption,
        id: RunOption = None,
        workflow: WorkflowOption = None,
        every: AllOption = False,
        status: StatusOption = None,
        name: NameOption = None,
        queue: QueueOption = None,
        key: KeyOption = None,
        created_after: AfterOption = None,
        created_before: BeforeOption = None,
        limit: LimitOption = None,
        dry_run: DryOption = False,
        yes: YesOption = False,
        reason: ReasonOption = "",
        actor: ActorOption = None,
        as_json: JsonOption = False,
    ) -> None:
        filters = _filters(status, name, queue, key, created_after, created_before, limit)
        who = Who(id, every, filters, dry_run, yes, store, reason, actor, as_json)
        if workflow is None:
            steer(action, who)
        elif id is not None or every or any(filters.values()) or dry_run:
            raise typer.BadParameter("--workflow goes with no ID, --all or filters")
        else:
            _by_name(action, workflow, who, said)

    command.__name__, command.__doc__ = action, text
    return command


def _by_name(action: SteeringAction, name: str, who: Who, said: str) -> None:
    actor = login() if who.actor is None else who.actor

    async def work(app: Stepwell) -> None:
        verb = app.pause_workflow if action == "pause" else app.resume_workflow
        await verb(name, reason=who.reason, actor=actor)

    in_store(who.store, work)
    if who.as_json:
        out.document({"workflow": name, "state": said})
    else:
        typer.echo(f"{name}: {said}")


cancel = _command(
    "cancel",
    """Ask a run, or many, to cancel, and to undo.

    A run that was never executed ends at once, another one at its next durable operation.
    """,
)
terminate = _command(
    "terminate",
    """End a run, or many, at once; no undo runs.

    The children that it waits for end with it, detached ones go on.
    """,
)
retry = _command(
    "retry",
    """Let a run, or many, go on from the failed step.

    One that is held, or has failed and none of its undos has run.
    """,
)
pause = _command_by_name(
    "pause",
    """Have a run, or many, begin nothing more.

    What is being executed reaches an outcome first. With --workflow, no worker claims a run of
    that workflow or task any more. `stepwell resume` ends it.
    """,
    "paused",
)
resume = _command_by_name(
    "resume",
    """Let paused and stuck runs go on.

    Stuck ones with the code that workers have now; a newly started worker does so by itself. With
    --workflow, the pause of that workflow or task ends.
    """,
    "open",
)


def paused(store: StoreOption, as_json: JsonOption = False) -> None:
    """List the workflows and tasks that are paused by name."""

    async def work(app: Stepwell) -> list[PausedWorkflow]:
        return await app.paused_workflows()

    found = in_store(store, work)
    if as_json:
        out.document(
            [
                {
                    "name": one.name,
                    "paused_at": iso(one.paused_at),
                    "actor": one.actor,
                    "reason": one.reason,
                }
                for one in found
            ]
        )
        return
    rows = [(one.name, out.when(one.paused_at), one.actor, one.reason) for one in found]
    columns = ("name", "since", "actor", "reason")
    out.put_table(None, columns, rows) if rows else out.put("no workflow is paused")

"""Commands that look at a store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.text import Text

from stepwell._app.app import Stepwell
from stepwell._app.views import STATUSES, RunInfo
from stepwell.cli import _print as out
from stepwell.cli._client import in_store
from stepwell.cli._options import (
    AfterOption,
    BeforeOption,
    FullOption,
    JsonOption,
    KeyOption,
    NameOption,
    QueueOption,
    RunArgument,
    StoreOption,
)
from stepwell.cli._refusal import FOUND
from stepwell.cli._shapes import (
    RESTING,
    Shape,
    finding_shape,
    history_shape,
    progress_shape,
    run_shape,
    worker_shape,
)
from stepwell.cli._story import tell
from stepwell.cli._talk import values_of
from stepwell_queue import contract
from stepwell_queue.errors import RunNotFound


def add_to(app: typer.Typer) -> None:
    app.command()(runs)
    app.command()(show)
    app.command()(workers)
    app.command()(doctor)


def _statuses(values: list[str] | None) -> list[str] | None:
    for value in values or ():
        if value not in STATUSES:
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(STATUSES)}")
    return values


StatusOption = Annotated[
    list[str] | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        callback=_statuses,
        help=f"Only these; repeat for several: {', '.join(STATUSES)}.",
    ),
]


def runs(
    store: StoreOption,
    status: StatusOption = None,
    name: NameOption = None,
    queue: QueueOption = None,
    parent: Annotated[
        str | None, typer.Option(metavar="ID", help="Only children of the run of this id.")
    ] = None,
    key: KeyOption = None,
    created_after: AfterOption = None,
    created_before: BeforeOption = None,
    ended_after: AfterOption = None,
    ended_before: BeforeOption = None,
    after: Annotated[
        str | None, typer.Option(metavar="ID", help="The next page: the last id of the one before.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="How many.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List runs, newest first."""

    async def work(app: Stepwell) -> list[RunInfo]:
        return await app.runs(
            status=status or None,
            name=name,
            queue=queue,
            parent=parent,
            key=key,
            created_after=created_after,
            created_before=created_before,
            ended_after=ended_after,
            ended_before=ended_before,
            after=after,
            limit=limit,
        )

    found = in_store(store, work)
    if as_json:
        out.document([run_shape(run) for run in found])
        return
    rows = [
        (
            run.id,
            f"{run.name} v{run.version}" if run.version > 1 else run.name,
            out.status(run.status),
            run.queue,
            out.when(run.created_at),
            out.between(run.started_at, run.ended_at),
            out.one_line(remark(run), out.SHORT),
        )
        for run in found
    ]
    columns = ("id", "name", "status", "queue", "created", "took", "note")
    out.put_table(None, columns, rows) if rows else out.put("no runs")
    if len(found) == limit:
        typer.echo(f"there may be more: --after {found[-1].id}", err=True)


def remark(run: RunInfo) -> str:
    """Say what is worth knowing of a run beside its status."""
    if run.ended or run.status in ("held", "stuck"):
        incomplete = "rollback incomplete" if run.rollback == "incomplete" else ""
        return "; ".join(part for part in (incomplete, run.error) if part)
    parts = [f"waits for {run.waiting}"] if run.waiting and run.status in RESTING else []
    if run.status in ("scheduled", "ready") and run.due_at is not None:
        parts.append(f"due {out.when(run.due_at)}")
    if not run.has_code:
        parts.append("no live worker has its code")
    if run.error is not None:
        parts.append(run.error)
    return "; ".join(parts)


def show(
    id: RunArgument,
    store: StoreOption,
    full: FullOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show a run and its journal.

    Also what it waits for, what it was sent, its children, and what operators asked for.
    """

    async def work(app: Stepwell) -> Shape:
        return await run_shape_of(app, id)

    tell_or_print(in_store(store, work), full, as_json)


async def run_shape_of(app: Stepwell, id: str) -> Shape:
    """Return everything that is known of a run."""
    # Not app.history(): it builds the values, for which it imports the user's classes.
    found = await app.engine.store.history(id)
    if found is None:
        raise RunNotFound(id)
    return {
        **history_shape(found, app.codec),
        "progress": progress_shape(await app.progress(id)),
        "values": await values_of(app, id),
    }


def tell_or_print(run: Shape, full: bool, as_json: bool) -> None:
    if as_json:
        out.document(run)
    else:
        tell(run, full)


def workers(store: StoreOption, as_json: JsonOption = False) -> None:
    """List the registered workers."""

    async def work(app: Stepwell) -> list[contract.WorkerInfo]:
        return await app.workers()

    found = in_store(store, work)
    shapes = [worker_shape(worker) for worker in found]
    if as_json:
        out.document(shapes)
        return
    rows = [
        (
            str(one.worker),
            one.name,
            f"{one.host}:{one.pid}",
            out.when(datetime.fromtimestamp(one.started, UTC)),
            Text(one.state, "green") if one.alive else Text("dead", "red"),
            ", ".join(one.queues),
            out.one_line(held_by(one), out.SHORT),
            out.one_line(", ".join(sorted(one.names)), out.SHORT),
        )
        for one in found
    ]
    columns = ("#", "name", "process", "started", "state", "queues", "holds", "serves")
    out.put_table(None, columns, rows) if rows else out.put("no workers")


def held_by(worker: contract.WorkerInfo) -> str:
    """Say how many runs a worker holds, and of what."""
    if not worker.holding:
        return str(worker.held)
    parts = [f"{count} {name}" for name, count in sorted(worker.holding.items())]
    return f"{worker.held}: {', '.join(parts)}"


_MOST_COUNTED = 1000
_WANTED = {"stuck": "stuck", "held": "held", "no_code": "without code in a live worker"}
"""What waits for a person or a deploy, and how that is said."""


def doctor(store: StoreOption, as_json: JsonOption = False) -> None:
    """Check the store for broken invariants.

    The exit code is 3 if there are any. Runs that wait for a person, or for code, are counted.
    """

    async def work(app: Stepwell) -> tuple[list[contract.Finding], dict[str, int]]:
        waiting = {word: len(await app.runs(status=word, limit=_MOST_COUNTED)) for word in _WANTED}
        return await app.doctor(), waiting

    found, waiting = in_store(store, work)
    for word, count in waiting.items():
        if count:
            many = f"{count} or more" if count == _MOST_COUNTED else str(count)
            typer.echo(f"{many} {_WANTED[word]}: stepwell runs --status {word}", err=True)
    if as_json:
        out.document([finding_shape(one) for one in found])
    elif found:
        rows = [(one.rule, one.run_id or "", out.one_line(one.detail)) for one in found]
        out.put_table(None, ("rule", "run", "detail"), rows)
    else:
        typer.echo("sound: no invariant is broken")
    if found:
        raise typer.Exit(FOUND)

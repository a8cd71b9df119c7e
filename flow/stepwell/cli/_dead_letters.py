"""The commands of `stepwell dead-letters`."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer

from stepwell._app.app import Stepwell
from stepwell._app.dead_letters import DeadLetter
from stepwell.cli import _print as out
from stepwell.cli._client import in_store
from stepwell.cli._look import run_shape_of, tell_or_print
from stepwell.cli._options import (
    ActorOption,
    FullOption,
    JsonOption,
    ReasonOption,
    RunArgument,
    StoreOption,
    login,
    seconds_of,
)
from stepwell.cli._refusal import Refusal
from stepwell.cli._shapes import Shape, iso
from stepwell_queue.contract import Kind, Status

QueueOption = Annotated[str | None, typer.Option("--queue", help="Only those of this queue.")]
NameOption = Annotated[str | None, typer.Option("--name", help="Only those of this task.")]
ErrorOption = Annotated[
    str | None,
    typer.Option(
        "--error",
        metavar="CLASS",
        help="Only those with this error: ValueError, or module.ValueError.",
    ),
]
AllOption = Annotated[bool, typer.Option("--all", help="All of them.")]
LimitOption = Annotated[
    int | None, typer.Option("--limit", min=1, help="At most so many.", show_default="all")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Only say how many there are; change nothing.")
]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask whether that is meant.")]


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(
        no_args_is_help=True, help="List tasks that have failed, requeue or delete them."
    )
    group.command("list")(list_dead_letters)
    group.command()(show)
    group.command()(requeue)
    group.command()(purge)
    app.add_typer(group, name="dead-letters")


def list_dead_letters(
    store: StoreOption,
    queue: QueueOption = None,
    name: NameOption = None,
    error: ErrorOption = None,
    after: Annotated[
        str | None, typer.Option(metavar="ID", help="The next page: the last id of the one before.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List tasks that have failed, those that failed last first."""

    async def work(app: Stepwell) -> list[DeadLetter]:
        return await app.dead_letters(queue=queue, name=name, error=error, after=after, limit=limit)

    found = in_store(store, work)
    if as_json:
        out.document([dead_letter_shape(one) for one in found])
        return
    rows = [
        (
            one.id,
            f"{one.name} v{one.version}" if one.version > 1 else one.name,
            one.queue,
            out.when(one.failed_at),
            str(one.attempts),
            out.one_line(remark(one), out.SHORT),
        )
        for one in found
    ]
    columns = ("id", "name", "queue", "failed", "attempts", "note")
    out.put_table(None, columns, rows) if rows else out.put("no dead letters")
    if len(found) == limit:
        typer.echo(f"there may be more: --after {found[-1].id}", err=True)


def remark(one: DeadLetter) -> str:
    error = f"{one.error_type}: {one.message}" if one.message else one.error_type
    return f"handled by {one.parent_id}; {error}" if one.handled else error


def dead_letter_shape(one: DeadLetter) -> Shape:
    return {**asdict(one), "failed_at": iso(one.failed_at)}


def show(
    id: RunArgument, store: StoreOption, full: FullOption = False, as_json: JsonOption = False
) -> None:
    """Show a task that has failed, with all its attempts and their errors."""

    async def work(app: Stepwell) -> Shape:
        found = await app.engine.store.info(id)
        if found is not None and (found.kind, found.status) != (Kind.TASK, Status.FAILED):
            status = found.status_name
            raise Refusal(
                f"run {id!r} is no dead letter: it is a {Kind(found.kind).name.lower()} that is "
                f"{status}; use `stepwell show`"
            )
        return await run_shape_of(app, id)

    tell_or_print(in_store(store, work), full, as_json)


def requeue(
    store: StoreOption,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="The ids of the tasks.")
    ] = None,
    every: AllOption = False,
    queue: QueueOption = None,
    name: NameOption = None,
    error: ErrorOption = None,
    limit: LimitOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    reason: ReasonOption = "",
    actor: ActorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have tasks that have failed executed again, as if they were new.

    Those of these ids, or all that fit the options.
    """
    who = login() if actor is None else actor
    chosen = any((every, queue, name, error))
    if ids:
        if chosen or limit is not None or dry_run:
            raise typer.BadParameter("give ids, or options that choose tasks, not both")

        async def these(app: Stepwell) -> int:
            for id in ids:
                await app.requeue(id, reason=reason, actor=who)
            return len(ids)

        say("requeued", in_store(store, these), as_json)
        return
    refuse_unchosen(chosen)
    some = partial(Stepwell.requeue_dead_letters, queue=queue, name=name, error=error, limit=limit)

    async def count(app: Stepwell) -> int:
        return await some(app, dry_run=True)

    async def work(app: Stepwell) -> int:
        return await some(app, reason=reason, actor=who)

    if dry_run:
        say("would requeue", in_store(store, count), as_json)
        return
    if not yes:
        ask(f"Requeue {out.counted(in_store(store, count), 'task')}?")
    say("requeued", in_store(store, work), as_json)


def purge(
    store: StoreOption,
    every: AllOption = False,
    queue: QueueOption = None,
    name: NameOption = None,
    error: ErrorOption = None,
    older_than: Annotated[
        float | None,
        typer.Option(parser=seconds_of, metavar="SPAN", help="Those that failed so long ago."),
    ] = None,
    limit: LimitOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete tasks that have failed, with all that is known of them.

    Children of workflows stay, since they go with those, and so does the run that was started last.
    """
    refuse_unchosen(any((every, queue, name, error, older_than is not None)))
    some = partial(
        Stepwell.purge_dead_letters,
        queue=queue,
        name=name,
        error=error,
        older_than=older_than,
        limit=limit,
    )

    async def count(app: Stepwell) -> int:
        return await some(app, dry_run=True)

    async def work(app: Stepwell) -> int:
        return await some(app, confirm=True)

    if dry_run:
        say("would delete", in_store(store, count), as_json)
        return
    if not yes:
        ask(f"Delete {out.counted(in_store(store, count), 'task')} for ever?")
    say("deleted", in_store(store, work), as_json)


def refuse_unchosen(chosen: bool) -> None:
    if not chosen:
        raise typer.BadParameter("say which: --queue, --name or --error, or --all")


def ask(question: str) -> None:
    typer.confirm(question, abort=True, err=True)


def say(done: str, count: int, as_json: bool) -> None:
    if as_json:
        out.document({done.replace(" ", "_"): count})
    else:
        typer.echo(f"{done} {out.counted(count, 'task')}")

"""The command that deletes ended runs."""

from __future__ import annotations

from typing import Annotated

import typer

from stepwell._app.app import Stepwell
from stepwell._retention import END_STATUSES, EndStatus
from stepwell.cli import _print as out
from stepwell.cli._client import in_store
from stepwell.cli._loading import in_app
from stepwell.cli._options import JsonOption, OwnStoreOption, seconds_of


def add_to(app: typer.Typer) -> None:
    app.command()(prune)


def _ends(values: list[str] | None) -> list[str] | None:
    for value in values or ():
        if value not in END_STATUSES:
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(END_STATUSES)}")
    return values


def prune(
    store: OwnStoreOption = None,
    older_than: Annotated[
        float | None,
        typer.Option(
            parser=seconds_of, metavar="SPAN", help="Those that ended so long ago: 12h, 30d, 2w."
        ),
    ] = None,
    keep: Annotated[
        int | None, typer.Option(min=0, help="All but so many of the newest ended runs.")
    ] = None,
    queue: Annotated[str | None, typer.Option(help="Only what was started in this queue.")] = None,
    name: Annotated[str | None, typer.Option(help="Only runs of this workflow or task.")] = None,
    status: Annotated[
        list[str] | None,
        typer.Option(
            callback=_ends,
            help=f"Only what ended so; repeat for several: {', '.join(END_STATUSES)}.",
        ),
    ] = None,
    module: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE[:APP]",
            help="Where the app is whose archive= is called with the runs before they go.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Delete ended runs.

    Whole trees go, the oldest first: children with their parent, not before it. Without --module,
    nothing is archived.
    """
    if older_than is None and keep is None:
        raise typer.BadParameter("give --older-than or --keep, so that not all runs go")

    async def work(app: Stepwell) -> int:
        ended: list[EndStatus] | None = status or None  # type: ignore[assignment]  # see _ends
        return await app.prune(
            older_than=older_than, keep=keep, queue=queue, name=name, status=ended
        )

    gone = in_app(module, store, work) if module else in_store(_given(store), work)
    if as_json:
        out.document({"deleted": gone})
    else:
        typer.echo(f"deleted {out.counted(gone, 'run')}")


def _given(store: str | None) -> str:
    if store is None:
        missing = "Missing option '--store' (env var: 'STEPWELL_STORE')"
        raise typer.BadParameter(f"{missing}, or --module with an app that names one")
    return store

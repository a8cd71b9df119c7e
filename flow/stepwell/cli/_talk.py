"""Commands that talk to a run while it runs, and read what it has said."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Annotated

import typer

from stepwell._app.app import Stepwell
from stepwell._app.talking import entries, position_of
from stepwell._app.views import Audit
from stepwell._options import run_id
from stepwell.cli import _print as out
from stepwell.cli._client import in_store
from stepwell.cli._options import JsonOption, RunArgument, StoreOption
from stepwell.cli._refusal import Refusal, refusals
from stepwell.cli._shapes import Shape, iso
from stepwell.cli._start import json_in
from stepwell_queue.clock import utc
from stepwell_runtime.reports import checked_name


def add_to(app: typer.Typer) -> None:
    app.command()(value)
    app.command()(ask)
    app.command()(stream)
    app.command()(events)


async def values_of(app: Stepwell, id: str) -> dict[str, object]:
    """Return the values that a run has set, as JSON shows them."""
    return {row.name: app.codec.to_json(row.value) for row in await app.engine.talking.values(id)}


def value(
    id: RunArgument,
    store: StoreOption,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Of the value; without it: all.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the values that a run has set, or one of them."""
    found = in_store(store, lambda app: values_of(app, id))
    if name is not None and name not in found:
        with refusals():
            raise Refusal(f"run {id!r} has not set a value {name!r}")
    if as_json:
        out.document(found if name is None else found[name])
    elif name is not None:
        typer.echo(out.compact(found[name], None))
    else:
        for one, what in found.items():
            typer.echo(f"{one}: {out.compact(what, None)}")


def ask(
    id: RunArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the question.")],
    store: StoreOption,
    payload: Annotated[
        str, typer.Option("--json", metavar="VALUE", help="What is asked, as JSON.")
    ] = "null",
    question: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="ID", help="Of the question: asked again, it has the same answer."
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="SECONDS", help="How long to wait; the question stays."),
    ] = None,
) -> None:
    """Ask a run a question and print the answer.

    The question carries plain JSON data, which the workflow makes fit its type. The answer is JSON.
    """
    with refusals():
        given = json_in(payload)

    async def work(app: Stepwell) -> object:
        try:
            checked_name(name, "NAME")
            data = await app.engine.talking.answered(id, name, given, question, timeout)
        except (TimeoutError, ValueError) as error:
            raise Refusal(str(error)) from None
        return app.codec.to_json(data)

    out.document(in_store(store, work))


def stream(
    id: RunArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the stream.")],
    store: StoreOption,
    after: Annotated[
        int, typer.Option(min=0, metavar="N", help="Only items with a higher offset.")
    ] = 0,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with new items until the run has ended.")
    ] = False,
) -> None:
    """Print the items of a stream, a line of JSON each."""

    async def work(app: Stepwell) -> None:
        async for row in app.engine.talking.items(id, name, after, follow=follow):
            line = {
                "offset": row.offset,
                "value": app.codec.to_json(row.value),
                "at": iso(utc(row.at)),
                "path": row.path,
                "attempt": row.attempt,
            }
            typer.echo(json.dumps(line))

    in_store(store, work)


def events(
    id: RunArgument,
    store: StoreOption,
    after: Annotated[
        str, typer.Option(metavar="POSITION", help="Only what came after this position.")
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on until the run has ended.")
    ] = False,
) -> None:
    """Print what has happened to a run, as lines of JSON."""
    with refusals():
        try:
            position = position_of(after)
        except ValueError as error:
            raise Refusal(f"--after: {error}") from None

    async def work(app: Stepwell) -> None:
        async for line in _lines(app, run_id(id), position, follow=follow):
            typer.echo(json.dumps(line))

    in_store(store, work)


async def _lines(
    app: Stepwell, id: str, position: tuple[int, int, int], *, follow: bool
) -> AsyncGenerator[Shape]:
    async for one in entries(app, id, position, follow=follow):
        event = one.event
        if isinstance(event, Audit):
            yield {
                "position": one.position,
                "at": iso(event.at),
                "action": event.action,
                "actor": event.actor,
                "reason": event.reason,
            }
        else:
            yield {
                "position": one.position,
                "at": None if event.ended_at is None else iso(event.ended_at),
                "kind": event.kind,
                "name": event.name,
                "path": event.path,
                "outcome": event.outcome,
                "attempt": event.attempt,
                "error": None if event.error is None else repr(event.error),
            }

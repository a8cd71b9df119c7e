"""`stepwell logs`: what runs log while they run."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import typer

from stepwell._app.app import Stepwell
from stepwell._app.reports import LogLine
from stepwell.cli import _print as out
from stepwell.cli._client import in_store
from stepwell.cli._options import JsonOption, RunArgument, StoreOption
from stepwell.cli._shapes import Shape, iso

LOOK_EVERY = 1.0  # seconds


def add_to(app: typer.Typer) -> None:
    app.command()(logs)


def logs(
    id: RunArgument,
    store: StoreOption,
    after: Annotated[
        int, typer.Option(min=0, metavar="N", help="Only lines with a higher number.")
    ] = 0,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many lines.")] = 1000,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with new lines until the run has ended.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print what a run has logged, oldest first."""
    if follow and as_json:
        raise typer.BadParameter("--json prints one document, and --follow goes on: give one")

    async def work(app: Stepwell) -> list[LogLine]:
        if follow:
            await tail(app, id, after)
            return []
        return await app.logs(id, after=after, limit=limit)

    found = in_store(store, work)
    if as_json:
        out.document([line_shape(line) for line in found])
    else:
        for line in found:
            typer.echo(line_text(line))
        if len(found) == limit:
            typer.echo(f"there may be more: --after {found[-1].number}", err=True)


async def tail(app: Stepwell, id: str, after: int) -> None:
    ended = asyncio.ensure_future(app.engine.store.wait_ended(id))
    try:
        while True:
            over = ended.done()
            found = await app.logs(id, after=after)
            for line in found:
                typer.echo(line_text(line))
                after = line.number
            if over and not found:
                return
            if not found:
                await asyncio.wait((ended,), timeout=LOOK_EVERY)
    finally:
        ended.cancel()
        await asyncio.gather(ended, return_exceptions=True)


def line_text(line: LogLine) -> str:
    """Return a line for people: when, which step and attempt, text, fields."""
    attempt = f"#{line.attempt}" if line.attempt > 1 else ""
    where = " ".join(part for part in (line.path, attempt) if part)
    fields = [f"{out.one_line(name)}={shown(value)}" for name, value in line.fields.items()]
    parts = (out.when(line.at), f"[{where}]" if where else "", out.one_line(line.text), *fields)
    return " ".join(part for part in parts if part)


def shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return out.one_line(text)


def line_shape(line: LogLine) -> Shape:
    return {
        "number": line.number,
        "at": iso(line.at),
        "text": line.text,
        "fields": dict(line.fields),
        "path": line.path,
        "attempt": line.attempt,
    }

"""The command that tries the code at hand on stored journals, before it is deployed."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import redirect_stdout
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from stepwell._app.app import Stepwell
from stepwell._app.replays import Replayed
from stepwell.cli import _print as out
from stepwell.cli._client import existing, opened
from stepwell.cli._loading import app_of, imported, split
from stepwell.cli._look import StatusOption
from stepwell.cli._options import JsonOption, NameOption, OwnStoreOption, moment_of, seconds_of
from stepwell.cli._refusal import FOUND, Refusal, refusals
from stepwell.cli._shapes import Shape
from stepwell.cli._worker import ModuleArgument
from stepwell_queue.clock import SystemClock, utc


def add_to(app: typer.Typer) -> None:
    app.command()(replay)


def since_of(text: str) -> datetime:
    """Return a moment, or that of a span such as 30d ago."""
    try:
        ago = seconds_of(text)
    except typer.BadParameter:
        return moment_of(text)
    return utc(SystemClock().now() - ago)


def replay(
    module: ModuleArgument,
    store: OwnStoreOption = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="Instead of a store: what `stepwell export` wrote; repeat for several.",
        ),
    ] = None,
    status: StatusOption = None,
    name: NameOption = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            parser=since_of,
            metavar="SPAN",
            help="Only runs that were made within it (12h, 30d), or since a moment (ISO 8601).",
        ),
    ] = None,
    allow_no_code: Annotated[
        bool,
        typer.Option("--allow-no-code", help="Runs that this code does not have are no failure."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Try this code on the journals of runs.

    A trial before a deploy, of runs that have not ended, unless --status says which. No step is
    executed, and nothing in the store changes; workers may go on meanwhile. The exit code is 3 if a
    run would not go on.
    """
    with refusals():
        if file and (status or name or since):
            raise Refusal("--status, --name and --since choose among the runs of a store")
        found, attribute = split(module, "MODULE or MODULE:app")
        code = imported(found)
        if file:
            store = "file"  # none is opened, and the module need not name one
        app = app_of(code, attribute, store)
        if not file:
            existing(str(app.settings.store))
        tried = _in_files(app, file) if file else _in_store(app, status, name, since)
        bad, counts = asyncio.run(_told(tried, allow_no_code, as_json))
    if as_json:
        out.document({"ok": not bad, "counts": dict(counts), "failed": bad})
    else:
        total = sum(counts.values())
        parts = [f"{count} {_words(verdict)}" for verdict, count in sorted(counts.items())]
        typer.echo(f"{out.counted(total, 'run')} replayed: {', '.join(parts) or 'none'}")
    if bad:
        raise typer.Exit(FOUND)


async def _in_store(
    app: Stepwell, status: list[str] | None, name: str | None, since: datetime | None
) -> AsyncGenerator[Replayed]:
    async with opened(app):
        async for one in app.replay(status=status or None, name=name, created_after=since):
            yield one


async def _in_files(app: Stepwell, files: list[Path]) -> AsyncGenerator[Replayed]:
    for file in files:
        try:
            for one in app.replay_file(file):
                yield one
        except OSError as error:
            raise Refusal(f"cannot read {file}: {error.strerror}") from None


async def _told(
    tried: AsyncGenerator[Replayed], allow_no_code: bool, as_json: bool
) -> tuple[list[Shape], Counter[str]]:
    """Say of each run that would not go on why, as it is found; return all of them."""
    bad: list[Shape] = []
    counts: Counter[str] = Counter()
    while True:
        with redirect_stdout(sys.stderr):  # whatever the workflow prints
            one = await anext(tried, None)
        if one is None:
            return bad, counts
        counts[one.verdict] += 1
        if one.ok or (allow_no_code and one.verdict == "no_code"):
            continue
        bad.append(replayed_shape(one))
        if not as_json:
            typer.echo(f"{one.id} ({one.name} v{one.version}, {one.status}): {_words(one.verdict)}")
            typer.echo(f"  {out.one_line(one.message)}")


def _words(verdict: str) -> str:
    return verdict.replace("_", " ")


def replayed_shape(one: Replayed) -> Shape:
    return {
        "id": one.id,
        "name": one.name,
        "version": one.version,
        "status": one.status,
        "verdict": one.verdict,
        "message": one.message,
        "records": one.records,
        "path": one.path,
        "recorded": one.recorded,
        "asked": one.asked,
    }

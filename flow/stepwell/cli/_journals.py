"""Commands that write runs to files, and read them back."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from stepwell._app.app import Stepwell
from stepwell.cli import _print as out
from stepwell.cli._client import in_store
from stepwell.cli._look import StatusOption
from stepwell.cli._options import (
    ActorOption,
    AfterOption,
    BeforeOption,
    JsonOption,
    NameOption,
    ReasonOption,
    StoreOption,
    login,
)
from stepwell.cli._refusal import Refusal, refusals

_PAGE = 500


def add_to(app: typer.Typer) -> None:
    app.command()(export)
    app.command("import")(import_)


def export(
    store: StoreOption,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="The ids of the runs.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write there.", show_default="standard output"
        ),
    ] = None,
    children: Annotated[
        bool, typer.Option("--children/--no-children", help="Also all of their children.")
    ] = True,
    status: StatusOption = None,
    name: NameOption = None,
    created_after: AfterOption = None,
    created_before: BeforeOption = None,
) -> None:
    """Write runs with their journals to a file.

    Those of these ids, or those that fit the options: with none of both, all of the store.
    """
    if ids and (status or name or created_after or created_before):
        raise typer.BadParameter("give ids, or options that say which, not both")

    async def chosen(app: Stepwell) -> AsyncGenerator[str]:
        if ids:
            for id in ids:
                yield id
            return
        after: str | None = None
        while page := await app.runs(
            status=status or None,
            name=name,
            created_after=created_after,
            created_before=created_before,
            after=after,
            limit=_PAGE,
        ):
            for run in page:
                yield run.id
            after = page[-1].id

    async def work(app: Stepwell) -> int:
        from stepwell_runtime.journals.writing import written

        count = 0
        buffer: list[bytes] = []
        async for line in written(app.engine.store, app.codec, chosen(app), children=children):
            buffer.append(line)
            count += line.startswith(b'{"line":"run"')
            if len(buffer) == _PAGE:
                await asyncio.to_thread(file.writelines, buffer)
                buffer = []
        await asyncio.to_thread(file.writelines, buffer)
        return count

    with refusals(), _written(output) as file:
        count = in_store(store, work)
    if output is not None:
        typer.echo(f"wrote {out.counted(count, 'run')} to {output}")


@contextmanager
def _written(path: Path | None) -> Generator[BinaryIO]:
    """Have a file written beside, and put it in place once it is whole."""
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.flush()
        return
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(path)
    except OSError as error:
        raise Refusal(f"cannot write {path}: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `stepwell export` wrote.")],
    store: StoreOption,
    reason: ReasonOption = "",
    actor: ActorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Store the runs of an exported file.

    All or none. Those that had ended have ended; all others are paused, whatever they did, and
    nothing of them is executed before `stepwell resume` asks for it.
    """
    who = login() if actor is None else actor

    async def work(app: Stepwell) -> list[str]:
        try:
            return await app.import_runs(file, reason=reason, actor=who)
        except OSError as error:
            raise Refusal(f"cannot read {file}: {error.strerror}") from None

    imported = in_store(store, work, new=True)
    if as_json:
        out.document({"imported": imported})
    else:
        count = len(imported)
        typer.echo(f"imported {out.counted(count, 'run')} from {file}")
        typer.echo("what had not ended is paused: `stepwell resume ID` lets it go on", err=True)

"""The command that looks for mistakes in workflow code, without running or importing it."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from stepwell.cli import _print as out
from stepwell.cli._loading import split
from stepwell.cli._options import JsonOption
from stepwell.cli._refusal import MISUSED, REFUSED, Refusal
from stepwell.cli._shapes import Shape

MODULES = "MODULE..."


def add_to(app: typer.Typer) -> None:
    app.command()(check)


def check(
    modules: Annotated[
        list[str],
        typer.Argument(
            metavar=MODULES, help="Modules, as in an import; of a package, all in it are checked."
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Find in workflow code what cannot be replayed.

    Clock, chance, I/O, tasks, sets and so on. Reads the files and imports nothing, so neither
    services nor a store must be there. Exits with 1 if it finds something.
    """
    from stepwell.checking import CannotCheck, check_modules

    here = os.getcwd()  # noqa: PTH109 - sys.path holds strings
    path = [here, *(entry for entry in sys.path if entry not in ("", here))]
    try:
        for module in modules:
            if split(module, "MODULE, as in an import statement")[1] is not None:
                raise Refusal(f"{module!r}: a module is checked as a whole, leave out the colon")
        problems = [replace(one, file=_short(one.file)) for one in check_modules(modules, path)]
    except (Refusal, CannotCheck) as error:
        typer.echo(f"stepwell: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(MISUSED) from None
    if as_json:
        shapes: list[Shape] = [{**asdict(one), "file": str(one.file)} for one in problems]
        out.document(shapes)
    else:
        for one in problems:
            typer.echo(str(one))
        files = len({one.file for one in problems})
        where = f", in {files} file{'s' * (files > 1)}" if files else ""
        typer.echo(f"stepwell: {len(problems) or 'nothing'} found{where}", err=True)
    if problems:
        raise typer.Exit(REFUSED)


def _short(file: Path) -> Path:
    """Return the path as one types it here; what is elsewhere stays whole."""
    here = Path.cwd()
    return file.relative_to(here) if file.is_relative_to(here) else file

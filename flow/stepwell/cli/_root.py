"""The command and what holds for all of its subcommands."""

from __future__ import annotations

import io
import sys
from importlib import metadata
from typing import Annotated

import typer

from stepwell.cli import (
    _check,
    _dead_letters,
    _journals,
    _look,
    _ping,
    _prune,
    _queues,
    _replay,
    _reports,
    _schedules,
    _server,
    _start,
    _steer,
    _steer_many,
    _talk,
    _worker,
)
from stepwell.cli._logs import log_to_stderr

app = typer.Typer(
    name="stepwell",
    no_args_is_help=True,
    add_completion=False,
    # A rich usage error is a box of several lines; one line is what logs and scripts can take.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
_worker.add_to(app)
_start.add_to(app)
_look.add_to(app)
_reports.add_to(app)
_talk.add_to(app)
_steer_many.add_to(app)
_steer.add_to(app)
_queues.add_to(app)
_dead_letters.add_to(app)
_schedules.add_to(app)
_journals.add_to(app)
_replay.add_to(app)
_check.add_to(app)
_prune.add_to(app)
_server.add_to(app)
_ping.add_to(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"stepwell {metadata.version('stepwell')}")
        raise typer.Exit


@app.callback()
def stepwell(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Run workers, and start, show and steer durable runs."""
    log_to_stderr()


def main() -> None:
    """Run the command line and exit: 0 done, 1 refused, 2 wrong usage, 3 doctor found something."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A stored value may hold what the terminal cannot show: show the rest.
            stream.reconfigure(errors="backslashreplace")
    app()

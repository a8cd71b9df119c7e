"""Options that several commands share."""

from __future__ import annotations

import getpass
import re
from datetime import datetime
from typing import Annotated

import typer

from stepwell import _options as check
from stepwell.cli._logs import LEVELS

STORE = "STEPWELL_STORE"


def seconds_of(text: str) -> float:
    """Return a span such as 90, 90s, 15m, 12h, 30d or 2w in seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is no span: write 90, 90s, 15m, 12h, 30d or 2w")
    unit = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}[found[2]]
    return float(found[1]) * unit


def moment_of(text: str) -> datetime:
    """Return a moment such as 2030-01-31T09:00+01:00; without a zone it is local time."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no moment: write 2030-01-31T09:00") from None
    return found.astimezone()


def queue_of(text: str) -> str:
    try:
        return check.text(text, "NAME") or ""
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def level_of(text: str) -> str:
    if text not in LEVELS:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(LEVELS)}")
    return text


def login() -> str:
    """Return who is working here, for the audit; empty where the system does not know."""
    try:
        return getpass.getuser()
    except (KeyError, ImportError, OSError):  # a container whose user has no name
        return ""


StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        envvar=STORE,
        metavar="STORE",
        help="The store: a file, or a server as tcp://host:port or tls://host:port.",
    ),
]
OwnStoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar=STORE,
        metavar="STORE",
        help="The store to use instead of the one that the app names.",
    ),
]
AfterOption = Annotated[
    datetime | None,
    typer.Option(
        parser=moment_of,
        metavar="MOMENT",
        help="Only from this moment on: ISO 8601; without a zone, local time.",
    ),
]
BeforeOption = Annotated[
    datetime | None,
    typer.Option(
        parser=moment_of,
        metavar="MOMENT",
        help="Only before this moment: ISO 8601; without a zone, local time.",
    ),
]
NameOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only runs of this workflow or task.")
]
QueueOption = Annotated[str | None, typer.Option(metavar="NAME", help="Only runs of this queue.")]
KeyOption = Annotated[str | None, typer.Option(metavar="KEY", help="Only runs with this key.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
RunArgument = Annotated[str, typer.Argument(metavar="ID", help="The id of the run.")]
QueueArgument = Annotated[
    str, typer.Argument(parser=queue_of, metavar="NAME", help="The name of the queue.")
]
ActorOption = Annotated[
    str | None,
    typer.Option(
        "--actor", metavar="NAME", help="Who asks, for the audit.", show_default="the login name"
    ),
]
FullOption = Annotated[
    bool, typer.Option("--full", help="Do not shorten values, and show tracebacks.")
]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the audit.")]
LogLevelOption = Annotated[
    str,
    typer.Option(
        "--log-level", callback=level_of, help=f"What is logged on stderr: {', '.join(LEVELS)}."
    ),
]

"""What cannot be done is said in one line, and ends with exit code 1."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import typer

from stepwell_queue.errors import StepwellError

REFUSED = 1
MISUSED = 2
FOUND = 3


class Refusal(Exception):
    """What was asked cannot be done; the message says why, and what to do."""


@contextmanager
def refusals() -> Generator[None, None, None]:
    """Print what is refused inside as one line on stderr, and exit."""
    try:
        yield
    except (Refusal, StepwellError) as error:
        line = " ".join(str(error).split())
        typer.echo(f"stepwell: {line}", err=True)
        raise typer.Exit(REFUSED) from None

"""Printing: one JSON document, or tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

WIDE = 10_000
SHORT = 80
FOLDED = 16
GAP = 3
# What is copied, typed again or compared is never broken or cut.
WHOLE = ("#", "id", "path", "status", "state", "created", "at", "due", "sent", "took", "outcome")


def document(value: Any) -> None:
    """Print one JSON document; ASCII, so that every terminal and pipe takes it."""
    print(json.dumps(value, indent=2))


def put(shown: RenderableType, least: int = 0) -> None:
    """Print for people; `least` columns are used even where the terminal has fewer."""
    console = _console(None if sys.stdout.isatty() else WIDE)
    if least > console.width:
        console = _console(least)
    console.print(shown)


def _console(width: int | None) -> Console:
    # No markup: what is stored may look like it.
    return Console(file=sys.stdout, width=width, highlight=False, emoji=False, markup=False)


def put_table(
    title: str | None, columns: Sequence[str], rows: Sequence[Sequence[str | Text]]
) -> None:
    made = Table(
        title=title, box=box.SIMPLE_HEAD, title_justify="left", show_edge=False, pad_edge=False
    )
    for column in columns:
        made.add_column(column, no_wrap=column in WHOLE, overflow="fold")
    cells = [[_cell(*one) for one in zip(columns, row, strict=True)] for row in rows]
    for line in cells:
        made.add_row(*line)
    least = GAP * (len(columns) - 1)
    for column, *found in zip(columns, *cells, strict=True):
        width = max(len(column), *(cell.cell_len for cell in found))
        least += width if column in WHOLE else min(width, FOLDED)
    put(made, least)


def _cell(column: str, value: str | Text) -> Text:
    if isinstance(value, Text):
        return value
    if column == "note":  # a listing has a line per run
        return Text(value, no_wrap=True, overflow="ellipsis")
    return Text(value)


def counted(count: int, what: str) -> str:
    """Return a number of things in words: `1 run`, `2 runs`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def when(moment: datetime | None) -> str:
    """Return a moment in local time, to the millisecond."""
    if moment is None:
        return ""
    try:
        local = moment.astimezone()
    except OverflowError:  # the last day of the year 9999
        local = moment
    return local.isoformat(" ", "milliseconds")[:23]


def took(seconds: float) -> str:
    if seconds < 0.9995:
        return f"{max(seconds, 0.0) * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.2f} s"
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "m"), (left, "s"))
    shown = [f"{number} {unit}" for number, unit in parts if number]
    return " ".join(shown[:2])


def between(begin: datetime | None, end: datetime | None) -> str:
    return "" if begin is None or end is None else took((end - begin).total_seconds())


def one_line(text: str, longest: int | None = None) -> str:
    """Return text that moves no cursor and breaks no row."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    if longest is not None and len(text) > longest:
        return text[: longest - 1] + "…"
    return text


def compact(value: object, longest: int | None = SHORT) -> str:
    """Return a value as one line of JSON, cut to `longest` characters; None = whole."""
    return one_line(json.dumps(value, ensure_ascii=False), longest)


_STYLES = {
    "completed": "green",
    "ok": "green",
    "failed": "red",
    "stuck": "red",
    "held": "yellow",
    "rolling_back": "yellow",
    "cancelled": "magenta",
    "terminated": "magenta",
    "expired": "magenta",
    "running": "cyan",
}


def status(word: str) -> Text:
    return Text(word, _STYLES.get(word, ""))

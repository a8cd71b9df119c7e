"""Printing: one JSON document, or tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDE = 10_000
SHORT = 80


def document(value: Any) -> None:
    """Print one JSON document; ASCII, so that every terminal and pipe takes it."""
    print(json.dumps(value, indent=2))


def console() -> Console:
    # Not cut to 80 columns when it goes into a pipe or a file: tables are as wide as they need.
    width = None if sys.stdout.isatty() else WIDE
    return Console(file=sys.stdout, width=width, highlight=False, emoji=False, markup=False)


def table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    made = Table(
        title=title, box=box.SIMPLE_HEAD, title_justify="left", show_edge=False, pad_edge=False
    )
    for column in columns:
        # What is copied and typed again is never cut or broken.
        whole = column in ("id", "path", "#")
        made.add_column(column, no_wrap=whole, overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return made


def when(moment: datetime | None) -> str:
    """Return a moment in local time, to the millisecond."""
    if moment is None:
        return ""
    return moment.astimezone().isoformat(" ", "milliseconds")[:23]


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

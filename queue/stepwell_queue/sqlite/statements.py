"""The SQL of this store, by name: blocks `-- name: x` of the files in `sql/`."""

from __future__ import annotations

from importlib import resources
from typing import Final


def _blocks() -> dict[str, str]:
    blocks: dict[str, str] = {}
    for file in sorted(
        resources.files("stepwell_queue.sqlite").joinpath("sql").iterdir(), key=lambda f: f.name
    ):
        if not file.name.endswith(".sql"):
            continue
        for part in file.read_text("utf-8").split("-- name: ")[1:]:
            name, _, body = part.partition("\n")
            if name.strip() in blocks:
                raise ValueError(f"{file.name}: the block {name.strip()!r} exists twice")
            blocks[name.strip()] = body.strip()
    return blocks


SQL: Final = _blocks()

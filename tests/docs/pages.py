"""The pages of the documentation, and what is fenced in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block. The first word of its info string is the language, the rest is for us."""

    page: Path
    line: int
    language: str
    words: tuple[str, ...]
    text: str


def pages() -> list[Path]:
    """All pages that readers see."""
    top = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md"]
    return [*top, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    found: list[Block] = []
    for fence in FENCE.finditer(text):
        language, *words = fence["info"].split() or [""]
        line = text.count("\n", 0, fence.start()) + 2
        found.append(Block(page, line, language, tuple(words), fence["text"]))
    return found


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()

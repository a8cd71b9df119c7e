"""What the pages say is so: their code runs, prints what they show, and links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import FENCE, ROOT, blocks, name_of, pages

# The reference shows fragments; tests of its own compare it with the code.
FOLLOWED = [
    page
    for page in pages()
    if "reference" not in page.parts
    and any(block.language in ("python", "output") for block in blocks(page))
]
CODE_LIKE_A_LINK = re.compile(r"`[^`\n]*\]\([^`\n]*`")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@pytest.mark.parametrize("page", FOLLOWED, ids=name_of)
def test_the_code_of_a_page_runs_and_prints_what_it_shows(page: Path, tmp_path: Path) -> None:
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "100",
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.docs.follow", str(page)],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def anchors(page: Path) -> set[str]:
    text = FENCE.sub("", page.read_text("utf-8"))
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in HEADING.findall(text)
    }


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_links_lead_to_pages_and_headings_that_are_there(page: Path) -> None:
    text = CODE_LIKE_A_LINK.sub("", FENCE.sub("", page.read_text("utf-8")))
    for link in LINK.findall(text):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: no such file"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


def test_every_page_can_be_reached_from_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    linked = {(ROOT / "docs" / link.partition("#")[0]).resolve() for link in LINK.findall(index)}
    assert set((ROOT / "docs").rglob("*.md")) - {ROOT / "docs" / "index.md"} <= linked


def test_decisions_are_numbered_without_gaps_and_have_titles() -> None:
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert decisions
    for number, path in enumerate(decisions, 1):
        assert re.fullmatch(rf"{number:03}-[a-z0-9-]+\.md", path.name)
        title = rf"# {number:03} \S.+\n\n\S"
        assert re.match(title, path.read_text("utf-8")), f"{path.name} has no title"


def test_the_architecture_names_what_is_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    named = re.findall(r"`((?:flow|runtime|queue)/[^`\s]*)`", text)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_example_of_the_readme_is_short() -> None:
    [example] = [block for block in blocks(ROOT / "README.md") if block.language == "python"]
    code = [line for line in example.text.splitlines() if line.strip()]
    assert len(code) <= 22

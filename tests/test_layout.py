"""The shape of the tree on which imports, packaging and the standard `queue` module depend."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE_OF = {"flow": "stepwell", "runtime": "stepwell_runtime", "queue": "stepwell_queue"}
PLUGIN = "stepwell_pytest"
SOURCES = sorted(path for folder in PACKAGE_OF for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("folder", PACKAGE_OF)
def test_a_source_root_holds_exactly_its_package(folder: str) -> None:
    """An `__init__.py` or loose module in queue/ would replace the standard `queue`."""
    found = {entry.name for entry in (ROOT / folder).iterdir()}
    found -= {"__pycache__", f"{PACKAGE_OF[folder]}.egg-info"}
    assert found == {PACKAGE_OF[folder]} | ({PLUGIN} if folder == "flow" else set())


def test_tests_of_the_queue_are_not_in_a_folder_called_queue() -> None:
    assert not (ROOT / "tests" / "queue").exists()


def test_the_standard_queue_is_importable_from_the_root() -> None:
    code = "import queue; queue.SimpleQueue; print(queue.__file__)"
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert not answer.stdout.startswith(str(ROOT))


@pytest.mark.parametrize("package", PACKAGE_OF.values())
def test_a_package_is_typed(package: str) -> None:
    assert (_folder(package) / "py.typed").exists()


@pytest.mark.parametrize("package", ["stepwell", "stepwell_queue"])
def test_a_package_says_what_is_public(package: str) -> None:
    module = importlib.import_module(package)
    exported: list[str] = module.__all__
    assert len(exported) == len(set(exported))
    assert [name for name in exported if not hasattr(module, name)] == []


def _folder(package: str) -> Path:
    file = importlib.import_module(package).__file__
    assert file is not None
    return Path(file).parent


def test_every_public_name_is_in_the_reference() -> None:
    pages = [page.read_text("utf-8") for page in (ROOT / "docs" / "reference").rglob("*.md")]
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`\n]+`", "\n".join(pages)))))
    for module in ("stepwell", "stepwell.testing"):
        public: list[str] = importlib.import_module(module).__all__
        assert [name for name in public if name not in words] == []


def test_a_long_file_is_an_exception() -> None:
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in SOURCES}
    longest = {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > 600}
    assert not longest
    assert sum(n > 300 for n in lengths.values()) <= len(SOURCES) // 8


def test_functions_are_short() -> None:
    sizes = sorted(size for path in SOURCES for size in _function_sizes(path))
    assert sizes[int(len(sizes) * 0.9)] <= 33
    assert sizes[len(sizes) // 2] <= 10


def _function_sizes(path: Path) -> list[int]:
    tree = ast.parse(path.read_text("utf-8"))
    return [
        node.end_lineno - node.lineno + 1
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    ]

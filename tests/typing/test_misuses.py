"""The type checkers point out each misuse, and nothing else."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
MISUSES = Path(__file__).parent / "misuses.txt"
EXPECTED = {
    number
    for number, line in enumerate(MISUSES.read_text("utf-8").splitlines(), 1)
    if line.endswith("# expect-error")
}
SOURCES = [ROOT / name for name in ("flow", "runtime", "queue")]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    # Kept as .txt, so that the checks of the repository do not meet it.
    return Path(shutil.copy(MISUSES, tmp_path / "misuses.py"))


def checker(name: str) -> list[str]:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    return [sys.executable, "-m", name]


def output(command: list[str], cwd: Path) -> str:
    answer = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=280, check=False
    )
    assert answer.returncode == 1, answer.stdout + answer.stderr
    return answer.stdout


@pytest.mark.blocking
def test_mypy_finds_each_misuse(program: Path) -> None:
    config = program.with_name("mypy.ini")
    paths = ":".join(map(str, SOURCES))
    config.write_text(f"[mypy]\nstrict = true\nmypy_path = {paths}\n")
    found = output([*checker("mypy"), "--config-file", str(config), str(program)], program.parent)
    assert lines(re.findall(r"^misuses\.py:(\d+): error:", found, re.MULTILINE)) == EXPECTED, found


@pytest.mark.blocking
def test_pyright_finds_each_misuse(program: Path) -> None:
    settings: dict[str, Any] = {
        "include": ["misuses.py"],
        "extraPaths": [str(path) for path in SOURCES],
        "typeCheckingMode": "strict",
        # Assigned to show their type, and not looked at again.
        "reportUnusedVariable": False,
    }
    program.with_name("pyrightconfig.json").write_text(json.dumps(settings))
    command = [*checker("pyright"), "--outputjson", "--pythonpath", sys.executable]
    report = json.loads(output(command, program.parent))["generalDiagnostics"]
    errors = [one for one in report if one["severity"] == "error"]
    where = {one["range"]["start"]["line"] + 1: one["message"] for one in errors}
    assert set(where) == EXPECTED, where


def lines(numbers: list[str]) -> set[int]:
    return {int(number) for number in numbers}

"""What `import stepwell` costs, seen from a fresh process."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOADED_ON_USE = ("aiosqlite", "httpx", "pydantic", "rich", "sqlite3", "typer", "click")


def _fresh(code: str) -> str:
    answer = subprocess.run(
        [sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True
    )
    return answer.stdout.strip()


@pytest.mark.parametrize("package", ["stepwell", "stepwell_runtime", "stepwell_queue"])
def test_importing_loads_nothing_that_only_some_programs_use(package: str) -> None:
    loaded = _fresh(
        f"import sys; before = set(sys.modules); import {package}\n"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    ).split()
    assert not set(loaded) & set(LOADED_ON_USE)


def test_importing_changes_no_setting_of_the_process() -> None:
    before_and_after = _fresh(
        "import sys, signal\n"
        "def settings():\n"
        "    return sys.getswitchinterval(), signal.getsignal(signal.SIGTERM), sys.excepthook\n"
        "before = settings()\n"
        "import stepwell\n"
        "print(before == settings())"
    )
    assert before_and_after == "True"


def test_the_time_of_an_import_is_shown() -> None:
    """Only shown: a time asserted on a shared machine fails by chance."""
    code = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"
    seconds = {name: float(_fresh(code.format(name))) for name in ("asyncio", "stepwell")}
    print(f"import asyncio {seconds['asyncio']:.3f} s, import stepwell {seconds['stepwell']:.3f} s")
    assert seconds["stepwell"] > 0

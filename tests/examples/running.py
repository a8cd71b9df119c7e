"""Examples as their readers run them: processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(
    module: str, *arguments: str | Path, timeout: float = 120.0
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(module, arguments),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def run_and_kill(module: str, *arguments: str | Path, at: str) -> str:
    """Kill it with SIGKILL as soon as it prints `at`; return what it had printed."""
    printed: list[str] = []
    with subprocess.Popen(
        command(module, arguments), cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            printed.append(line)
            if at in line:
                process.kill()
                break
    assert process.returncode == -9, "it ended before it could be killed"
    return "".join(printed)


def command(module: str, arguments: tuple[str | Path, ...]) -> list[str]:
    return [sys.executable, "-m", module, *map(str, arguments)]

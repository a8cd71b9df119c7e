"""The installed command in processes of its own, servers among them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
STEPWELL = Path(sys.executable).with_name("stepwell")
PATIENCE = 60.0


@dataclass(frozen=True)
class Answer:
    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.stderr
        return json.loads(self.stdout)


def environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("STEPWELL_")}
    return {**kept, **more}


def shell(*arguments: str | Path, cwd: Path = ROOT, **env: str) -> Answer:
    """Run the installed command in a process of its own."""
    done = subprocess.run(
        [STEPWELL, *arguments],
        cwd=cwd,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class Served:
    process: subprocess.Popen[str]
    told: dict[str, Any]

    @property
    def address(self) -> str:
        return str(self.told["address"])

    @property
    def port(self) -> int:
        return int(self.told["port"])

    def logged(self, event: str) -> str:
        """Wait until the server has logged this, and return the line."""
        assert self.process.stderr is not None
        return next(line for line in self.process.stderr if event in line)

    def stop(self, number: int) -> str:
        """Send a signal, wait until the server has ended, and return its log."""
        self.process.send_signal(number)
        stdout, stderr = self.process.communicate(timeout=PATIENCE)
        assert stdout == ""  # the address was the only line
        return stderr


@contextmanager
def serving_store(
    store: Path, *options: str | Path, port: int = 0, cwd: Path = ROOT, **env: str
) -> Generator[Served]:
    """Serve a store; kill the server if the test has not ended it."""
    with subprocess.Popen(
        [STEPWELL, "server", "--store", store, "--port", str(port), "--json", *options],
        cwd=cwd,
        env=environment(**env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            line = process.stdout.readline()
            assert line, process.stderr.read()
            yield Served(process, json.loads(line))
        finally:
            if process.poll() is None:
                process.kill()

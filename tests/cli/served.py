"""A server in a process of its own, for the tests of the command."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.conftest import ROOT, STEPWELL, environment

PATIENCE = 60.0


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

"""Builds the recorder and runs a process under it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("recorder.c")


def build_recorder(folder: Path) -> Path:
    """Compile the preloaded library. Fails the test when there is no C compiler."""
    named = os.environ.get("CC")
    compiler = shutil.which(named) if named else shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.fail(
            "the power-cut tests need a C compiler: install one (apt-get install gcc libc6-dev) "
            "or name it in CC"
        )
    library = folder / "recorder.so"
    command = [compiler, "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    built = subprocess.run(
        [*command, "-o", str(library), str(SOURCE), "-ldl", "-pthread"],
        capture_output=True,
        text=True,
    )
    if built.returncode:
        pytest.fail(f"{compiler} could not build {SOURCE.name}:\n{built.stderr}")
    return library


def start_recorded(
    library: Path, record: Path, folder: Path, script: Path, *arguments: str
) -> subprocess.Popen[bytes]:
    """Start a script whose acts on `folder` go into `record`; its stdout are its reports."""
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "STEPWELL_RECORD": str(record),
        "STEPWELL_RECORD_FOLDER": str(folder.resolve()),
        "STEPWELL_RECORD_REPORT": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-I", str(script), *arguments],
        stdout=subprocess.PIPE,
        env=environment,
    )

"""`bench` is a program of the repository, not a part of the distribution."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# At the end: before the standard library, the folder `queue` could be taken for its module.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from bench import samples
from bench.spec import Measured, Spec

EXECUTIONS = 20
Sampled = Callable[[str], tuple[Spec, Path]]


@pytest.fixture(scope="session")
def measured_once(tmp_path_factory: pytest.TempPathFactory) -> Sampled:
    """Measures each scenario or workload once, for all tests."""
    made: dict[str, tuple[Spec, Path]] = {}

    def sampled(name: str) -> tuple[Spec, Path]:
        if name not in made:
            spec = Spec(name, EXECUTIONS, 4, "process", keys=4, rate=40, pending=8)
            folder = tmp_path_factory.mktemp(name)
            samples.part("measure", spec, folder, Measured)
            made[name] = spec, folder
        return made[name]

    return sampled


@pytest.fixture
def sampled(measured_once: Sampled, tmp_path: Path) -> Sampled:
    """Returns a sample of a scenario or workload in a folder that the test may change."""

    def copied(name: str) -> tuple[Spec, Path]:
        spec, folder = measured_once(name)
        return spec, shutil.copytree(folder, tmp_path / name)

    return copied

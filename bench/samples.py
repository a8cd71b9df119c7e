"""Takes the samples: three processes and a new folder for each."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from bench.answer import UNRECONCILED
from bench.spec import Floor, Measured, Spec, Unreconciled

ROOT: Final = Path(__file__).resolve().parent.parent
T = TypeVar("T")


class Sample(msgspec.Struct, frozen=True):
    measured: Measured
    floor: Floor
    latencies: list[float]


class BrokenSample(Exception):
    """A process of a sample died; the message holds what it said."""


def take(spec: Spec, runs: int, place: Path | None) -> Iterator[Sample]:
    """Yield so many reconciled samples, made in folders under `place`; None: the temporary one."""
    for _ in range(runs):
        with tempfile.TemporaryDirectory(prefix="stepwell-bench-", dir=place) as folder:
            yield take_one(spec, Path(folder))


def take_one(spec: Spec, folder: Path) -> Sample:
    """Raises Unreconciled, BrokenSample."""
    measured = part("measure", spec, folder, Measured)
    stored = part("reconcile", spec, folder, list[float])
    floor = part("floor", spec, folder, Floor)
    # Tasks that are drained have no client that waits for each: the store has their times.
    latencies = measured.latencies or stored
    return Sample(measured, floor, sorted(latencies))


def part(name: str, spec: Spec, folder: Path, kind: type[T]) -> T:
    command = ["-m", "bench.sample", name, msgspec.json.encode(spec).decode(), str(folder)]
    return msgspec.json.decode(child(command), type=kind)


def child(arguments: list[str]) -> bytes:
    """What a Python process says that was started in the root of the repository."""
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, check=False)
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode == UNRECONCILED:
        raise Unreconciled(said)
    if done.returncode:
        raise BrokenSample(f"{' '.join(arguments[:3])} ended with {done.returncode}:\n{said}")
    if said:
        print(said, file=sys.stderr)
    return done.stdout

"""Plain functions that child processes execute: they import this module, and not the test's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from stepwell import GiveUp, Retry, RetryLater, current_app, current_job, emit, step, task

ROOT = Path(__file__).resolve().parents[2]
"""Where a child process finds this module; a test puts it on the path."""


class Odd(Exception):
    """Cannot be made again from its `args`."""

    def __init__(self, number: int, unit: str) -> None:
        super().__init__(f"{number} {unit}")
        self.number = number


@task(executor="process")
def square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


@task(executor="process")
def tells() -> tuple[str, str, int, str, str, dict[str, object]]:
    job = current_job()
    return job.kind, job.name, job.attempt, job.key, job.queue, dict(job.arguments)


@task(executor="process")
def tells_when() -> float:
    return current_job().scheduled_at.timestamp()


@task
def tells_in_a_thread() -> str:
    return current_job().key


@task(executor="process")
def raises_odd() -> None:
    raise Odd(3, "m")


@task(executor="process")
def asks_for_the_app() -> None:
    current_app()


@task(executor="process")
def returns_what_cannot_be_stored() -> Any:
    return sys.stdout


@task(executor="process")
def prints(text: str) -> str:
    print(text)
    sys.stdout.flush()
    return text


@task(executor="process")
def reports() -> None:
    current_job().report(0.5, "half")
    current_job().log("reading", rows=3)


@task(executor="process")
def leaves() -> None:
    raise SystemExit(4)


def came(folder: Path) -> int:
    """Leave a file for each time that this was called in the folder; return how many there are."""
    (folder / f"{time.monotonic_ns()}.came").touch()
    return len(list(folder.glob("*.came")))


@task(executor="process", retry=Retry(attempts=3, delay=0.0))
def exits(folder: Path, code: int) -> int:
    if came(folder) == 1:
        os._exit(code)
    return current_job().attempt


@task(executor="process")
def is_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@step(executor="process", retry=Retry(attempts=2, delay=0.0))
def step_is_killed(folder: Path) -> int:
    if came(folder) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return current_job().attempt


def announces(folder: Path) -> None:
    """Say which process this is, and which one it has started, and stay for ever."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        (folder / "new").write_text(f"{os.getpid()} {started.pid}")
        (folder / "new").rename(folder / "pids")
        signal.pause()


@task(executor="process", timeout=0.05)
def stays_too_long(folder: Path) -> None:
    announces(folder)


@task(executor="process")
def stays(folder: Path) -> None:
    announces(folder)


@task(executor="process", retry=Retry(attempts=5))
def gives_up() -> None:
    raise GiveUp("for good")


@task(executor="process", retry=Retry(attempts=2))
def comes_later(folder: Path) -> int:
    if came(folder) < 4:
        raise RetryLater(0.0)
    return current_job().attempt


@task(executor="process", batch=10)
def halves(numbers: list[int]) -> list[int | Exception]:
    return [number // 2 if number % 2 == 0 else Odd(number, "halves") for number in numbers]


@step(executor="process")
def emits() -> None:
    emit("lines", "process")

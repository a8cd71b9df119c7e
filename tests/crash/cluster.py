"""A server, workers and a client as processes, which are killed and started again."""

from __future__ import annotations

import json
import math
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from types import TracebackType
from typing import IO, Self

from tests.crash import client, flows
from tests.crash.effects import Effects

ROOT = Path(__file__).resolve().parents[2]
STEPWELL = Path(sys.executable).with_name("stepwell")
PATIENCE = 60.0
NEXT_STEP = 0.5  # seconds
STEP_TAKES = 0.15
"""Seconds: long enough for a kill to hit some."""


class Process:
    """One program, run again and again; its log stays beside the store."""

    def __init__(self, command: Sequence[str | Path], log: Path) -> None:
        self._command, self._log = command, log
        self._process: subprocess.Popen[bytes]
        self.killed: set[int] = set()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log
            )

    def announced(self) -> bytes:
        """Return the one line that it prints once it works, or what there is left of it."""
        stdout: IO[bytes] | None = self._process.stdout
        assert stdout is not None
        if stdout.closed:
            return b""
        with stdout:
            line = stdout.readline()
        assert line, f"{self._log} says why it ended"
        return line

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        self.announced()
        return self._process.wait(PATIENCE)

    def kill(self) -> None:
        assert self._process.poll() is None, f"{self._log} says why it ended"
        self.make_sure_it_is_gone()
        self.killed.add(self.pid)

    def make_sure_it_is_gone(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class Server(Process):
    """`stepwell server`, at the same address whenever it is started."""

    def __init__(self, file: Path, lease: float) -> None:
        port = free_port()
        command: list[str | Path] = [
            STEPWELL,
            "server",
            "--store",
            file,
            "--port",
            str(port),
            "--json",
        ]
        command += ["--lease", str(lease), "--durability", "process"]
        super().__init__(command, file.with_suffix(".server.log"))
        self.address = f"tcp://127.0.0.1:{port}"

    def start(self) -> None:
        """Return once it listens."""
        super().start()
        assert json.loads(self.announced())["address"] == self.address


def free_port() -> int:
    """Return a port that no outgoing connection is given, so that it is free after a restart."""
    rng = Random()
    while True:
        port = rng.randrange(10_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class Cluster:
    """A server, so many workers, and perhaps a client; leaves none behind."""

    def __init__(self, folder: Path, workers: int, lease: float) -> None:
        self.file = folder / "orders.db"
        self.effects = Effects(folder / "effects")
        self.diary = folder / "diary"
        self._phases = folder / "phases"
        self._phases.touch()
        self.server = Server(self.file, lease)
        self.workers = [self._worker(number) for number in range(workers)]
        self.client: Process | None = None
        self._life = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as life:
            self._start(self.server, life)
            for worker in self.workers:
                self._start(worker, life)
            self._life = life.pop_all()
        return self

    def _worker(self, number: int, store: str | Path | None = None) -> Process:
        command: list[str | Path] = [sys.executable, "-m", flows.__name__]
        command += [store or self.server.address, self.effects.file, str(STEP_TAKES)]
        return Process(command, self.file.with_name(f"worker-{number}.log"))

    def _start(self, process: Process, life: ExitStack) -> None:
        process.start()
        life.callback(process.make_sure_it_is_gone)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._life.close()

    def start_worker(self, store: Path | None = None) -> Process:
        """Start one more, over TCP or on the file, and return once it is connected."""
        worker = self._worker(len(self.workers), store)
        self.workers.append(worker)
        self._start(worker, self._life)
        worker.announced()
        return worker

    def start_client(self, runs: int, seed: str, phases: int = 1) -> Process:
        """Start a client, which is in the first phase of its work."""
        command: list[str | Path] = [sys.executable, "-m", client.__name__]
        command += [self.server.address, self.diary, str(runs), seed]
        command += [self._phases, str(math.ceil(runs / phases))]
        self.client = Process(command, self.diary.with_suffix(".log"))
        self._start(self.client, self._life)
        self.next_phase()
        return self.client

    def next_phase(self) -> None:
        """Let the client go on, once everybody is there."""
        self.everybody_is_connected()
        with self._phases.open("ab") as file:
            file.write(b".")

    @property
    def killed_workers(self) -> set[int]:
        return set[int]().union(*(worker.killed for worker in self.workers))

    def wait_for_effects(self, count: int) -> None:
        """Return when so many effects were seen."""
        # The log is the only sign that other processes give.
        self.wait_until(lambda: self.effects.count() >= count)

    def busy_worker(self) -> Process:
        """Return the one that began a step last: just now, unless all wait for what comes next."""
        seen, late = self.effects.count(), time.monotonic() + NEXT_STEP
        while self.effects.count() == seen and time.monotonic() < late:
            time.sleep(0.0005)
        by_pid = {worker.pid: worker for worker in self.workers}
        begun = [effect.process for effect in self.effects.all() if effect.process in by_pid]
        return by_pid[begun[-1]] if begun else self.workers[0]

    def wait_until(self, there: Callable[[], bool]) -> None:
        late = time.monotonic() + PATIENCE
        while not there():
            assert time.monotonic() < late, f"nothing happened for {PATIENCE:g} seconds"
            time.sleep(0.005)

    def everybody_is_connected(self) -> None:
        """Return when it is so: a first connection that is refused is an error, by design."""
        for process in (*self.workers, self.client):
            if process is not None:
                process.announced()

    def end(self) -> None:
        """Stop in order; each process must end as asked."""
        self.everybody_is_connected()
        for worker in self.workers:
            worker.send(signal.SIGTERM)
        # One that was started only just now has no handler for SIGTERM yet.
        assert {worker.wait() for worker in self.workers} <= {0, -signal.SIGTERM}
        self.server.send(signal.SIGTERM)
        assert self.server.wait() == 0

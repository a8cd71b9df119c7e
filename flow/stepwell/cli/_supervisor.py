"""`stepwell worker --processes N`: keeps N worker processes running."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass

from stepwell._app.shutdown import StopRequests
from stepwell.cli import _notify
from stepwell.cli._refusal import MISUSED, REFUSED
from stepwell.cli._supervised import LINE, STOP, STOP_NOW
from stepwell_runtime.log import log

SETTLED = 30.0
"""Seconds after which a death has nothing to do with the one before."""
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0
"""Seconds before a dead worker is replaced: after its first death, and after many in a row."""
HOPELESS = 3
"""How many deaths in a row, before it served, make up a worker that cannot be started."""


@dataclass(eq=False)
class Child:
    """One worker process; `line` ends in it, and closes when this process dies."""

    process: asyncio.subprocess.Process
    line: socket.socket
    serves: bool = False

    def tell(self, message: bytes) -> None:
        with contextlib.suppress(OSError):  # it has died, which is noticed elsewhere
            self.line.send(message)


class Supervisor:
    """Starts this process's own command line anew, `processes` times.

    `name`: what the workers are called, with a number behind; None = by host and process.
    """

    def __init__(self, processes: int, name: str | None) -> None:
        self._processes, self._name = processes, name
        self._children: set[Child] = set()
        self._stopping = asyncio.Event()
        self._first_serves = asyncio.Event()
        self._all_serve = False
        self._code = 0

    async def run(self) -> int:
        """Serve until SIGTERM or SIGINT, and return the exit code."""
        with StopRequests() as requests:
            requests.on_second(lambda: self._stop(STOP_NOW))
            asked = asyncio.create_task(self._stop_when_asked(requests))
            # One goes ahead: what cannot be started is said once, and a new store made once.
            keepers = [asyncio.create_task(self._keep(1))]
            first = asyncio.create_task(self._first_serves.wait())
            await asyncio.wait([first, *keepers], return_when=asyncio.FIRST_COMPLETED)
            if first.done():
                more = range(2, self._processes + 1)
                keepers += [asyncio.create_task(self._keep(number)) for number in more]
            await asyncio.gather(*keepers)
            for task in (asked, first):
                task.cancel()
        return self._code

    async def _stop_when_asked(self, requests: StopRequests) -> None:
        await requests.first.wait()
        self._stop(STOP)

    def _stop(self, how: bytes) -> None:
        if not self._stopping.is_set():
            log.info("workers_stop", processes=len(self._children))
            _notify.notify(_notify.STOPPING)
        self._stopping.set()
        for child in self._children:
            child.tell(how)

    async def _keep(self, number: int) -> None:
        """Have the worker of this number running, until all are to stop."""
        loop = asyncio.get_running_loop()
        deaths = 0
        while not self._stopping.is_set():
            begun = loop.time()
            child = await self._start(number)
            code = await self._end_of(child)
            if self._stopping.is_set():
                self._note_end(child, code)
                return
            if code == 0 and child.serves:  # it has had its share, or somebody has stopped it
                log.info("worker_replaced", worker=number, pid=child.process.pid)
                deaths = 0
                continue
            deaths = deaths + 1 if loop.time() - begun < SETTLED else 1
            if not child.serves and self._hopeless(code, deaths):
                log.error("worker_cannot_start", worker=number, deaths=deaths, **how_it_ended(code))
                self._code = code if code > 0 else 128 - code
                self._stop(STOP)
                return
            pause = min(FIRST_PAUSE * 2 ** (deaths - 1), LONGEST_PAUSE)
            log.warning(
                "worker_died",
                worker=number,
                pid=child.process.pid,
                again_in=pause,
                **how_it_ended(code),
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()

    def _hopeless(self, code: int, deaths: int) -> bool:
        if code in (REFUSED, MISUSED) and not self._first_serves.is_set():
            return True  # it has said why, and would say it again
        # While others serve, what is in the way (a server that is restarted, say) may pass.
        return deaths >= HOPELESS and not any(child.serves for child in self._children)

    def _note_end(self, child: Child, code: int) -> None:
        if code not in (0, -signal.SIGTERM):  # by SIGTERM: before it served
            log.warning("worker_ended_badly", pid=child.process.pid, **how_it_ended(code))
            self._code = self._code or 1

    async def _start(self, number: int) -> Child:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        environment = {**os.environ, LINE: str(theirs.fileno())}
        environment.pop("NOTIFY_SOCKET", None)  # it is this process that systemd listens to
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *self._command(number),
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl+C is for this process, which passes it on
            )
        child = Child(process, ours)
        self._children.add(child)
        if self._stopping.is_set():
            child.tell(STOP)
        return child

    def _command(self, number: int) -> list[str]:
        given = sys.argv[1:]
        interpreter = sys.orig_argv[1 : len(sys.orig_argv) - len(given)]
        if self._name is not None:
            at = given.index("--") if "--" in given else len(given)
            given[at:at] = ["--name", f"{self._name}-{number}"]  # of two, the last is taken
        return [sys.executable, *interpreter, *given]

    async def _end_of(self, child: Child) -> int:
        listening = asyncio.create_task(self._listen(child))
        try:
            return await child.process.wait()
        finally:
            listening.cancel()
            await asyncio.wait([listening])
            if not child.serves:  # it may have begun, and ended, before this was looked at
                with contextlib.suppress(OSError):
                    self._note_ready(child, child.line.recv(1))
            self._children.remove(child)
            child.line.close()

    async def _listen(self, child: Child) -> None:
        self._note_ready(child, await asyncio.get_running_loop().sock_recv(child.line, 1))

    def _note_ready(self, child: Child, said: bytes) -> None:
        if not said:
            return
        child.serves = True
        self._first_serves.set()
        if not self._all_serve and sum(one.serves for one in self._children) == self._processes:
            self._all_serve = True
            log.info("workers_serve", processes=self._processes)
            _notify.notify(_notify.READY)


def how_it_ended(code: int) -> dict[str, object]:
    if code >= 0:
        return {"exit_code": code}
    try:
        return {"signal": signal.Signals(-code).name}
    except ValueError:  # a real-time signal
        return {"signal": -code}

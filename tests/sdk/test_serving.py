"""A worker that serves: until a signal, within its grace, and where signals cannot be caught."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from stepwell import Stepwell, step, workflow

pytestmark = [pytest.mark.anyio, pytest.mark.blocking]

SERVER = """
import asyncio, signal, sys, threading
from stepwell import Stepwell, step, workflow

released = threading.Event()

@step
async def work(seconds: float) -> str:
    print("working", flush=True)
    await asyncio.sleep(seconds)
    print("worked", flush=True)
    return "done"

@workflow
async def flow(seconds: float) -> str:
    return await work(seconds)

async def main():
    app = Stepwell(sys.argv[1])
    async with app:
        await app.start(flow(float(sys.argv[2])), id="run")
    interval, handler = sys.getswitchinterval(), signal.getsignal(signal.SIGTERM)
    await app.worker(grace=float(sys.argv[3])).run()
    assert (interval, handler) == (sys.getswitchinterval(), signal.getsignal(signal.SIGTERM))
    async with app:
        print("ended", await app.get("run").status())

asyncio.run(main())
"""


@contextmanager
def serving(
    tmp_path: Path, work: float, grace: float
) -> Generator[subprocess.Popen[str], None, None]:
    """Start a process that serves one run; enter once its step is executing."""
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "runs.db"), str(work), str(grace)],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "working\n"
            yield process
        finally:
            process.kill()


def lines(process: subprocess.Popen[str]) -> list[str]:
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return [line for line in output.splitlines() if line.startswith(("worked", "ended"))]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_running_step_end_within_the_grace(
    tmp_path: Path, number: signal.Signals
) -> None:
    with serving(tmp_path, work=0.3, grace=30) as process:
        process.send_signal(number)
        assert lines(process) in (["worked", "ended ready"], ["worked", "ended completed"])


def test_a_step_that_outlives_the_grace_is_handed_back(tmp_path: Path) -> None:
    with serving(tmp_path, work=3600, grace=0.1) as process:
        process.send_signal(signal.SIGTERM)
        assert lines(process) == ["ended ready"]


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    with serving(tmp_path, work=3600, grace=3600) as process:
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.send_signal(signal.SIGINT)
        assert lines(process) == ["ended ready"]


begun = threading.Event()


@step
async def announce() -> int:
    begun.set()
    return 1


@workflow
async def announces() -> int:
    return await announce()


async def test_outside_of_the_main_thread_it_serves_until_it_is_cancelled(
    make_app: Callable[[], Stepwell],
) -> None:
    begun.clear()
    app = make_app()
    async with app:
        await app.start(announces(), id="run")

    async def serve() -> None:
        task = asyncio.create_task(app.worker().run())
        await asyncio.to_thread(begun.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with capture_logs() as logs:
        await asyncio.to_thread(asyncio.run, serve())
    missed = [line["signal"] for line in logs if line["event"] == "signal_not_caught"]
    assert missed == ["SIGTERM", "SIGINT"]
    assert not app.opened
    async with app:
        assert await app.get("run").status() == "completed"


async def test_a_loop_that_cannot_catch_signals_serves_all_the_same(
    app: Stepwell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise NotImplementedError

    begun.clear()
    monkeypatch.setattr(asyncio.get_running_loop(), "add_signal_handler", refuse)
    earlier = signal.getsignal(signal.SIGTERM)
    async with app:
        serving = asyncio.create_task(app.worker().run())
        run = await app.start(announces())
        assert await run.result(timeout=20) == 1
        signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(serving, 20)
    assert signal.getsignal(signal.SIGTERM) is earlier

"""Releases one after the other: each a worker process with code of its own, on one store."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from stepwell import BlockingStepwell, Signal
from tests.cli.served import shell
from tests.cli.test_processes import line_with, supervised

go = Signal("go", int)
_CODE = """
from stepwell import Signal, step, wait_for_signal, workflow

go = Signal("go", int)

@step
async def pay() -> str:
    return "paid"

@step
async def pack() -> str:
    return "packed"

@workflow
async def sale() -> str:
    {body}
"""
_FIRST = "await pay(); return str(await wait_for_signal(go))"
_WRONG = "await pack(); return str(await wait_for_signal(go))"
_FIXED = "await pay(); taken = await wait_for_signal(go); return f'{await pack()} {taken}'"


@pytest.fixture
def releases(tmp_path: Path) -> dict[str, Path]:
    folders: dict[str, Path] = {}
    for name, body in (("first", _FIRST), ("wrong", _WRONG), ("fixed", _FIXED)):
        folders[name] = tmp_path / name
        folders[name].mkdir()
        (folders[name] / "deployed.py").write_text(_CODE.format(body=body))
    return folders


def wait_until(app: BlockingStepwell, status: str, worker: subprocess.Popen[str]) -> None:
    # There is no event for it between processes: its status is asked for.
    while app.info("sale").status != status:
        assert worker.poll() is None


def stop(worker: subprocess.Popen[str]) -> None:
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=30) == 0


def test_code_that_does_not_fit_strands_a_run_until_a_release_with_fitting_code_takes_it_up(
    tmp_path: Path, releases: dict[str, Path]
) -> None:
    store = ("--store", tmp_path / "deployed.db")
    begun = shell("start", "deployed:sale", "--id", "sale", *store, cwd=releases["first"])
    assert begun.code == 0, begun.stderr
    with BlockingStepwell(tmp_path / "deployed.db") as app:
        with supervised("deployed", *store, cwd=releases["first"]) as first:
            wait_until(app, "parked", first)
            stop(first)
        with supervised("deployed", *store, cwd=releases["wrong"]) as wrong:
            app.signal("sale", go, 5)
            assert "step ok 'pay', the code asks for step 'pack'" in line_with(wrong, "run_stuck")
            wait_until(app, "stuck", wrong)
            # Whoever asks for it has it tried at once, by the code that is there.
            assert shell("resume", "sale", "--reason", "again", *store).code == 0
            line_with(wrong, "run_stuck")
            wait_until(app, "stuck", wrong)
            stop(wrong)
        # The next release takes it up by itself.
        with supervised("deployed", *store, cwd=releases["fixed"]) as fixed:
            wait_until(app, "completed", fixed)
            stop(fixed)
        assert app.get("sale").result() == "packed 5"
        assert app.doctor() == []

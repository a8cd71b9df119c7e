"""The fixtures of the plugin, in test runs of projects of their own."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from stepwell.testing import BlockingTestApp
from tests.kit import flows
from tests.kit.flows import Declined, Order, Receipt, approved, charge, checkout

ROOT = Path(__file__).resolve().parents[2]
FLOWS = """
from stepwell import sleep, step, workflow

@step
async def work() -> str:
    return "real"

@workflow
async def month() -> str:
    await sleep(30 * 86400)
    return await work()
"""
TESTS = """
import sys
import pytest
import flows

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.fixture
def stepwell_settings():
    return {"include": [flows]}

def test_plainly(stepwell_blocking_app):
    app = stepwell_blocking_app
    app.stub(flows.work, returns="stubbed")
    assert app.run(flows.month()) == "stubbed"
    assert app.time.month == 1 and app.time.day == 31

@pytest.mark.anyio
async def test_async(stepwell_app):
    run = await stepwell_app.start(flows.month())
    await stepwell_app.advance(31 * 86400)
    assert await run.result() == "real"
"""
OF_OTHERS = """
import sys

def test_nothing_of_it_is_loaded():
    assert "stepwell" not in sys.modules
"""


def pytest_of(folder: Path, **files: str) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    # By its name: a checkout may have been installed before there was an entry point.
    plugin = ["-p", "no:stepwell", "-p", "stepwell_pytest"]
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "--strict-markers", *plugin]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def test_fixtures_serve_async_and_plain_tests(tmp_path: Path) -> None:
    done = pytest_of(tmp_path, flows=FLOWS, test_flows=TESTS)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_projects_that_do_not_use_it_do_not_pay_for_it(tmp_path: Path) -> None:
    done = pytest_of(tmp_path, test_others=OF_OTHERS)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_pytest_finds_the_plugin_by_itself() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"stepwell": "stepwell_pytest"}


def test_a_plain_test_has_the_same_app() -> None:
    with BlockingTestApp(include=[flows]) as app:
        app.stub(charge, returns=Receipt("stub"))
        run = app.start(checkout(Order("o-1")))
        app.signal_at(3600, run, approved, False)
        app.advance(60)
        assert run.status() == "parked"
        with pytest.raises(Declined):
            run.result()
        other = app.start(checkout(Order("o-2")))
        app.cancel_at(60, other)
        app.advance(120)
        assert other.status() == "cancelled"
        assert [call.run_id for call in app.calls(charge)] == [run.id, other.id]
        assert app.unused_stubs() == []
        seen: list[int] = []
        app.at(5, lambda: seen.append(1))
        app.advance_to(app.time.replace(year=2026))
        assert seen == [1]
        app.check()

"""A server is watched while tasks go through it, and what they left is counted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench import memory, server_memory
from bench.cli import main
from bench.reconcile import all_runs
from bench.spec import Unreconciled
from stepwell import Stepwell
from stepwell_queue.contract import RunInfo, Status
from tests.bench.test_cli import refused

TASKS = 40


def test_a_server_is_watched_while_tasks_go_through_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "figures.json"
    main(["memory", "--server", "--tasks", str(TASKS), "--json", str(figures)])
    found: dict[str, Any] = json.loads(figures.read_text("utf-8"))
    assert found.keys() == {
        *("tasks", "durability", "kept", "seconds", "start_mib", "server_mib", "peak_mib"),
        *("growth_mib", "flat"),
    }
    assert (found["tasks"], found["kept"]) == (TASKS, TASKS // memory.POINTS)
    assert len(found["server_mib"]) == memory.POINTS
    assert 0 < min(found["server_mib"]) <= found["peak_mib"]
    assert "40 tasks in" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["memory", "--tasks", "5"], "say --server"),
        (["memory", "--server", "--parked", "5"], "say --tasks"),
        (["memory", "--server", "--finished", "5"], "say --tasks"),
        (["memory", "--server", "--tasks", "none"], "a whole number from 1"),
    ],
)
def test_counts_that_are_for_another_process_are_refused(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complaint in refused(arguments, capsys)


def test_the_command_fails_when_the_memory_of_the_server_grows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def grown(_: list[float]) -> tuple[float, float]:
        return 9.5, 0.2

    monkeypatch.setattr(server_memory, "growth_of", grown)
    assert main(["memory", "--server", "--tasks", "20"]) == 1
    assert "+9.5 MiB: NOT flat" in capsys.readouterr().out


@pytest.fixture
def left(tmp_path: Path) -> list[RunInfo]:
    """The tasks that two of ten are."""

    async def run() -> list[RunInfo]:
        async with Stepwell(
            tmp_path / "a.db", durability="process", include=[server_memory]
        ) as app:
            async with app.worker(concurrency=2) as worker:
                await app.enqueue_many(server_memory.mark(number) for number in range(10))
                await worker.drain()
            await app.prune(keep=2)
            return await all_runs(app)

    server_memory.executions[:] = bytes(10)
    found = asyncio.run(run())
    assert list(server_memory.executions) == [1] * 10
    return found


def test_tasks_that_were_deleted_and_left_are_all_that_there_were(left: list[RunInfo]) -> None:
    server_memory.check_left(left, 10, 10 - len(left))


@pytest.mark.parametrize(
    ("found", "status", "tasks", "complaint"),
    [
        (slice(0, -1), Status.COMPLETED, 10, "10 tasks were enqueued: 10 were stored"),
        (slice(0, 0), Status.COMPLETED, 10, "10 tasks were enqueued: 0 were stored"),
        (slice(None), Status.COMPLETED, 11, "11 tasks were enqueued: 10 were stored"),
        (slice(None), Status.READY, 10, "is ready, not completed"),
    ],
)
def test_a_store_that_lost_or_left_something_does_not_reconcile(
    found: slice, status: Status, tasks: int, complaint: str, left: list[RunInfo]
) -> None:
    runs = [msgspec.structs.replace(run, status=status) for run in left[found]]
    with pytest.raises(Unreconciled, match=complaint):
        server_memory.check_left(runs, tasks, tasks - len(left))


def test_a_task_that_was_executed_twice_does_not_reconcile(tmp_path: Path) -> None:
    server_memory.executions[:] = b"\1\2\1"
    with pytest.raises(Unreconciled, match="2 of 3 tasks were executed exactly once"):
        asyncio.run(server_memory.reconcile(tmp_path / "a.db", 3, 0))

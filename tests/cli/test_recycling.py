"""Workers that stop by themselves, and the limits that the command sets for each queue."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from stepwell.cli._worker import queues_of
from tests.cli.served import PATIENCE, shell
from tests.cli.test_command import SHOP, ended
from tests.cli.test_processes import alive, line_with, supervised


def note(id: str, address: str, queue: str = "default") -> None:
    shell(
        "start", f"{SHOP}:shop_note", "--json", '["hi"]', "--id", id, "--queue", queue,
        "--store", address,
    )  # fmt: skip


def test_a_worker_that_has_had_its_share_is_replaced_at_once_and_has_not_died(
    new_address: str,
) -> None:
    options = ("--processes", "1", "--name", "shop", "--max-jobs", "1", "--store", new_address)
    with supervised(SHOP, *options) as supervisor:
        line_with(supervisor, "workers_serve ")
        pids = {alive(new_address)["shop-1"]}
        for number in range(2):
            note(f"{number}", new_address)
            assert ended(new_address, f"{number}") == "completed"
            assert "reason=max_jobs" in line_with(supervisor, "worker_recycles")
            line_with(supervisor, "worker_stopped")
            line_with(supervisor, "worker_")  # what its supervisor says of it
            while "shop-1" not in (there := alive(new_address)):
                assert supervisor.poll() is None
            pids.add(there["shop-1"])
        supervisor.send_signal(signal.SIGTERM)
        _, stderr = supervisor.communicate(timeout=PATIENCE)
    assert supervisor.returncode == 0, stderr
    assert len(pids) == 3
    assert "worker_died" not in stderr


def test_a_worker_without_a_supervisor_ends_well(new_address: str) -> None:
    note("only", new_address)
    answer = shell("worker", SHOP, "--max-jobs", "1", "--store", new_address)
    assert answer.code == 0, answer.stderr
    assert ended(new_address, "only") == "completed"
    assert alive(new_address) == {}


@pytest.mark.parametrize("options", [(), ("--processes", "2")])
def test_too_little_memory_is_refused_in_one_line(tmp_path: Path, options: tuple[str, ...]) -> None:
    store = tmp_path / "shop.db"
    answer = shell("worker", SHOP, "--max-memory", "1", "--store", store, *options)
    assert answer.code == 1
    (line,) = [line for line in answer.stderr.splitlines() if line.startswith("stepwell: ")]
    assert "max_memory=1 MiB: this process has" in line


def test_a_queue_may_have_a_limit() -> None:
    assert queues_of(["mail=5", "default"]) == {"mail": 5, "default": None}
    assert queues_of(["a=b", "=5", "x=", "x=y=3"]) == {
        "a=b": None,
        "=5": None,
        "x=": None,
        "x=y": 3,
    }


def test_a_worker_serves_its_queues_within_their_limits(new_address: str) -> None:
    for number in range(3):
        note(f"{number}", new_address, queue="mail")
    answer = shell(
        "worker", SHOP, "--queue", "mail=1", "--queue", "default", "--max-jobs", "3",
        "--store", new_address,
    )  # fmt: skip
    assert answer.code == 0, answer.stderr
    assert [ended(new_address, f"{number}") for number in range(3)] == ["completed"] * 3


def test_a_limit_of_none_at_all_is_refused(tmp_path: Path) -> None:
    answer = shell("worker", SHOP, "--queue", "mail=0", "--store", tmp_path / "shop.db")
    assert answer.code == 1
    assert "the limit of 'mail' in queues= must be from 1" in answer.stderr

"""The installed command, in processes of its own, with a worker and a store."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from stepwell import BlockingStepwell
from tests.cli.conftest import Cli
from tests.cli.served import ROOT, STEPWELL, environment, shell
from tests.cli.shop import FIXED

SHOP = "tests.cli.shop"
ORDER = '[{"id": "o-9", "total": "12.30", "due": "2031-05-06"}]'


@contextmanager
def serving(
    store: str | Path, *options: str, **env: str
) -> Generator[subprocess.Popen[str], None, None]:
    """Run a worker process; kill it if the test has not ended it."""
    with subprocess.Popen(
        [STEPWELL, "worker", SHOP, "--store", store, *options],
        cwd=ROOT,
        env=environment(**env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def ended(store: str | Path, id: str) -> str:
    """Wait until a run has ended, is held or stuck, and return its status."""
    with BlockingStepwell(store) as app:
        run = app.get(id)
        try:
            run.result(timeout=30)
        except TimeoutError:
            raise
        except Exception:  # noqa: BLE001 - how it ended is in its status
            pass
        return run.status()


def test_a_worker_serves_what_was_started_and_stops_on_sigterm(new_address: str) -> None:
    begun = shell("start", f"{SHOP}:shop_sell", "--json", ORDER, "--store", new_address).json
    assert begun["created"] is True
    with serving(new_address) as worker:
        assert ended(new_address, begun["id"]) == "completed"
        listed = shell("workers", "--store", new_address, "--json").json
        assert [(one["pid"], one["alive"], one["queues"]) for one in listed] == [
            (worker.pid, True, ["default"])
        ]
        assert "shop_sell" in listed[0]["serves"]
        worker.send_signal(signal.SIGTERM)
        stdout, stderr = worker.communicate(timeout=30)
    assert worker.returncode == 0, stderr
    assert stdout == ""
    assert "worker_starts" in stderr
    assert "worker_stopped" in stderr
    shown = shell("show", begun["id"], "--store", new_address, "--json").json
    assert shown["result"] == "12.30"
    assert shell("doctor", "--store", new_address).code == 0


def test_a_worker_serves_only_the_queues_that_it_is_told_to(new_address: str) -> None:
    for id, queue in (("first", "default"), ("second", "later"), ("third", "other")):
        shell(
            "start", f"{SHOP}:shop_note", "--json", '["hi"]', "--id", id, "--queue", queue,
            "--store", new_address,
        )  # fmt: skip
    with serving(new_address, "--queue", "later", "--queue", "other", "--concurrency", "1"):
        assert ended(new_address, "second") == "completed"
        assert ended(new_address, "third") == "completed"
        first = shell("show", "first", "--store", new_address, "--json").json
    assert (first["status"], first["has_code"]) == ("ready", False)


def test_a_running_run_shows_which_worker_holds_it(new_address: str) -> None:
    begun = shell("start", f"{SHOP}:shop_knit", "--json", "[600]", "--store", new_address).json
    with serving(new_address, "--grace", "0", "--name", "granny") as worker:
        # There is no event for "begun" between processes: its status is asked for.
        while not (
            running := shell("runs", "--status", "running", "--store", new_address, "--json").json
        ):
            assert worker.poll() is None
        assert [run["id"] for run in running] == [begun["id"]]
        shown = shell("show", begun["id"], "--store", new_address, "--json").json
        [one] = shell("workers", "--store", new_address, "--json").json
        assert (one["name"], one["held"], one["worker"]) == ("granny", 1, shown["worker"])
        assert (one["state"], one["holding"]) == ("running", {"shop_knit": 1})
        listed = shell("workers", "--store", new_address, COLUMNS="200").stdout
        assert "running" in listed
        assert "1: 1 shop_knit" in listed
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=30) == 0
    assert shell("show", begun["id"], "--store", new_address, "--json").json["status"] == "ready"


def test_a_parked_run_takes_the_signal_that_the_command_sends(address: str) -> None:
    with serving(address):
        shell(
            "signal", "parked", "approval", "--json", '{"approved": true}', "--module", SHOP,
            "--store", address,
        )  # fmt: skip
        assert ended(address, "parked") == "completed"
    shown = shell("show", "parked", "--store", address, "--json").json
    assert shown["result"] is True
    assert [one["kind"] for one in shown["journal"]] == ["signal"]


def test_a_held_run_is_retried_from_its_failed_step(address: str) -> None:
    with serving(address, **{FIXED: "1"}):
        assert shell("retry", "held", "--reason", "paid", "--store", address).code == 0
        assert ended(address, "held") == "completed"
    shown = shell("show", "held", "--store", address, "--json").json
    assert [(one["name"], one["outcome"], one["voided"]) for one in steps(shown["journal"])] == [
        ("reserve", "ok", False),
        ("pay", "failed", True),
        ("pay", "ok", False),
    ]
    assert "failed, set aside" in shell("show", "held", "--store", address).stdout


def test_a_held_run_is_let_roll_back(address: str) -> None:
    with serving(address):
        assert shell("rollback", "held", "--store", address).code == 0
        assert ended(address, "held") == "failed"
    shown = shell("show", "held", "--store", address, "--json").json
    assert shown["rollback"] == "complete"
    assert [one["name"] for one in shown["journal"] if one["undo"]] == ["release"]


def test_an_incomplete_rollback_is_resumed(address: str) -> None:
    with serving(address, **{FIXED: "1"}):
        assert shell("resume-rollback", "lost", "--store", address).code == 0
        assert ended(address, "lost") == "failed"
    shown = shell("show", "lost", "--store", address, "--json").json
    assert shown["rollback"] == "complete"


def test_a_stuck_run_is_resumed_with_fitting_code(address: str) -> None:
    with serving(address, **{FIXED: "1"}):
        shell("resume", "stuck", "--store", address)
        assert ended(address, "stuck") == "completed"


def test_commands_on_a_store_import_no_user_code(store: Path, tmp_path: Path) -> None:
    """Not even where the classes of the stored values cannot be found."""
    shown = shell("show", "completed", "--store", store, "--json", cwd=tmp_path)
    assert shown.json["arguments"]["positional"] == [
        {"id": "o-1", "total": "9.50", "due": "2030-01-31"}
    ]
    assert "the shop opens" not in shown.stdout + shown.stderr
    failed = shell("show", "failed", "--store", store, cwd=tmp_path)
    assert "Declined: the card of o-1" in failed.stdout


def test_what_a_module_prints_does_not_get_into_the_answer(tmp_path: Path) -> None:
    begun = shell("start", f"{SHOP}:shop_jam", "--id", "jam", "--store", tmp_path / "a.db")
    assert begun.stdout == "jam\n"
    assert "the shop opens" in begun.stderr


def test_start_finds_the_same_run_again_and_refuses_another(tmp_path: Path) -> None:
    def begin(order: str) -> tuple[int, str, str]:
        done = shell(
            "start", "shop_sell", "--module", SHOP, "--json", order, "--id", "o-9",
            "--store", tmp_path / "a.db",
        )  # fmt: skip
        return done.code, done.stdout, done.stderr

    code, first, _ = begin(ORDER)
    assert (code, json.loads(first)) == (0, {"id": "o-9", "created": True, "found": None})
    code, again, _ = begin('{"order": {"due": "2031-05-06", "id": "o-9", "total": "12.30"}}')
    assert (code, json.loads(again)) == (0, {"id": "o-9", "created": False, "found": "ready"})
    code, other, refusal = begin(ORDER.replace("12.30", "12.31"))
    assert (code, other) == (1, "")
    assert "run id 'o-9' is taken" in refusal


def test_start_passes_every_kind_of_argument(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    listed = shell("start", f"{SHOP}:shop_ring", "--json", '["1", "2"]', "--store", store).json
    shown = shell("show", listed["id"], "--store", store, "--json").json
    assert shown["arguments"] == {"positional": ["1", "2"], "named": {}}
    named = shell("start", f"{SHOP}:shop_ring", "--json", '{"loud": "yes"}', "--store", store).json
    shown = shell("show", named["id"], "--store", store, "--json").json
    assert shown["arguments"] == {"positional": [], "named": {"loud": True}}


def test_start_takes_queue_priority_and_delay(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    shell(
        "start", f"{SHOP}:shop_note", "--json", '["hi"]', "--id", "note", "--queue", "slow",
        "--priority", "7", "--delay", "12h", "--store", store,
    )  # fmt: skip
    shown = shell("show", "note", "--store", store, "--json").json
    assert (shown["kind"], shown["queue"], shown["priority"]) == ("task", "slow", 7)
    assert (shown["status"], shown["due_at"] is not None) == ("scheduled", True)


def test_start_takes_what_else_a_run_may_ask_for(tmp_path: Path) -> None:
    store = tmp_path / "a.db"

    def begin(*options: str) -> dict[str, object]:
        note = ("start", f"{SHOP}:shop_note", "--json", '["hi"]', "--store", store)
        begun: dict[str, object] = shell(*note, *options).json
        return begun

    begin("--id", "first", "--unique", "k", "--key", "ann")
    assert begin("--unique", "k") == {"id": "first", "created": False, "found": "ready"}
    replaced = begin("--unique", "k", "--replace", "--priority", "3", "--key", "bob")
    assert replaced["id"] == "first"
    begin("--id", "second", "--after", "first", "--expires", "12h")
    shown = {id: shell("show", id, "--store", store, "--json").json for id in ("first", "second")}
    assert (shown["first"]["priority"], shown["first"]["key"]) == (3, "bob")
    assert (shown["second"]["status"], shown["second"]["waiting"]) == (
        "scheduled",
        "the end of first",
    )
    refused = shell("start", f"{SHOP}:shop_note", "--json", '["hi"]', "--store", store, "--replace")
    assert (refused.code, "replace= says more about unique=" in refused.stderr) == (1, True)
    lost = shell("start", f"{SHOP}:shop_note", "--json", '["a"]', "--store", store, "--after", "x")
    assert (lost.code, "no run has the id 'x'" in lost.stderr) == (1, True)


def test_start_takes_a_moment_and_for_how_long_a_run_is_the_only_one(
    cli: Cli, new_address: str
) -> None:
    def begin(*options: str) -> dict[str, object]:
        note = ("start", f"{SHOP}:shop_note", "--json", '["hi"]', "--store", new_address)
        begun: dict[str, object] = cli(*note, *options).json
        return begun

    def shown(id: str) -> dict[str, Any]:
        run: dict[str, Any] = cli("show", id, "--store", new_address, "--json").json
        return run

    begin("--id", "first", "--at", "2100-01-31T09:00+01:00")
    first = shown("first")
    assert (first["status"], first["due_at"]) == ("scheduled", "2100-01-31T08:00:00.000000+00:00")
    begin("--id", "pending", "--unique", "p", "--unique-while", "pending")
    assert begin("--unique", "p")["id"] == "pending"
    begin("--id", "throttled", "--unique", "t", "--unique-for", "1h")
    cli("cancel", "throttled", "--store", new_address)
    assert begin("--unique", "t") == {"id": "throttled", "created": False, "found": "cancelled"}
    begin("--id", "anyhow", "--after", "throttled", "--after-failed", "start")
    begin("--id", "fails", "--after", "throttled")
    assert (shown("anyhow")["status"], shown("fails")["status"]) == ("ready", "failed")


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--at", "noon"), 2, "'noon' is no moment"),
        (("--at", "2100-01-01T00:00", "--delay", "5"), 1, "give one of them"),
        (("--unique-for", "soon"), 2, "write 90, 90s, 15m"),
        (("--unique-for", "5"), 1, "unique_for= says more about unique="),
        (("--unique", "k", "--unique-while", "ever"), 1, "must be 'unended' or 'pending'"),
        (("--after", "x", "--after-failed", "skip"), 1, "must be 'fail' or 'start'"),
        (("--after-failed", "start"), 1, "after_failed= says more about after="),
        (("--delay", "10", "--expires", "5"), 1, "could never start"),
    ],
    ids=str,
)
def test_start_refuses_what_does_not_fit_and_starts_nothing(
    cli: Cli, new_address: str, options: tuple[str, ...], code: int, says: str
) -> None:
    begin = ("start", f"{SHOP}:shop_note", "--json", '["hi"]', "--store", new_address)
    assert cli(*begin, "--id", "there").code == 0
    refused = cli(*begin, *options)
    assert (refused.code, says in " ".join(refused.stderr.split())) == (code, True), refused.stderr
    assert [one["id"] for one in cli("runs", "--store", new_address, "--json").json] == ["there"]


def test_the_module_is_found_in_the_current_folder_and_names_its_store(tmp_path: Path) -> None:
    (tmp_path / "tiny.py").write_text(
        "import stepwell\n"
        "app = stepwell.Stepwell('tiny.db')\n"
        "@stepwell.workflow(name='tiny-flow')\n"
        "async def flow(n: int) -> int: return n\n"
    )
    assert shell("start", "tiny:flow", "--json", "[1]", cwd=tmp_path).code == 0
    assert shell("start", "tiny:tiny-flow", "--json", "[1]", cwd=tmp_path).code == 0
    assert (tmp_path / "tiny.db").exists()
    assert len(shell("runs", "--store", "tiny.db", "--json", cwd=tmp_path).json) == 2


def test_a_module_without_an_app_is_used_with_the_store_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text(
        "import stepwell\n@stepwell.workflow\nasync def flow(n: int) -> int: return n\n"
    )
    begun = shell(
        "start", "bare:flow", "--json", "[1]", cwd=tmp_path, STEPWELL_STORE="bare.db"
    ).json
    assert shell("show", begun["id"], "--store", "bare.db", cwd=tmp_path).code == 0


def test_two_definitions_of_one_name_are_refused_when_the_worker_starts(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(
            "import stepwell\n@stepwell.workflow(name='twin')\nasync def flow() -> None: pass\n"
        )
    (tmp_path / "both.py").write_text(
        "import one, two, stepwell\napp = stepwell.Stepwell('both.db')\n"
    )
    refused = shell("worker", "both", cwd=tmp_path)
    assert refused.code == 1
    assert refused.stderr.count("\n") == 1
    assert "one.py:2" in refused.stderr
    assert "two.py:2" in refused.stderr


def test_a_reader_that_goes_away_leaves_no_traceback(store: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [STEPWELL, "runs", "--store", store],
            env=environment(),
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(write)
    assert "Traceback" not in done.stderr


def test_a_terminal_of_another_encoding_shows_what_it_can(store: Path) -> None:
    shell("signal", "parked", "note", "--json", '"\\u00fc\\ud83d\\ude00"', "--store", store)
    told = shell("show", "parked", "--store", store, PYTHONIOENCODING="ascii")
    assert told.code == 0, told.stderr
    assert "\\xfc" in told.stdout


def test_a_narrow_terminal_gets_a_line_per_run_with_its_whole_id(store: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [STEPWELL, "runs", "--store", store],
        env=environment(COLUMNS="40", TERM="xterm", NO_COLOR="1"),
        stdout=theirs,
    ) as process:
        os.close(theirs)
        told = b""
        try:
            while part := os.read(ours, 65536):
                told += part
        except OSError:  # Linux says so when the other side is closed
            pass
        finally:
            os.close(ours)
    assert process.returncode == 0
    lines = [line.split()[:3] for line in told.decode().splitlines()[2:]]
    assert ["rolling_back", "shop_undo_slowly", "rolling_back"] in lines
    assert len(lines) == len(shell("runs", "--store", store, "--json").json)


def test_a_worker_logs_no_more_than_it_is_told_to(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"
    shell("start", f"{SHOP}:shop_note", "--json", '["hi"]', "--id", "note", "--store", store)
    with serving(store, "--log-level", "error") as worker:
        assert ended(store, "note") == "completed"
        worker.send_signal(signal.SIGINT)
        stdout, stderr = worker.communicate(timeout=30)
    assert (worker.returncode, stdout, stderr) == (0, "", "the shop opens\n")


def test_version_is_that_of_the_package() -> None:
    assert shell("--version").stdout == f"stepwell {metadata.version('stepwell')}\n"


def test_the_command_without_arguments_lists_the_commands() -> None:
    told = shell()
    assert "Usage: stepwell" in told.stdout + told.stderr
    assert "resume-rollback" in told.stdout + told.stderr


def test_importing_the_package_imports_nothing_of_the_command() -> None:
    code = (
        "import stepwell, sys\n"
        "print([m for m in ('typer', 'click', 'rich', 'stepwell.cli') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-Ic", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"


def steps(journal: list[dict[str, object]]) -> list[dict[str, object]]:
    return [one for one in journal if one["kind"] == "step"]

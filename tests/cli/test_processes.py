"""`stepwell worker --processes`: real processes, and what happens when some of them die."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.served import PATIENCE, ROOT, STEPWELL, environment, serving_store, shell
from tests.cli.test_command import SHOP, ended


@contextmanager
def supervised(
    module: str, *options: str | Path, cwd: Path = ROOT, **env: str
) -> Generator[subprocess.Popen[str], None, None]:
    """Run workers under a supervisor; what the test has not ended, the supervisor's end ends."""
    with subprocess.Popen(
        [STEPWELL, "worker", module, *options],
        cwd=cwd,
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


def line_with(process: subprocess.Popen[str], word: str) -> str:
    """Read the log up to the line with this word."""
    assert process.stderr is not None
    seen: list[str] = []
    for line in process.stderr:
        seen.append(line)
        if word in line:
            return line
    raise AssertionError(f"the log ended without {word!r}:\n{''.join(seen)}")


def alive(store: str | Path) -> dict[str, int]:
    """Return names and process ids of the workers that are there."""
    listed: list[dict[str, Any]] = shell("workers", "--store", store, "--json").json
    return {one["name"]: one["pid"] for one in listed if one["alive"]}


def exists(pid: int) -> bool:
    answer = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() not in ("", "Z")


def wait_for_end(pids: dict[str, int]) -> None:
    # Nobody tells a process of the end of one that is not its child: it is asked for.
    limit = time.monotonic() + PATIENCE
    while any(exists(pid) for pid in pids.values()):
        assert time.monotonic() < limit, f"some of {pids} live on"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


def test_workers_serve_under_names_of_their_own_until_sigterm(new_address: str) -> None:
    options = ("--processes", "3", "--name", "shop", "--store", new_address)
    with supervised(SHOP, *options) as supervisor:
        line_with(supervisor, "workers_serve ")
        there = alive(new_address)
        assert set(there) == {"shop-1", "shop-2", "shop-3"}
        shell(
            "start", f"{SHOP}:shop_note", "--json", '["hi"]', "--id", "note", "--store", new_address
        )
        assert ended(new_address, "note") == "completed"
        supervisor.send_signal(signal.SIGTERM)
        stdout, stderr = supervisor.communicate(timeout=PATIENCE)
    assert (supervisor.returncode, stdout) == (0, ""), stderr
    assert stderr.count("worker_stopped") == 3
    assert not any(exists(pid) for pid in there.values())
    assert alive(new_address) == {}


def test_without_a_name_workers_are_called_by_their_processes(new_address: str) -> None:
    with supervised(SHOP, "--processes", "2", "--store", new_address) as supervisor:
        line_with(supervisor, "workers_serve ")
        there = alive(new_address)
        assert {name.rpartition(":")[2] for name in there} == {str(pid) for pid in there.values()}
        assert len(there) == 2


def test_a_worker_that_is_killed_is_replaced(new_address: str) -> None:
    options = ("--processes", "2", "--name", "shop", "--store", new_address)
    with supervised(SHOP, *options) as supervisor:
        line_with(supervisor, "workers_serve ")
        before = alive(new_address)
        os.kill(before["shop-2"], signal.SIGKILL)
        died = line_with(supervisor, "worker_died")
        assert f"pid={before['shop-2']}" in died
        assert "signal=SIGKILL" in died
        line_with(supervisor, "worker_starts")
        # It registers a moment later, and is asked for until then.
        while set(after := alive(new_address)) != set(before):
            assert supervisor.poll() is None
        assert after["shop-1"] == before["shop-1"]
        assert after["shop-2"] != before["shop-2"]


def test_workers_do_not_outlive_their_supervisor(new_address: str) -> None:
    with supervised(SHOP, "--processes", "2", "--store", new_address) as supervisor:
        line_with(supervisor, "workers_serve ")
        there = alive(new_address)
        supervisor.kill()
        wait_for_end(there)
        _, stderr = supervisor.communicate(timeout=PATIENCE)
    assert stderr.count("supervisor_gone") == 2
    assert stderr.count("worker_stopped") == 2  # they hand back what they hold


def test_workers_do_not_outlive_a_supervisor_whose_console_is_gone_with_it(
    new_address: str,
) -> None:
    with supervised(SHOP, "--processes", "2", "--store", new_address) as supervisor:
        line_with(supervisor, "workers_serve ")
        there = alive(new_address)
        assert supervisor.stderr is not None
        supervisor.stderr.close()
        supervisor.kill()
        wait_for_end(there)


def knitting(store: str | Path, supervisor: subprocess.Popen[str]) -> None:
    shell("start", f"{SHOP}:shop_knit", "--json", "[600]", "--id", "scarf", "--store", store)
    while shell("show", "scarf", "--store", store, "--json").json["status"] != "running":
        assert supervisor.poll() is None


def test_a_second_signal_stops_all_workers_at_once(new_address: str) -> None:
    with supervised(
        SHOP, "--processes", "2", "--grace", "500", "--store", new_address
    ) as supervisor:
        line_with(supervisor, "workers_serve ")
        knitting(new_address, supervisor)
        supervisor.send_signal(signal.SIGTERM)
        supervisor.send_signal(signal.SIGINT)
        _, stderr = supervisor.communicate(timeout=PATIENCE)
    assert "stopped_at_once" in stderr
    assert supervisor.returncode == 0
    assert shell("show", "scarf", "--store", new_address, "--json").json["status"] == "ready"


def test_a_signal_to_the_whole_group_counts_once(tmp_path: Path) -> None:
    """As a service manager sends it: to the supervisor and to each worker."""
    store = tmp_path / "patient.db"
    (tmp_path / "patient.py").write_text(
        "import asyncio, pathlib, stepwell\n"
        "app = stepwell.Stepwell('patient.db', include=[__name__])\n"
        "@stepwell.task\n"
        "async def patient_task() -> None:\n"
        "    print('begun', flush=True)\n"
        "    while not pathlib.Path('go').exists():\n"
        "        await asyncio.sleep(0.01)\n"
    )
    options = ("--processes", "1", "--grace", "500", "--log-level", "debug")
    with supervised("patient", *options, cwd=tmp_path) as supervisor:
        line_with(supervisor, "workers_serve ")
        shell("start", "patient:patient_task", "--id", "it", cwd=tmp_path)
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == "begun\n"
        [worker] = alive(store).values()
        supervisor.send_signal(signal.SIGTERM)
        line_with(supervisor, "workers_stop ")
        os.kill(worker, signal.SIGTERM)
        (tmp_path / "go").touch()
        _, stderr = supervisor.communicate(timeout=PATIENCE)
    assert "stopped_at_once" not in stderr
    assert shell("show", "it", "--store", store, "--json").json["status"] == "completed"


def test_ctrl_c_in_a_terminal_is_one_request_to_each_worker(store: Path) -> None:
    with subprocess.Popen(
        [STEPWELL, "worker", SHOP, "--processes", "2", "--store", store],
        cwd=ROOT,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as supervisor:
        try:
            line_with(supervisor, "workers_serve ")
            os.killpg(supervisor.pid, signal.SIGINT)  # what the terminal does
            _, stderr = supervisor.communicate(timeout=PATIENCE)
        finally:
            if supervisor.poll() is None:
                supervisor.kill()
    assert supervisor.returncode == 0
    assert stderr.count("worker_stopped") == 2
    assert "stopped_at_once" not in stderr


def test_what_cannot_be_served_is_said_once_and_has_the_exit_code_of_one_worker(
    store: Path,
) -> None:
    refused = shell("worker", "no_such_module", "--processes", "4", "--store", store)
    assert refused.code == 1
    assert refused.stderr.count("no module 'no_such_module'") == 1
    assert refused.stderr.count("worker_cannot_start") == 1


def test_workers_that_die_before_they_serve_are_given_up_after_a_few(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(
        "import os, signal, stepwell\n"
        "app = stepwell.Stepwell('deadly.db', include=[__name__])\n"
        "@stepwell.workflow\n"
        "async def deadly_flow() -> None: pass\n"
        "os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    refused = shell("worker", "deadly", "--processes", "2", cwd=tmp_path)
    assert refused.code == 128 + signal.SIGSEGV
    assert refused.stderr.count("worker_died") == 2
    assert "worker_cannot_start" in refused.stderr
    assert "deaths=3" in refused.stderr
    assert "signal=SIGSEGV" in refused.stderr


def test_a_worker_whose_replacement_cannot_start_does_not_end_the_others(tmp_path: Path) -> None:
    """Code that was broken since: what serves goes on, and what died is tried again."""
    source = (
        "import stepwell\n"
        "app = stepwell.Stepwell('tiny.db', include=[__name__])\n"
        "@stepwell.workflow\n"
        "async def tiny_flow() -> None: pass\n"
    )
    module = tmp_path / "tiny.py"
    module.write_text(source)
    options = ("--processes", "2", "--name", "tiny")
    with supervised("tiny", *options, cwd=tmp_path, PYTHONDONTWRITEBYTECODE="1") as supervisor:
        line_with(supervisor, "workers_serve ")
        there = alive(tmp_path / "tiny.db")
        module.write_text("1 / 0\n")
        os.kill(there["tiny-2"], signal.SIGKILL)
        line_with(supervisor, "signal=SIGKILL")
        for _ in range(3):
            line_with(supervisor, "exit_code=1")
        assert exists(there["tiny-1"])
        module.write_text(source)
        line_with(supervisor, "worker_starts")
        supervisor.send_signal(signal.SIGTERM)
        assert supervisor.wait(timeout=PATIENCE) == 0


def test_workers_ride_out_a_restart_of_the_server_and_a_death_meanwhile(store: Path) -> None:
    with serving_store(store) as server:
        options = ("--processes", "2", "--name", "shop", "--store", server.address)
        with supervised(SHOP, *options) as supervisor:
            line_with(supervisor, "workers_serve ")
            there = alive(server.address)
            server.process.kill()
            server.process.wait()
            os.kill(there["shop-2"], signal.SIGKILL)
            line_with(supervisor, "signal=SIGKILL")
            for _ in range(3):
                line_with(supervisor, f"cannot connect to {server.address}")
            with serving_store(store, port=server.port) as again:
                begin = ("start", f"{SHOP}:shop_note", "--json", '["hi"]', "--id", "note")
                assert shell(*begin, "--store", again.address).code == 0
                assert ended(again.address, "note") == "completed"
                while set(after := alive(again.address)) != {"shop-1", "shop-2"}:
                    assert supervisor.poll() is None
                assert after["shop-1"] == there["shop-1"]
                supervisor.send_signal(signal.SIGTERM)
                assert supervisor.wait(timeout=PATIENCE) == 0
                assert shell("doctor", "--store", again.address).code == 0


@pytest.mark.parametrize("options", [(), ("--processes", "3")], ids=["one", "several"])
def test_workers_whose_server_is_not_there_yet_end_at_once(options: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"tcp://127.0.0.1:{other.getsockname()[1]}"
    refused = shell("worker", SHOP, "--store", address, *options)
    assert (refused.code, refused.stdout) == (1, "")
    assert refused.stderr.count(f"stepwell: cannot connect to {address} (") == 1


def test_a_stop_while_the_first_worker_starts_ends_it(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import sys, time\nprint('importing', file=sys.stderr, flush=True)\ntime.sleep(600)\n"
    )
    with supervised("slow", "--processes", "2", "--store", "a.db", cwd=tmp_path) as supervisor:
        line_with(supervisor, "importing")
        supervisor.send_signal(signal.SIGTERM)
        assert supervisor.wait(timeout=PATIENCE) == 0


@pytest.mark.parametrize(
    ("options", "workers"), [((), 1), (("--processes", "2"), 2)], ids=["one", "several"]
)
def test_the_service_manager_hears_when_all_workers_serve(
    tmp_path: Path, store: Path, options: tuple[str, ...], workers: int
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE)
        address = str(tmp_path / "notify")
        with supervised(SHOP, *options, "--store", store, NOTIFY_SOCKET=address) as process:
            assert manager.recv(100) == b"READY=1"
            assert len(alive(store)) == workers
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=PATIENCE) == 0


def test_workers_get_the_same_interpreter_and_say_what_they_leave_to_others(tmp_path: Path) -> None:
    (tmp_path / "flags.py").write_text(
        "import sys, stepwell\n"
        "print('flags', sys.flags.utf8_mode, sys.flags.isolated, sys.stdin.read(),"
        " sys.executable)\n"
        "app = stepwell.Stepwell('flags.db', include=[__name__])\n"
        "@stepwell.workflow\n"
        "async def flags_flow() -> None: pass\n"
        "@stepwell.task(queue='reports')\n"
        "async def flags_report() -> None: pass\n"
    )
    with subprocess.Popen(
        [
            sys.executable,
            "-X",
            "utf8=1",
            "-I",
            STEPWELL,
            "worker",
            "--processes",
            "1",
            "--queue",
            "mail",
            "--",
            "flags",
        ],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    ) as supervisor:
        try:
            assert line_with(supervisor, "flags") == f"flags 1 1  {sys.executable}\n"
            assert "queues=['mail']" in line_with(supervisor, "worker_starts")
            assert "queues=['reports']" in line_with(supervisor, "queues_left_to_others")
        finally:
            supervisor.terminate()
            supervisor.communicate(timeout=PATIENCE)


HUNG = """
import asyncio, time
from stepwell._app.shutdown import StopRequests
from stepwell.cli import _logs, _supervised

async def hang() -> None:
    with StopRequests() as requests:
        _supervised.Supervised(_supervised.supervisor_line(), grace=0.0).serves(requests)
        time.sleep(600)

_logs.log_to_stderr()
_supervised.LATE = 0.0
asyncio.run(hang())
"""


def test_a_worker_whose_loop_hangs_does_not_outlive_its_supervisor() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        worker = subprocess.Popen(
            [sys.executable, "-Ic", HUNG],
            env=environment(STEPWELL_SUPERVISOR=str(theirs.fileno())),
            pass_fds=[theirs.fileno()],
            stderr=subprocess.PIPE,
            text=True,
        )
        theirs.close()
        assert ours.recv(1) == b"r"
    _, stderr = worker.communicate(timeout=PATIENCE)
    assert worker.returncode == -signal.SIGKILL
    assert "supervisor_gone" in stderr
    assert "worker_hung" in stderr

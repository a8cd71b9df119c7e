"""Plain functions in child processes: what crosses, what kills them, and who survives it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stepwell import (
    ChildDied,
    DefinitionError,
    DurabilityError,
    GiveUp,
    RunCancelled,
    SerializationError,
    Stepwell,
    TaskTimeout,
    step,
    task,
    workflow,
)
from tests.behaviour import computing
from tests.behaviour.computing import ROOT, Odd
from tests.behaviour.stage import LONG, until

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _children_find_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])


@pytest.fixture
def app_of_all(make_app: Callable[..., Stepwell]) -> Stepwell:
    return make_app((__name__, computing.__name__))


@workflow
async def survives(folder: Path) -> int:
    return await computing.step_is_killed(folder)


async def test_a_function_runs_in_a_process_that_serves_again(app_of_all: Stepwell) -> None:
    async with app_of_all as app, app.worker(child_processes=1):
        first, second = [
            await (await app.enqueue(computing.square(n))).result(timeout=LONG) for n in (3, 4)
        ]
    assert (first[0], second[0]) == (9, 16)
    assert first[1] == second[1] != os.getpid()


async def test_as_many_run_at_once_as_there_may_be_children(
    app_of_all: Stepwell, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    async with app_of_all as app, app.worker(child_processes=2, grace=0.0):
        for folder in folders:
            await app.enqueue(computing.stays(folder))
        for folder in folders:
            await announced(folder)


async def test_a_child_knows_its_job(app_of_all: Stepwell) -> None:
    async with app_of_all as app, app.worker():
        run = await app.enqueue(computing.tells())
        kind, name, attempt, key, queue, arguments = await run.result(timeout=LONG)
        twin = await app.enqueue(computing.tells_in_a_thread())
        assert len(key) == len(await twin.result(timeout=LONG)) == 32
    assert (kind, name, attempt, queue, arguments) == ("task", "tells", 1, "default", {})


async def test_a_child_knows_when_its_job_was_to_start(app_of_all: Stepwell) -> None:
    at = datetime(2020, 1, 1, 12, tzinfo=UTC)
    async with app_of_all as app, app.worker(child_processes=1):
        run = await app.enqueue(computing.tells_when(), at=at)
        assert await run.result(timeout=LONG) == at.timestamp()


async def test_exceptions_come_back_with_type_content_and_place(app_of_all: Stepwell) -> None:
    async with app_of_all as app, app.worker(child_processes=1):
        with pytest.raises(Odd, match="3 m") as caught:
            await (await app.enqueue(computing.raises_odd())).result(timeout=LONG)
        assert caught.value.number == 3
        assert "computing.py" in "".join(caught.value.__notes__)
        with pytest.raises(DurabilityError, match="no app in a child process"):
            await (await app.enqueue(computing.asks_for_the_app())).result(timeout=LONG)
        with pytest.raises(SerializationError, match="the result of task 'returns_what"):
            await (await app.enqueue(computing.returns_what_cannot_be_stored())).result(
                timeout=LONG
            )
        assert await (await app.enqueue(computing.prints("hello"))).result(timeout=LONG) == "hello"


async def test_a_child_reports_and_logs(app_of_all: Stepwell) -> None:
    async with app_of_all as app, app.worker(child_processes=1):
        run = await app.enqueue(computing.reports())
        await run.result(timeout=LONG)
        progress = await run.progress()
        assert progress is not None
        assert (progress.fraction, progress.note) == (0.5, "half")
        (line,) = await run.logs()
        assert (line.text, line.fields, line.attempt) == ("reading", {"rows": 3}, 1)


async def test_a_child_executes_a_batch(app_of_all: Stepwell) -> None:
    async with app_of_all as app:
        runs = await app.enqueue_many([computing.halves(number) for number in (4, 5, 6)])
        async with app.worker(child_processes=1):
            assert [await runs[at].result(timeout=LONG) for at in (0, 2)] == [2, 3]
            with pytest.raises(Odd, match="5 halves"):
                await runs[1].result(timeout=LONG)


async def test_give_up_and_retry_later_cross_the_process(
    app_of_all: Stepwell, tmp_path: Path
) -> None:
    async with app_of_all as app, app.worker(child_processes=1):
        run = await app.enqueue(computing.gives_up())
        with pytest.raises(GiveUp, match="for good"):
            await run.result(timeout=LONG)
        assert (await run.info()).attempts == 1
        later = await app.enqueue(computing.comes_later(tmp_path))
        assert await later.result(timeout=LONG) == 1


async def test_a_child_that_exits_fails_one_attempt_and_nothing_else(
    app_of_all: Stepwell, tmp_path: Path
) -> None:
    kept, lost = tmp_path / "kept", tmp_path / "lost"
    kept.mkdir()
    lost.mkdir()
    async with app_of_all as app, app.worker(child_processes=2, grace=0.0):
        stays = await app.enqueue(computing.stays(kept))
        child, _ = await announced(kept)
        run = await app.enqueue(computing.exits(lost, 3))
        assert await run.result(timeout=LONG) == 2
        assert (await stays.info()).status == "running"
        os.kill(child, 0)  # it is there
    assert not is_there(child)


async def test_the_error_says_how_a_child_died(app_of_all: Stepwell) -> None:
    async with app_of_all as app, app.worker(child_processes=1):
        run = await app.enqueue(computing.is_killed(), id="job-1")
        with pytest.raises(ChildDied) as caught:
            await run.result(timeout=LONG)
        assert str(caught.value) == (
            "task 'is_killed' (run 'job-1'): the child process that executed it was killed by "
            "SIGKILL"
        )
        assert caught.value.code == -signal.SIGKILL
        left = await app.enqueue(computing.leaves())
        with pytest.raises(Exception, match="SystemExit"):
            await left.result(timeout=LONG)


async def test_a_step_whose_child_died_is_tried_again(app_of_all: Stepwell, tmp_path: Path) -> None:
    async with app_of_all as app, app.worker(child_processes=1):
        assert await (await app.start(survives(tmp_path))).result(timeout=LONG) == 2


async def test_a_child_that_died_while_it_was_idle_fails_nothing(app_of_all: Stepwell) -> None:
    async with app_of_all as app, app.worker(child_processes=1):
        _, child = await (await app.enqueue(computing.square(2))).result(timeout=LONG)
        os.kill(child, signal.SIGKILL)
        run = await app.enqueue(computing.square(3))
        assert (await run.result(timeout=LONG))[0] == 9


async def announced(folder: Path) -> list[int]:
    """Wait for a child, and return its number and that of the process it has started."""

    async def is_here() -> bool:
        return (folder / "pids").exists()

    await until(is_here)
    return [int(number) for number in (folder / "pids").read_text().split()]


def is_there(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def gone(process: int) -> None:
    async def is_gone() -> bool:
        return not is_there(process)

    await until(is_gone)


async def test_a_timeout_kills_the_child_and_what_it_has_started(
    app_of_all: Stepwell, tmp_path: Path
) -> None:
    async with app_of_all as app, app.worker(child_processes=1):
        run = await app.enqueue(computing.stays_too_long(tmp_path))
        with pytest.raises(TaskTimeout, match=r"took longer than its timeout of 0\.05 s$"):
            await run.result(timeout=LONG)
        for process in await announced(tmp_path):
            await gone(process)
        assert (await (await app.enqueue(computing.square(3))).result(timeout=LONG))[0] == 9


async def test_a_cancel_kills_the_child(app_of_all: Stepwell, tmp_path: Path) -> None:
    async with app_of_all as app, app.worker(child_processes=1):
        run = await app.enqueue(computing.stays(tmp_path))
        child, started = await announced(tmp_path)
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
        await gone(child)
        await gone(started)


async def test_a_worker_that_stops_leaves_no_child_behind(
    app_of_all: Stepwell, tmp_path: Path
) -> None:
    async with app_of_all as app:
        async with app.worker(child_processes=2, grace=0.0):
            _, idle = await (await app.enqueue(computing.square(2))).result(timeout=LONG)
            run = await app.enqueue(computing.stays(tmp_path))
            busy, started = await announced(tmp_path)
        assert not is_there(idle)
        assert not is_there(busy)
        await gone(started)
        assert (await run.info()).status == "ready"  # for another worker


def test_what_a_child_cannot_execute_is_refused_at_decoration() -> None:
    with pytest.raises(DefinitionError, match="is for plain functions, and this is an `async def`"):

        @task(executor="process")
        async def waits() -> None: ...

    with pytest.raises(DefinitionError, match="can import by its name"):

        @step(executor="process")
        def inner() -> None: ...

    with pytest.raises(DefinitionError, match="executor= must be 'thread' or 'process'"):

        @task(executor="fiber")  # type: ignore[call-overload, untyped-decorator]
        def woven() -> None: ...


SCRIPT = """
import asyncio
import os
import sys
from dataclasses import dataclass
from stepwell import Stepwell, task

@dataclass
class Order:
    number: int

@task(executor="process")
def handle(order: Order) -> tuple[Order, bool]:
    return Order(order.number + 1), os.getpid() == order.number

async def main():
    async with Stepwell(sys.argv[1], durability="process") as app:
        print(await app.run(handle(Order(os.getpid()))) == (Order(os.getpid() + 1), False))
"""


@pytest.mark.parametrize("how", [["shop.py"], ["-m", "shop"]], ids=["script", "-m"])
async def test_the_functions_of_a_script_run_in_children(how: list[str], tmp_path: Path) -> None:
    guarded = SCRIPT + "\nif __name__ == '__main__':\n    asyncio.run(main())\n"
    (tmp_path / "shop.py").write_text(guarded)
    code, out, err = await python(tmp_path, *how)
    assert (code, out) == (0, "True\n"), err


@pytest.mark.parametrize("how", [["shop.py"], ["-m", "shop"]], ids=["script", "-m"])
async def test_a_script_that_runs_its_app_when_it_is_imported_is_told_so(
    how: list[str], tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(SCRIPT + "\nasyncio.run(main())\n")
    code, _, err = await python(tmp_path, *how)
    assert code == 1
    assert "put what the program does by itself under `if __name__ == '__main__':`" in err


async def python(folder: Path, *arguments: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        "runs.db",
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(LONG):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_children_end_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio, sys\nfrom pathlib import Path\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from stepwell import Stepwell\nfrom tests.behaviour import computing\n"
        "async def main():\n"
        "    async with Stepwell('runs.db', durability='process') as app:\n"
        "        await app.run(computing.stays(Path('.')))\n"
        "if __name__ == '__main__':\n    asyncio.run(main())\n"
    )
    worker = await asyncio.create_subprocess_exec(sys.executable, "program.py", cwd=tmp_path)
    processes = await announced(tmp_path)
    worker.kill()
    await worker.wait()
    for process in processes:
        await gone(process)

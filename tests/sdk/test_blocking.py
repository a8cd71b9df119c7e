"""The blocking app and `stepwell.run`: from threads, scripts and forked children."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import stepwell
from stepwell import (
    BlockingStepwell,
    RunNotFound,
    RunTerminated,
    Signal,
    StepwellError,
    step,
    task,
    wait_for_signal,
    workflow,
)

pytestmark = pytest.mark.blocking
go = Signal("go", int)


@step
def add(a: int, b: int) -> int:
    return a + b


@task
async def send(number: int) -> int:
    return number


@workflow
async def total(a: int, b: int) -> int:
    return await add(a, b)


@workflow
async def waits() -> int:
    return await wait_for_signal(go)


@workflow
async def fails() -> None:
    raise LookupError("no luck")


@pytest.fixture
def app(tmp_path: Path) -> Iterator[BlockingStepwell]:
    made = BlockingStepwell(tmp_path / "runs.db", include=[__name__], durability="process")
    yield made
    made.close()


def test_it_opens_on_first_use_and_no_sooner(app: BlockingStepwell, tmp_path: Path) -> None:
    assert list(tmp_path.iterdir()) == []
    assert app.runs() == []
    assert (tmp_path / "runs.db").exists()


def test_a_bad_setting_is_refused_when_it_is_given() -> None:
    with pytest.raises(TypeError, match="a path or a URL"):
        BlockingStepwell("")


def test_runs_are_started_signalled_and_awaited(app: BlockingStepwell) -> None:
    with app.worker() as worker:
        run = app.start(waits(), id="run")
        assert run.created
        assert not app.start(waits(), id="run").created
        run.signal(go, 4)
        assert run.result(timeout=20) == 4
        assert run.status() == run.info().status == "completed"
        assert [event.kind for event in run.history().events] == ["signal"]
        tasks = app.enqueue_many([send(1), send(2)])
        worker.drain()
        assert [one.result() for one in tasks] == [1, 2]
        more = app.start_many([total(1, 1), total(2, 2)])
        assert [one.result(timeout=20) for one in more] == [2, 4]
        assert app.enqueue(send(3), priority=2).result(timeout=20) == 3
    assert len(app.runs(name="send")) == 3
    assert app.get("run", waits).result() == 4
    assert app.info("run").id == app.history("run").run.id == "run"
    assert app.doctor() == []
    assert [one for one in app.workers() if one.alive] == []
    # The newest run of a store stays, so that its row number is not given again.
    assert app.prune(keep=0) == 5


def test_run_executes_without_a_worker(app: BlockingStepwell) -> None:
    assert app.run(total(1, 2), timeout=20) == 3
    with pytest.raises(LookupError, match="no luck"):
        app.run(fails(), timeout=20)


def test_errors_are_those_of_the_async_app(app: BlockingStepwell) -> None:
    with pytest.raises(RunNotFound):
        app.get("nobody").status()
    with pytest.raises(RunNotFound):
        app.signal("nobody", go, 1)
    anything: Any = app
    with pytest.raises(TypeError, match="for a task use enqueue"):
        anything.start(send(1))
    run = app.start(waits())
    with pytest.raises(TimeoutError, match=r"run '.*' has not ended within 0\.01 s; .* goes on"):
        run.result(timeout=0.01)
    assert run.cancel(reason="enough") == "cancelled"
    for request in (run.retry, run.roll_back, run.resume_rollback, run.resume):
        with pytest.raises(stepwell.RequestRefused):
            request()


def test_many_threads_share_one_app(app: BlockingStepwell) -> None:
    with app.worker(), ThreadPoolExecutor(8) as pool:

        def one(number: int) -> int:
            return app.start(total(number, number)).result(timeout=20)

        results = list(pool.map(one, range(24)))
    assert results == [2 * n for n in range(24)]
    assert [one.name for one in threading.enumerate()].count("stepwell") == 1


def test_a_worker_that_cannot_start_says_so(app: BlockingStepwell) -> None:
    with (
        pytest.raises(StepwellError, match="running already"),
        app.worker() as worker,
    ):
        app.do(lambda _: worker._worker.__aenter__())


def test_closing_ends_the_thread_and_later_use_is_refused(app: BlockingStepwell) -> None:
    app.runs()
    app.close()
    app.close()
    assert "stepwell" not in [one.name for one in threading.enumerate()]
    with pytest.raises(StepwellError, match="is closed"):
        app.runs()
    with app:
        assert app.runs() == []


def test_closing_ends_the_waits_of_other_threads(app: BlockingStepwell) -> None:
    run = app.start(waits())
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(run.result)
        # The wait is in the loop's queue before this answer comes.
        while not waiting.running():
            app.runs()
        app.runs()
        app.close()
        with pytest.raises(StepwellError):
            waiting.result(timeout=20)


def test_whatever_threads_do_when_it_is_closed_ends_with_an_error_that_says_so(
    tmp_path: Path,
) -> None:
    def serve(app: BlockingStepwell) -> None:
        with app.worker():
            pass

    uses: list[Callable[[BlockingStepwell], object]] = [
        lambda app: app.start(total(1, 2)),
        lambda app: app.runs(limit=3),
        lambda app: app.run(total(1, 2)),
        serve,
    ]

    def use_on(app: BlockingStepwell, use: Callable[[BlockingStepwell], object]) -> None:
        use(app)
        begun.wait(20)
        while True:
            use(app)

    for _ in range(5):
        app = BlockingStepwell(tmp_path / "runs.db", include=[__name__], durability="process")
        begun = threading.Barrier(len(uses) + 1)
        with ThreadPoolExecutor(len(uses)) as pool:
            threads = [pool.submit(use_on, app, use) for use in uses]
            begun.wait(20)
            app.close()
            for thread in threads:
                assert isinstance(thread.exception(timeout=8), StepwellError)


def test_a_store_that_cannot_be_opened_is_refused_at_the_first_use(tmp_path: Path) -> None:
    app = BlockingStepwell(tmp_path / "no such folder" / "runs.db")
    for _ in range(2):
        with pytest.raises(StepwellError):
            app.runs()
    app.close()


SCRIPT = """
import os, sys
import stepwell
from stepwell import BlockingStepwell, step, workflow

@step
def add(a: int, b: int) -> int:
    print("executed", flush=True)
    return a + b

@workflow
async def total(a: int, b: int) -> int:
    return await add(a, b)
"""


def script(tmp_path: Path, body: str) -> list[str]:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT + textwrap.dedent(body))
    answer = subprocess.run(
        [sys.executable, "-W", "error", str(path), str(tmp_path / "runs.db")],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert answer.stderr == ""
    return answer.stdout.splitlines()


def test_a_script_runs_a_call_and_finds_its_result_the_next_time(tmp_path: Path) -> None:
    body = "print(stepwell.run(total(1, 2), store=sys.argv[1], id='sum'))"
    assert script(tmp_path, body) == ["executed", "3"]
    assert script(tmp_path, body) == ["3"]


def test_a_script_that_forgets_to_close_ends(tmp_path: Path) -> None:
    body = "print(BlockingStepwell(sys.argv[1]).run(total(1, 2)))"
    assert script(tmp_path, body) == ["executed", "3"]


def test_a_forked_child_opens_anew_and_leaves_its_parent_alone(tmp_path: Path) -> None:
    body = """
        app = BlockingStepwell(sys.argv[1])
        first = app.start(total(1, 2), id="first")
        app.run(total(1, 2), id="first")
        child = os.fork()
        if child == 0:
            print(first.result(), app.run(total(3, 4), id="second"), flush=True)
            app.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(app.get("second", total).result(), app.run(total(5, 6), id="third"))
        print(app.doctor(), flush=True)
        app.close()
    """
    expected = ["executed", "executed", "3 7", "executed", "7 11", "[]"]
    assert script(tmp_path, body) == expected


def test_runs_are_steered_by_blocking_calls(app: BlockingStepwell) -> None:
    run = app.start(waits())
    assert run.pause(reason="why") == "paused"
    assert app.steer_many("resume", name="waits").changed == {"ready": 1}
    assert run.terminate(reason="broken") == "terminated"
    with pytest.raises(RunTerminated, match="broken"):
        run.result(timeout=10)
    app.pause_workflow(total, reason="why")
    assert [(one.name, one.reason) for one in app.paused_workflows()] == [("total", "why")]
    done = app.start(total(1, 2))
    with app.worker():
        app.resume_workflow("total")
        assert done.result(timeout=10) == 3
        assert done.fork(from_step="add", changes={"b": 5}).result(timeout=10) == 6

"""Processes that die of what they execute: counted, bounded, and survived by all the others."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stepwell import (
    RunStuck,
    Stepwell,
    TaskCall,
    WorkerCrashed,
    WorkflowCall,
)
from tests.behaviour import crashing
from tests.behaviour.stage import LONG

pytestmark = [pytest.mark.anyio, pytest.mark.blocking]
MOST_LIVES = 12


class Program:
    """A worker process that is started again whenever it has died."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.options: list[str] = []
        self.deaths = 0

    def serve(self) -> None:
        """Serve until nothing is left that could be done now."""
        for _ in range(MOST_LIVES):
            ended = subprocess.run(
                [
                    sys.executable,
                    crashing.__file__,
                    str(self._folder / "runs.db"),
                    self._folder,
                    *self.options,
                ],
                timeout=60,
                check=False,
            )
            if ended.returncode == crashing.DIED:
                self.deaths += 1
            else:
                assert ended.returncode == 0
                if not self._let_pass():
                    return
        raise AssertionError(f"it has died {MOST_LIVES} times")

    def _let_pass(self) -> bool:
        """Pass the seconds that a run waits after its second crash; False if none does."""
        db = sqlite3.connect(self._folder / "runs.db")
        with db:
            count = db.execute("UPDATE runs SET due = 1 WHERE status = 0 AND crashes > 1").rowcount
        db.close()
        return count > 0

    @property
    def done(self) -> list[str]:
        return (self._folder / "done").read_text().splitlines()


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture
def make_app(tmp_path: Path) -> Callable[[], Stepwell]:
    def make() -> Stepwell:
        return Stepwell(tmp_path / "runs.db", include=[crashing], durability="process")

    return make


async def left_to(
    program: Program,
    make_app: Callable[[], Stepwell],
    *calls: WorkflowCall[object] | TaskCall[object],
) -> None:
    """Start calls, and let the program do what it can; ids are their places."""
    async with make_app() as app:
        for number, call in enumerate(calls):
            if isinstance(call, TaskCall):
                await app.enqueue(call, id=f"{number}")
            else:
                await app.start(call, id=f"{number}")
    program.serve()


async def test_a_task_that_kills_its_worker_ends_in_the_dead_letters_and_its_neighbours_live(
    program: Program, make_app: Callable[[], Stepwell]
) -> None:
    calls = [crashing.deadly_task(), *(crashing.neighbour(number) for number in range(5))]
    await left_to(program, make_app, *calls)
    async with make_app() as app:
        with pytest.raises(WorkerCrashed, match="2 times in a row"):
            await app.get("0").result(timeout=LONG)
        results = [
            await app.get(f"{n}", crashing.neighbour).result(timeout=LONG) for n in range(1, 6)
        ]
        assert results == list(range(5))
        assert (await app.info("0")).crashes == 2
        (letter,) = await app.dead_letters()
        assert (letter.id, letter.error_type, letter.crashes) == ("0", "WorkerCrashed", 2)
        failures = (await app.history("0")).failures
        assert [(one.number, one.crashed) for one in failures] == [
            (1, True), (1, True), (1, False),
        ]  # fmt: skip
        assert await app.doctor() == []
    assert program.deaths == program.done.count("deadly task") == 2


async def test_a_requeued_task_may_crash_as_often_as_a_new_one(
    program: Program, make_app: Callable[[], Stepwell]
) -> None:
    await left_to(program, make_app, crashing.deadly_task())
    async with make_app() as app:
        await app.requeue("0")
    program.serve()
    async with make_app() as app:
        assert (await app.info("0")).status == "failed"
    assert program.deaths == 4


async def test_ten_good_jobs_behind_one_that_kills_its_worker_are_done_by_a_worker_of_one_place(
    program: Program, make_app: Callable[[], Stepwell]
) -> None:
    calls = [crashing.always_deadly(), *(crashing.neighbour(number) for number in range(10))]
    program.options = ["1"]
    await left_to(program, make_app, *calls)
    async with make_app() as app:
        assert [
            await app.get(f"{n}", crashing.neighbour).result(timeout=LONG) for n in range(1, 11)
        ] == list(range(10))
        assert await app.get("0").status() == "failed"
    # It goes first, and is tried once more; from then on it waits while there are others.
    neighbours = [f"neighbour {number}" for number in range(10)]
    assert program.done == [*["always deadly"] * 2, *neighbours, *["always deadly"] * 3]


async def test_an_item_that_kills_its_worker_is_found_out_and_those_of_its_batch_live(
    program: Program, make_app: Callable[[], Stepwell]
) -> None:
    await left_to(program, make_app, *(crashing.deadly_batch(number) for number in range(3)))
    async with make_app() as app:
        with pytest.raises(WorkerCrashed, match="3 times in a row"):
            await app.get("1").result(timeout=LONG)
        for number in (0, 2):
            run = app.get(f"{number}", crashing.deadly_batch)
            assert await run.result(timeout=LONG) == number
        assert await app.doctor() == []
    assert program.done[:2] == ["batch 0,1,2"] * 2
    assert sorted(program.done[2:]) == ["batch 0", "batch 1", "batch 2"]


async def test_a_task_that_comes_to_an_end_between_its_crashes_is_not_given_up(
    program: Program, make_app: Callable[[], Stepwell]
) -> None:
    await left_to(program, make_app, crashing.polls_and_dies())
    async with make_app() as app:
        assert await app.get("0", crashing.polls_and_dies).result(timeout=LONG) == "attempt 1"
    assert program.deaths == 3


async def test_a_step_that_kills_its_worker_fails_and_its_workflow_can_catch_that(
    program: Program, make_app: Callable[[], Stepwell]
) -> None:
    await left_to(program, make_app, crashing.catches_the_crash())
    async with make_app() as app:
        run = app.get("0", crashing.catches_the_crash)
        assert await run.result(timeout=LONG) == "fallback"
        failed = [event for event in (await run.history()).events if event.outcome == "failed"]
        assert [event.name for event in failed] == ["deadly"]
        assert await app.doctor() == []
    # The first death does not count: in that claim the run had made progress.
    assert program.done == ["before", "deadly", "deadly", "deadly", "fallback"]


async def test_a_remote_step_that_kills_its_worker_fails_and_its_workflow_can_catch_that(
    program: Program, make_app: Callable[[], Stepwell]
) -> None:
    await left_to(program, make_app, crashing.catches_a_crash_far_away())
    async with make_app() as app:
        run = app.get("0", crashing.catches_a_crash_far_away)
        assert await run.result(timeout=LONG) == "fallback"
        assert await app.doctor() == []
    assert program.done == ["deadly far"] * 3 + ["fallback"]


async def test_a_workflow_rolls_back_from_a_step_that_kills_its_worker(
    program: Program, make_app: Callable[[], Stepwell]
) -> None:
    await left_to(program, make_app, crashing.rolls_back_from_the_crash())
    async with make_app() as app:
        run = app.get("0", crashing.rolls_back_from_the_crash)
        with pytest.raises(WorkerCrashed, match="deadly_in_thread"):
            await run.result(timeout=LONG)
        assert (await run.info()).rollback == "complete"
    assert program.done == ["deadly", "deadly", "undo"]


async def test_workflow_code_that_kills_its_worker_is_put_aside_as_stuck(
    program: Program, make_app: Callable[[], Stepwell]
) -> None:
    await left_to(program, make_app, crashing.dies_by_itself(), crashing.neighbour(1))
    async with make_app() as app:
        with pytest.raises(RunStuck, match="its worker died"):
            await app.get("0").result(timeout=LONG)
        assert await app.get("1").result(timeout=LONG) == 1
        assert await app.doctor() == []
    deaths = program.deaths
    program.serve()  # a new worker tries stuck runs again, but not one that killed so many
    assert program.deaths == deaths <= 4
    assert program.done.count("before") == 1


async def test_progress_between_crashes_starts_the_count_anew(
    program: Program, make_app: Callable[[], Stepwell]
) -> None:
    await left_to(program, make_app, crashing.dies_at_every_step())
    async with make_app() as app:
        run = app.get("0", crashing.dies_at_every_step)
        # A crash is no failure: it uses up no attempt.
        assert await run.result(timeout=LONG) == [f"step {number} 1" for number in range(5)]
    assert program.deaths == 5
    assert sorted(program.done) == sorted([f"step {number}" for number in range(5)] * 2)


async def test_a_rollback_goes_on_after_a_crash_and_repeats_only_what_was_cut(
    program: Program, make_app: Callable[[], Stepwell]
) -> None:
    await left_to(program, make_app, crashing.dies_while_undoing())
    async with make_app() as app:
        run = app.get("0", crashing.dies_while_undoing)
        with pytest.raises(LookupError, match="the reason"):
            await run.result(timeout=LONG)
        assert (await run.info()).rollback == "complete"
    assert program.done == ["third undo", "second undo", "second undo", "first undo"]


async def test_a_signal_that_was_taken_before_a_crash_is_not_lost(
    program: Program, make_app: Callable[[], Stepwell]
) -> None:
    await left_to(program, make_app, crashing.dies_after_a_signal())
    async with make_app() as app:
        await app.signal("0", crashing.go, 5)
    program.serve()
    async with make_app() as app:
        run = app.get("0", crashing.dies_after_a_signal)
        assert await run.result(timeout=LONG) == 5
    assert program.deaths == 1

"""A cancel reaches the code at its durable operations, and cleanup may still do its work."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import (
    Cancelled,
    DeadlineExceeded,
    NotDurable,
    compensate,
    parallel,
    race,
    sleep,
    start,
    wait_for_signal,
)
from stepwell_queue.contract import RecordKind
from tests.replay.driver import Code, Drive
from tests.replay.steps import a, b, book, c, child, interruptible, undo


async def waits() -> None:
    await wait_for_signal("never")


async def sleeps() -> None:
    await sleep(60)


async def waits_in_branches() -> None:
    await parallel(sleep(60), race(sleep(60), wait_for_signal("never")))


@pytest.mark.parametrize("code", [waits, sleeps, waits_in_branches])
def test_what_waits_is_cancelled_at_once(drive: Drive, code: Code) -> None:
    run = drive(code)
    run.cancel()
    assert run.outcome.verdict == "cancelled"
    assert run.open == {}
    assert run.replayed().outcome.verdict == "cancelled"


async def two_steps() -> None:
    compensate(undo("first"))
    await book("seat")
    await b()


def test_a_running_step_is_let_end_and_the_next_operation_is_cancelled(drive: Drive) -> None:
    run = drive(two_steps)
    run.execution.take_opened()
    run.cancel()
    assert run.open == {"0": "book"}
    run.returns("0", "seat")
    assert run.outcome.verdict == "cancelled"
    assert [one.call.definition.name for one in run.execution.undos] == ["undo", "undo"]
    assert run.replayed().events == run.events


def test_a_step_that_never_began_is_cut(drive: Drive) -> None:
    run = drive(two_steps)
    run.execution.take_opened()
    run.cancel()
    run.is_cut("0")
    assert run.outcome.verdict == "cancelled"
    assert len(run.execution.undos) == 1


def test_a_step_that_fails_while_it_is_let_end_fails_the_run_with_its_own_error(
    drive: Drive,
) -> None:
    run = drive(two_steps)
    run.execution.take_opened()
    run.cancel()
    run.raises("0", ValueError("no seat"))
    assert run.outcome.verdict == "failed"
    assert isinstance(run.error, ValueError)


async def one_step() -> str:
    await a()
    return "done"


def test_a_run_that_returns_before_its_next_operation_has_completed(drive: Drive) -> None:
    run = drive(one_step)
    run.execution.take_opened()
    run.cancel()
    run.returns("0")
    assert run.result == "done"


def test_an_interruptible_step_is_cancelled_at_once(drive: Drive) -> None:
    async def code() -> None:
        await interruptible()

    run = drive(code)
    run.execution.take_opened()
    run.cancel()
    assert run.outcome.verdict == "cancelled"


async def tidy() -> str:
    try:
        await sleep(60)
    finally:
        await a("cleanup")
        await sleep(1)
        await parallel(b(), c())
    return "not reached"


def test_cleanup_in_finally_is_not_cancelled_nor_are_its_branches(drive: Drive) -> None:
    run = drive(tidy)
    run.cancel()
    run.returns("1")
    run.is_due("2")
    assert run.open == {"3.0.0": "b", "3.1.0": "c"}
    run.returns("3.0.0")
    run.returns("3.1.0")
    assert run.outcome.verdict == "cancelled"
    assert run.replayed().events == run.events


def test_a_second_cancel_does_not_reach_the_cleanup(drive: Drive) -> None:
    run = drive(tidy)
    run.cancel()
    run.cancel()
    run.cancel("deadline")
    assert run.open == {"1": "a"}
    run.returns("1")
    run.is_due("2")
    run.returns("3.0.0")
    run.returns("3.1.0")
    assert run.outcome.verdict == "cancelled"


async def handles_with_except() -> str:
    try:
        await sleep(60)
    except Cancelled:
        await a("cleanup")
        raise
    return "not reached"


def test_cleanup_in_except_is_not_cancelled(drive: Drive) -> None:
    run = drive(handles_with_except)
    run.cancel()
    run.returns("1")
    assert run.outcome.verdict == "cancelled"


async def swallows(times: int) -> str:
    for _ in range(times):
        try:
            await sleep(60)
        except Cancelled:
            continue
    return "survived"


def test_a_swallowed_cancel_comes_again_at_each_later_operation(drive: Drive) -> None:
    run = drive(swallows, 100)
    run.cancel()
    assert run.result == "survived"


def test_after_a_hundred_swallowed_cancels_the_run_is_stuck(drive: Drive) -> None:
    run = drive(swallows, 1_000_000)
    run.cancel()
    assert isinstance(run.stuck, NotDurable)
    assert "swallowed" in str(run.stuck)


async def blind() -> None:
    try:
        await sleep(60)
    except Exception:  # noqa: BLE001  that this does not catch a cancel is what is tested
        await a()


def test_except_exception_does_not_catch_a_cancel(drive: Drive) -> None:
    run = drive(blind)
    run.cancel()
    assert run.outcome.verdict == "cancelled"


def test_a_run_that_turns_its_cancel_into_an_error_has_failed(drive: Drive) -> None:
    async def code() -> None:
        try:
            await sleep(60)
        except Cancelled:
            raise ValueError("gave up") from None

    run = drive(code)
    run.cancel()
    assert run.outcome.verdict == "failed"


def test_a_passed_deadline_fails_the_run(drive: Drive) -> None:
    run = drive(sleeps)
    run.cancel("deadline")
    assert run.outcome.verdict == "failed"
    assert isinstance(run.error, DeadlineExceeded)
    assert isinstance(run.error, TimeoutError)


def test_a_cancelled_raised_by_the_code_itself_is_a_failure(drive: Drive) -> None:
    async def code() -> None:
        raise Cancelled

    assert drive(code).outcome.verdict == "failed"


async def awaits_a_child() -> str:
    try:
        await child()
    finally:
        await a("after the child")
    return "not reached"


def test_a_cancelled_child_is_awaited_before_the_code_hears_of_the_cancel(drive: Drive) -> None:
    run = drive(awaits_a_child)
    run.execution.take_opened()
    run.cancel()
    assert [op.path for op in run.execution.take_withdrawn()] == ["0"]
    assert list(run.open) == ["0"]
    run.is_cut("0")
    assert run.open == {"1": "a"}
    run.returns("1")
    assert run.outcome.verdict == "cancelled"


def test_a_child_that_completed_in_spite_of_the_cancel_gives_its_result(drive: Drive) -> None:
    async def code() -> None:
        compensate(undo(await child()))
        await a()

    run = drive(code)
    run.execution.take_opened()
    run.cancel()
    run.returns("0", "done after all")
    assert run.outcome.verdict == "cancelled"
    assert [one.call.args for one in run.execution.undos] == [("done after all",)]


async def starts_a_child() -> Any:
    handle = await start(child())
    await sleep(60)
    return handle.id


def test_a_detached_child_is_untouched_by_a_cancel(drive: Drive) -> None:
    run = drive(starts_a_child)
    run.child_starts("0", "other")
    run.cancel()
    assert run.outcome.verdict == "cancelled"
    assert [op.kind for op in run.execution.take_withdrawn()] == ["sleep"]


def test_a_detached_child_whose_start_is_on_its_way_is_started(drive: Drive) -> None:
    run = drive(starts_a_child)
    run.execution.take_opened()
    run.cancel()
    assert list(run.open) == ["0"]
    run.child_starts("0", "other")
    assert run.outcome.verdict == "cancelled"


def test_a_cancel_after_the_code_has_ended_changes_nothing(drive: Drive) -> None:
    async def code() -> str:
        await race(a(), sleep(1))
        return "done"

    run = drive(code)
    run.execution.take_opened()
    run.is_due("0.1.0")
    run.cancel()
    run.returns("0.0.0")
    assert run.result == "done"


def test_queued_branches_of_a_cancelled_parallel_never_begin(drive: Drive) -> None:
    async def code() -> None:
        await parallel(*[a(number) for number in range(5)], limit=1)

    run = drive(code)
    run.execution.take_opened()
    run.cancel()
    run.returns("0.0.0")
    assert run.outcome.verdict == "cancelled"
    assert [event[0] for event in run.events].count("asked") == 2
    assert [record.kind for record in run.journal] == [RecordKind.CANCEL, RecordKind.STEP_OK]


async def cleans_in_a_race() -> str:
    try:
        await sleep(60)
    finally:
        compensate(undo(await race(cleans_up(), wait_for_signal("never"), a("slow"))))
    return "not reached"


async def cleans_up() -> str:
    await b()
    return "cleaned"


def test_a_race_in_cleanup_ends_its_losers(drive: Drive) -> None:
    run = drive(cleans_in_a_race)
    run.cancel()
    run.execution.take_opened()
    run.returns("1.0.0")
    assert run.open == {"1.2.0": "a"}
    run.returns("1.2.0")
    assert run.outcome.verdict == "cancelled"
    assert run.replayed().events == run.events


async def fails_in_cleanup() -> None:
    try:
        await sleep(60)
    finally:
        await parallel(a(), wait_for_signal("never"), tidies_and_goes_on())


async def tidies_and_goes_on() -> None:
    await b()
    await c()


def test_a_failure_in_parallel_cleanup_ends_what_runs_beside_it(drive: Drive) -> None:
    run = drive(fails_in_cleanup)
    run.cancel()
    run.execution.take_opened()
    run.raises("1.0.0", ValueError("no"))
    assert run.open == {"1.2.0": "b"}
    run.returns("1.2.0")
    assert run.outcome.verdict == "failed"
    assert isinstance(run.error, ValueError)
    assert run.replayed().events == run.events

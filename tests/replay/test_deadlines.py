"""A block with a deadline is cancelled when that has passed, and the code around it goes on."""

from __future__ import annotations

import contextlib

import pytest

from stepwell import (
    Cancelled,
    DeadlineExceeded,
    Diverged,
    NotDurable,
    OutsideWorkflow,
    deadline,
    parallel,
    race,
    rollback_scope,
    sleep,
    wait_for_signal,
)
from tests.replay.driver import Drive, Driven
from tests.replay.steps import a, b, book, c, interruptible
from tests.replay.test_scopes import undone


def same_again(run: Driven) -> None:
    again = run.replayed()
    assert again.events == run.events
    assert again.open == run.open
    assert list(again.execution.deadlines) == list(run.execution.deadlines)


async def waits() -> str:
    try:
        async with deadline(30):
            await wait_for_signal("go")
    except DeadlineExceeded as error:
        await a()
        return str(error)
    await b()
    return "in time"


def test_a_wait_that_takes_too_long_ends_and_the_error_can_be_handled(drive: Drive) -> None:
    run = drive(waits)
    assert list(run.execution.deadlines) == ["0"]
    run.is_due("0")
    assert run.open == {"2": "a"}
    run.returns("2")
    assert run.result == "the block at path 0 of run 'run' did not end within 30 s"
    same_again(run)


def test_a_block_that_ends_in_time_leaves_nothing_open(drive: Drive) -> None:
    run = drive(waits)
    run.execution.take_opened()
    run.signal("go")
    assert run.open == {"2": "b"}
    assert not run.execution.deadlines
    assert [op.path for op in run.execution.take_withdrawn()] == ["1", "0"]
    run.returns("2")
    assert run.result == "in time"
    same_again(run)


def test_after_the_block_the_run_can_still_be_cancelled(drive: Drive) -> None:
    run = drive(waits)
    run.is_due("0")
    run.execution.take_opened()
    run.cancel()
    run.returns("2")
    assert run.outcome.verdict == "completed"  # it returned before its next operation
    again = drive(unhandled_cleanup)
    again.is_due("0")
    again.cancel()
    assert again.outcome.verdict == "cancelled"


async def unhandled_cleanup() -> None:
    try:
        async with deadline(30):
            await wait_for_signal("never")
    except DeadlineExceeded:
        await sleep(60)  # a cancel reaches it: the block's own cancellation is over


async def unhandled() -> None:
    async with deadline(30):
        await wait_for_signal("never")


def test_a_deadline_that_nobody_handles_fails_the_run(drive: Drive) -> None:
    run = drive(unhandled)
    run.is_due("0")
    assert run.outcome.verdict == "failed"
    assert isinstance(run.error, DeadlineExceeded)
    assert run.execution.retry_voids() == [0]  # a retry gives the block its time again


async def steps() -> None:
    async with deadline(30):
        await book("seat")
        await a()


def test_a_running_step_settles_and_the_next_is_not_begun(drive: Drive) -> None:
    run = drive(steps)
    run.execution.take_opened()
    run.is_due("0")
    assert run.open == {"1": "book"}
    run.returns("1", "seat")
    assert isinstance(run.error, DeadlineExceeded)
    run.roll_back()
    assert undone(run) == ["seat"]
    same_again(run)


async def interrupts() -> None:
    async with deadline(30):
        await interruptible()


def test_an_interruptible_step_is_cut_at_once(drive: Drive) -> None:
    run = drive(interrupts)
    run.execution.take_opened()
    run.is_due("0")
    assert isinstance(run.error, DeadlineExceeded)


async def own_error() -> None:
    async with deadline(30):
        await a()


def test_a_step_that_fails_meanwhile_fails_the_block_with_its_own_error(drive: Drive) -> None:
    run = drive(own_error)
    run.execution.take_opened()
    run.is_due("0")
    run.raises("1", ValueError("no"))
    assert isinstance(run.error, ValueError)


@pytest.mark.parametrize("first", ["deadline", "cancel"])
def test_the_cancel_of_the_run_wins(drive: Drive, first: str) -> None:
    run = drive(steps)
    run.execution.take_opened()
    if first == "deadline":
        run.is_due("0")
        run.cancel()
    else:
        run.cancel()
        run.is_due("0")
    run.returns("1", "seat")
    assert run.outcome.verdict == "cancelled"
    same_again(run)


async def nested() -> list[str]:
    caught: list[str] = []
    try:
        async with deadline(30):
            try:
                async with deadline(10):
                    await a()
            except DeadlineExceeded:
                caught.append("inner")
                await b()
    except DeadlineExceeded:
        caught.append("outer")
    await c()
    return caught


@pytest.mark.parametrize(
    ("due", "caught"),
    [(("1",), ["inner"]), (("0",), ["outer"]), (("1", "0"), ["outer"]), (("0", "1"), ["outer"])],
)
def test_of_nested_deadlines_the_outer_one_wins(
    drive: Drive, due: tuple[str, ...], caught: list[str]
) -> None:
    run = drive(nested)
    run.execution.take_opened()
    for path in due:
        run.is_due(path)
    run.returns("2")
    while run.open:
        run.returns(next(iter(run.open)))
    assert run.result == caught
    same_again(run)


async def in_a_branch() -> list[object]:
    async def branch() -> str:
        async with deadline(30):
            await parallel(wait_for_signal("never"), race(sleep(99), wait_for_signal("never")))
        return "not reached"

    found = await parallel(branch(), a(), return_exceptions=True)
    return [type(one).__name__ for one in found]


def test_the_deadline_of_a_branch_ends_what_that_branch_does(drive: Drive) -> None:
    run = drive(in_a_branch)
    run.is_due("0.0.0")
    assert run.open == {"0.1.0": "a"}
    run.returns("0.1.0")
    assert run.result == ["DeadlineExceeded", "NoneType"]
    same_again(run)


async def swallows() -> str:
    async with deadline(30):
        with contextlib.suppress(BaseException):
            await wait_for_signal("never")
    return "not reached"


async def swallows_for_ever() -> None:
    async with deadline(30):
        while True:
            with contextlib.suppress(Cancelled):
                await wait_for_signal("never")


def test_a_block_that_swallows_its_cancellation_is_too_late_all_the_same(drive: Drive) -> None:
    run = drive(swallows)
    run.is_due("0")
    assert isinstance(run.error, DeadlineExceeded)
    endless = drive(swallows_for_ever)
    endless.is_due("0")
    assert isinstance(endless.stuck, NotDurable)


async def cleans_up() -> None:
    try:
        await wait_for_signal("never")
    finally:
        try:
            async with deadline(5):
                await wait_for_signal("never")
        except DeadlineExceeded:
            await a()


def test_a_cleanup_can_have_a_deadline(drive: Drive) -> None:
    run = drive(cleans_up)
    run.cancel()
    assert run.open == {"2": "never"}
    run.is_due("1")
    assert run.open == {"3": "a"}
    run.returns("3")
    assert run.outcome.verdict == "cancelled"
    same_again(run)


async def no_time() -> str:
    try:
        async with deadline(0):
            await a()
    except DeadlineExceeded:
        return "too late"
    return "not reached"


def test_a_block_without_time_begins_nothing(drive: Drive) -> None:
    run = drive(no_time)
    assert run.result == "too late"
    assert run.open == {}
    assert run.journal == []


async def undoes() -> str:
    try:
        async with deadline(30), rollback_scope():
            await book("seat")
            await wait_for_signal("never")
    except DeadlineExceeded:
        return "undone"
    return "not reached"


def test_a_scope_in_the_block_is_undone_before_its_end(drive: Drive) -> None:
    run = drive(undoes)
    run.returns("1", "seat")
    run.is_due("0")
    assert undone(run) == ["seat"]
    assert run.result == "undone"
    same_again(run)


async def without() -> None:
    await wait_for_signal("go")


def test_code_that_has_lost_its_deadline_has_diverged(drive: Drive) -> None:
    run = drive(unhandled)
    run.is_due("0")
    assert isinstance(run.replayed(without).stuck, Diverged)


def test_outside_of_a_workflow_it_is_refused() -> None:
    with pytest.raises(OutsideWorkflow, match=r"deadline\(\)"):
        deadline(1)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_a_deadline_that_is_no_time_is_refused(drive: Drive, seconds: float) -> None:
    async def code() -> None:
        async with deadline(seconds):
            pass

    assert isinstance(drive(code).error, ValueError)

"""A block with a rollback scope undoes what it did when it fails, and the code goes on."""

from __future__ import annotations

import pytest

from stepwell import (
    Cancelled,
    OutsideWorkflow,
    compensate,
    parallel,
    race,
    rollback_scope,
    sleep,
    wait_for_signal,
)
from tests.replay.driver import Drive, Driven
from tests.replay.steps import a, b, book, c, undo
from tests.replay.test_undo import arguments_of


def undone(run: Driven) -> list[object]:
    """Have every undo that is asked for succeed, and return their arguments, in that order."""
    found: list[object] = []
    while path := next((path for path in run.open if path.startswith("~")), None):
        found.append(arguments_of(run, path)[0])
        run.returns(path)
    return found


def same_again(run: Driven) -> None:
    again = run.replayed()
    assert again.events == run.events
    assert again.open == run.open
    assert again.outcome.verdict == run.outcome.verdict


async def tries_twice() -> str:
    compensate(undo("outer"))
    try:
        async with rollback_scope():
            compensate(undo("first"))
            await book("second")
            await a()
    except ValueError:
        await b()
    await c()
    return "went on"


def test_a_failed_block_is_undone_newest_first_and_its_error_can_be_handled(drive: Drive) -> None:
    run = drive(tries_twice)
    run.returns("0", "second")
    run.raises("1", ValueError("no"))
    assert undone(run) == ["second", "first"]
    assert run.open == {"3": "b"}
    run.returns("3")
    run.returns("4")
    assert run.result == "went on"
    same_again(run)


def test_what_a_scope_has_undone_is_not_undone_again_by_the_run(drive: Drive) -> None:
    run = drive(tries_twice)
    run.returns("0", "second")
    run.raises("1", ValueError("no"))
    undone(run)
    run.returns("3")
    run.raises("4", KeyError("later"))
    assert not run.execution.undone_for_good
    run.roll_back()
    assert undone(run) == ["outer"]
    assert run.execution.rolled_back
    same_again(run)


def test_the_undos_of_a_block_that_ended_well_stay_registered(drive: Drive) -> None:
    run = drive(tries_twice)
    run.returns("0", "second")
    run.returns("1")
    run.raises("2", KeyError("later"))
    run.roll_back()
    assert undone(run) == ["second", "first", "outer"]


async def nested() -> None:
    async with rollback_scope():
        compensate(undo("outer"))
        async with rollback_scope():
            compensate(undo("done"))
            await a()
        try:
            async with rollback_scope():
                compensate(undo("inner"))
                await b()
        except ValueError:
            await c()
        await a()


def test_nested_scopes_undo_what_is_theirs(drive: Drive) -> None:
    run = drive(nested)
    run.returns("0")
    run.raises("1", ValueError("no"))
    assert undone(run) == ["inner"]
    run.returns("3")
    run.raises("4", KeyError("later"))
    assert undone(run) == ["done", "outer"]
    assert isinstance(run.error, KeyError)
    assert not run.execution.wants_rollback
    same_again(run)


def test_an_undo_that_fails_is_noted_and_is_left_to_what_is_around_the_block(drive: Drive) -> None:
    run = drive(tries_twice)
    run.returns("0", "second")
    run.raises("1", ValueError("no"))
    run.raises("~2.0", OSError("down"))
    run.returns("~1.0")
    run.raises("3", KeyError("cannot go on"))
    context = run.error.__context__
    assert context is not None
    notes = ["rollback of the scope incomplete: an undo failed with OSError: down"]
    assert context.__notes__ == notes
    run.roll_back()
    assert run.open == {"~2.1": "undo"}
    run.raises("~2.1", OSError("still down"))
    assert undone(run) == ["outer"]
    assert [str(error) for error in run.execution.undo_errors] == ["still down"]
    run.resume_rollback()
    assert undone(run) == ["second"]
    assert run.execution.undo_errors == []
    same_again(run)


async def in_branches() -> None:
    async def branch(name: str) -> None:
        async with rollback_scope():
            await book(name)
            await parallel(book(f"{name} inside"), sleep(1))
            await a(name)

    await parallel(branch("x"), branch("y"), return_exceptions=True)
    await b()


def test_the_scope_of_a_branch_has_what_was_registered_in_it_and_its_branches(
    drive: Drive,
) -> None:
    run = drive(in_branches)
    for name in ("x", "y"):
        prefix = "0.0." if name == "x" else "0.1."
        run.returns(f"{prefix}0", name)
        run.returns(f"{prefix}1.0.0", f"{name} inside")
        run.is_due(f"{prefix}1.1.0")
    run.raises("0.0.2", ValueError("no"))
    assert undone(run) == ["x inside", "x"]
    run.returns("0.1.2")
    run.raises("1", KeyError("later"))
    run.roll_back()
    assert undone(run) == ["y inside", "y"]
    same_again(run)


async def group_in_a_scope() -> str:
    try:
        async with rollback_scope():
            await parallel(book("x"), book("y"), a())
    except ValueError:
        return "handled"
    return "not reached"


def test_a_failing_branch_lets_its_siblings_settle_before_their_scope_is_undone(
    drive: Drive,
) -> None:
    run = drive(group_in_a_scope)
    run.execution.take_opened()
    run.returns("0.0.0", "x")
    run.raises("0.2.0", ValueError("no"))
    assert run.open == {"0.1.0": "book"}
    run.returns("0.1.0", "y")
    assert undone(run) == ["y", "x"]
    assert run.result == "handled"
    same_again(run)


async def lost_in_a_scope() -> str:
    try:
        async with rollback_scope():
            await race(book("loser"), sleep(1))
            raise ValueError
    except ValueError:
        return "handled"


def test_the_loser_of_a_race_settles_before_its_scope_is_undone(drive: Drive) -> None:
    run = drive(lost_in_a_scope)
    run.execution.take_opened()
    run.is_due("0.1.0")
    assert run.open == {"0.0.0": "book"}
    run.returns("0.0.0", "loser")
    assert undone(run) == ["loser"]
    assert run.result == "handled"
    same_again(run)


async def lost_after_a_scope() -> None:
    async with rollback_scope():
        async with rollback_scope():
            await race(book("loser"), sleep(1))
        await a()


def test_what_a_loser_books_after_its_block_belongs_to_what_is_around_it(drive: Drive) -> None:
    run = drive(lost_after_a_scope)
    run.execution.take_opened()
    run.is_due("0.1.0")
    run.returns("0.0.0", "loser")
    run.raises("1", ValueError("no"))
    assert undone(run) == ["loser"]
    assert run.outcome.verdict == "failed"
    same_again(run)


async def cancelled_inside() -> None:
    compensate(undo("outer"))
    try:
        async with rollback_scope():
            compensate(undo("inner"))
            await wait_for_signal("never")
    except Cancelled:
        await a()
        raise


@pytest.mark.parametrize("word", ["cancel", "deadline"])
def test_a_cancelled_block_is_undone_and_the_cancel_goes_on(drive: Drive, word: str) -> None:
    run = drive(cancelled_inside)
    run.cancel(word)
    assert undone(run) == ["inner"]
    run.returns("1" if "1" in run.open else "2")
    run.roll_back()
    assert undone(run) == ["outer"]
    same_again(run)


async def goes_on() -> None:
    try:
        async with rollback_scope():
            compensate(undo("2"))
            compensate(undo("1"))
            await a()
    except ValueError:
        await b()


def test_a_cancel_does_not_interrupt_the_undos_of_a_scope(drive: Drive) -> None:
    run = drive(goes_on)
    run.raises("0", ValueError("no"))
    run.execution.take_opened()
    run.cancel()
    assert undone(run) == ["1", "2"]
    assert run.outcome.verdict == "cancelled"
    assert run.open == {}
    same_again(run)


async def fails_while_it_is_cancelled() -> None:
    async with rollback_scope():
        compensate(undo("1"))
        await a()


def test_a_step_that_fails_while_its_branch_is_cancelled_is_undone(drive: Drive) -> None:
    run = drive(fails_while_it_is_cancelled)
    run.execution.take_opened()
    run.cancel()
    run.raises("0", ValueError("no"))
    assert undone(run) == ["1"]
    assert run.outcome.verdict == "failed"
    same_again(run)


def test_a_run_that_failed_by_what_a_scope_has_undone_cannot_be_retried_from_there(
    drive: Drive,
) -> None:
    run = drive(fails_while_it_is_cancelled)
    run.raises("0", ValueError("no"))
    assert undone(run) == ["1"]
    assert run.execution.undone_for_good


async def discards_in_time() -> None:
    async with rollback_scope():
        kept = compensate(undo("kept"))
        compensate(undo("dropped")).discard()
        assert kept is not None
        await a()


def test_a_discarded_undo_is_not_run_by_its_scope(drive: Drive) -> None:
    run = drive(discards_in_time)
    run.raises("0", ValueError("no"))
    assert undone(run) == ["kept"]


def test_outside_of_a_workflow_it_is_refused() -> None:
    with pytest.raises(OutsideWorkflow, match=r"rollback_scope\(\)"):
        rollback_scope()

"""Rollback: every registered undo, once, newest first, whatever the other undos do."""

from __future__ import annotations

import pytest

from stepwell import Undo, compensate, parallel, sleep
from tests.replay.driver import Drive, Driven, codec
from tests.replay.steps import a, b, book, undo


async def three_undos() -> None:
    compensate(undo(1))
    await a()
    compensate(undo(2))
    compensate(undo(3))
    await b()


def failed(drive: Drive) -> Driven:
    run = drive(three_undos)
    run.returns("0")
    run.raises("1", ValueError("no"))
    run.roll_back()
    return run


def test_undos_run_one_at_a_time_newest_first(drive: Drive) -> None:
    run = failed(drive)
    for index in (2, 1, 0):
        assert run.open == {f"~{index}.0": "undo"}
        run.returns(f"~{index}.0")
    assert run.execution.rolled_back
    assert run.execution.finished
    assert run.execution.undo_errors == []
    assert run.replayed().events == run.events
    assert run.replayed().execution.finished


def test_nothing_is_undone_before_the_failure_is_journaled(drive: Drive) -> None:
    run = drive(three_undos)
    run.returns("0")
    run.raises("1", ValueError("no"))
    assert run.execution.wants_rollback
    assert not run.execution.finished
    assert run.open == {}


def test_an_undo_runs_although_the_step_after_it_did_not(drive: Drive) -> None:
    run = drive(three_undos)
    run.raises("0", ValueError("no"))
    run.roll_back()
    run.returns("~0.0")
    assert run.execution.rolled_back


def test_a_completed_run_undoes_nothing(drive: Drive) -> None:
    run = drive(three_undos)
    run.returns("0")
    run.returns("1")
    assert run.result is None
    assert run.execution.finished
    assert not run.execution.wants_rollback


@pytest.mark.parametrize("word", ["cancel", "deadline"])
def test_cancel_and_deadline_roll_back_too(drive: Drive, word: str) -> None:
    async def code() -> None:
        compensate(undo(1))
        await sleep(60)

    run = drive(code)
    run.cancel(word)
    run.roll_back()
    assert run.open == {"~0.0": "undo"}


def test_a_cancel_does_not_interrupt_the_undos(drive: Drive) -> None:
    run = failed(drive)
    run.cancel()
    run.cancel("deadline")
    for index in (2, 1, 0):
        run.returns(f"~{index}.0")
    assert run.execution.rolled_back
    assert isinstance(run.error, ValueError)


def test_an_undo_that_fails_does_not_stop_the_others(drive: Drive) -> None:
    run = failed(drive)
    run.returns("~2.0")
    run.raises("~1.0", KeyError("undo 2"))
    run.returns("~0.0")
    assert run.execution.rolled_back
    assert [str(error) for error in run.execution.undo_errors] == ["'undo 2'"]
    assert isinstance(run.error, ValueError)


def test_a_resumed_rollback_repeats_only_what_failed(drive: Drive) -> None:
    run = failed(drive)
    run.raises("~2.0", KeyError("undo 3"))
    run.returns("~1.0")
    run.raises("~0.0", KeyError("undo 1"))
    run.resume_rollback()
    # a repeated undo begins where its first try ended, so that their records do not mix
    first = next(iter(run.open))
    assert first.startswith("~2.")
    run.returns(first)
    second = next(iter(run.open))
    assert second.startswith("~0.")
    run.returns(second)
    assert run.execution.rolled_back
    assert run.execution.undo_errors == []
    assert run.replayed().execution.finished


def test_a_rollback_can_be_resumed_again_and_again(drive: Drive) -> None:
    run = failed(drive)
    for index in (2, 1):
        run.returns(f"~{index}.0")
    run.raises(next(iter(run.open)), KeyError("once"))
    run.resume_rollback()
    run.raises(next(iter(run.open)), KeyError("twice"))
    assert len(run.execution.undo_errors) == 1
    run.resume_rollback()
    run.returns(next(iter(run.open)))
    assert run.execution.undo_errors == []
    assert run.replayed().execution.undo_errors == []
    assert run.replayed().events == run.events


async def discards() -> None:
    kept = compensate(undo("kept"))
    dropped: Undo = compensate(undo("dropped"))
    assert isinstance(kept, Undo)
    await a()
    dropped.discard()
    dropped.discard()
    await b()


def test_a_discarded_undo_does_not_run(drive: Drive) -> None:
    run = drive(discards)
    run.returns("0")
    run.raises("1", ValueError("no"))
    run.roll_back()
    assert run.open == {"~0.0": "undo"}
    run.returns("~0.0")
    assert run.execution.rolled_back


def test_an_undo_that_was_discarded_too_late_runs(drive: Drive) -> None:
    run = drive(discards)
    run.raises("0", ValueError("no"))
    run.roll_back()
    assert run.open == {"~1.0": "undo"}


async def in_branches() -> None:
    async def branch(name: str) -> None:
        await sleep(1)
        compensate(undo(name))
        await book(name)

    await parallel(branch("x"), branch("y"))
    await a()


def test_undos_of_several_branches_run_in_reverse_order_of_registration(drive: Drive) -> None:
    run = drive(in_branches)
    run.is_due("0.1.0")
    run.is_due("0.0.0")
    run.returns("0.0.1", "seat x")
    run.returns("0.1.1", "seat y")
    run.raises("1", ValueError("no"))
    run.roll_back()
    undone: list[object] = []
    while run.open:
        path = next(iter(run.open))
        undone.append(arguments_of(run, path)[0])
        run.returns(path)
    assert undone == ["seat y", "seat x", "x", "y"]
    assert run.replayed().events == run.events


def arguments_of(run: Driven, path: str) -> tuple[object, ...]:
    prefix = path.rpartition(".")[0] + "."
    for event in run.events:
        if event[0] == "asked" and event[1] == prefix:
            args: tuple[object, ...] = event[-1]
            return args
    raise LookupError(path)


async def changes_its_mind() -> None:
    order = {"id": 1}
    compensate(undo(order))
    order["id"] = 2
    await a()


def test_an_undo_gets_its_arguments_as_they_were_at_registration(drive: Drive) -> None:
    run = drive(changes_its_mind)
    run.raises("0", ValueError("no"))
    run.roll_back()
    assert arguments_of(run, "~0.0") == ({"id": 1},)


async def books() -> None:
    ref = await book("ref-1")
    ref.append("changed")
    await a()


def test_the_undo_of_a_step_gets_the_result_that_was_recorded(drive: Drive) -> None:
    run = drive(books)
    run.returns("0", ["ref-1"])
    run.raises("1", ValueError("no"))
    run.roll_back()
    assert arguments_of(run, "~0.0") == (["ref-1"],)


def test_a_step_that_failed_is_not_undone(drive: Drive) -> None:
    run = drive(books)
    run.raises("0", ValueError("no"))
    assert not run.execution.wants_rollback
    assert run.execution.finished


def test_the_failure_that_began_the_rollback_is_in_the_journal(drive: Drive) -> None:
    run = failed(drive)
    assert run.journal[-1].name == "failed"
    assert str(codec.decode_error(run.journal[-1].value)) == "no"

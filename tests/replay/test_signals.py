"""Signals belong to the run: they wait for whoever asks, in the order in which they arrived."""

from __future__ import annotations

import pytest

from stepwell import (
    SerializationError,
    Signal,
    SignalTimeout,
    parallel,
    race,
    sleep,
    wait_for_signal,
)
from stepwell_queue.contract import RecordKind
from tests.replay.driver import Drive
from tests.replay.steps import a, b

number = Signal("number", int)


async def one_after_a_step() -> object:
    await a()
    return await wait_for_signal("go")


def test_a_signal_that_came_before_its_wait_is_kept_for_it(drive: Drive) -> None:
    run = drive(one_after_a_step)
    run.signal("go", 1)
    run.returns("0")
    assert run.result == 1
    assert run.execution.unread_signals == 0


def test_a_signal_that_comes_later_ends_its_wait(drive: Drive) -> None:
    run = drive(one_after_a_step)
    run.returns("0")
    assert run.open == {"1": "go"}
    run.signal("go", 1)
    assert run.result == 1


async def work_and_wait_in_a_loop() -> list[object]:
    answers: list[object] = []
    for turn in range(3):
        await a(turn)
        answers.append(await wait_for_signal("go"))
    return answers


@pytest.mark.parametrize("early", range(4))
def test_signals_of_one_name_are_taken_in_the_order_of_arrival(drive: Drive, early: int) -> None:
    run = drive(work_and_wait_in_a_loop)
    for value in range(early):
        run.signal("go", value)
    for turn in range(3):
        run.returns(str(2 * turn))
        if turn >= early:
            run.signal("go", turn)
    assert run.result == [0, 1, 2]
    assert run.replayed().events == run.events


def test_signals_of_other_names_are_left_alone_and_counted(drive: Drive) -> None:
    run = drive(one_after_a_step)
    run.signal("stop", 9)
    run.returns("0")
    run.signal("go", 1)
    assert run.result == 1
    assert run.execution.unread_signals == 1


async def two_branches() -> tuple[object, object]:
    return await parallel(wait_for_signal("go"), wait_for_signal("go"))


def test_the_wait_that_was_reached_first_gets_the_first_signal(drive: Drive) -> None:
    run = drive(two_branches)
    run.signal("go", "first")
    assert run.open == {"0.1.0": "go"}
    run.signal("go", "second")
    assert run.result == ("first", "second")


async def lose_and_ask_again() -> list[object]:
    index, _ = await race(wait_for_signal("go"), sleep(1))
    return [index, await wait_for_signal("go")]


def test_a_losing_branch_takes_no_signal(drive: Drive) -> None:
    run = drive(lose_and_ask_again)
    run.is_due("0.1.0")
    run.signal("go", 7)
    assert run.result == [1, 7]


async def in_time_or_fall_back() -> list[object]:
    try:
        first = await wait_for_signal(number, timeout=5.0)
        return [first]
    except SignalTimeout as error:
        return [str(error), await b()]


def test_a_wait_that_timed_out_stays_so_when_its_signal_comes_later(drive: Drive) -> None:
    run = drive(in_time_or_fall_back)
    assert run.execution.ops["0"].due == run.now + 5.0
    run.is_due("0")
    run.signal("number", 3)
    run.returns("1", "fallback")
    assert run.result[1] == "fallback"
    assert "'number'" in run.result[0]
    assert run.replayed().result == run.result


def test_a_timer_that_comes_after_its_signal_changes_nothing(drive: Drive) -> None:
    run = drive(in_time_or_fall_back)
    run.signal("number", 3)
    run.say(RecordKind.TIMER, "0", "number")
    assert run.result == [3]
    assert run.replayed().result == [3]


async def with_default() -> list[object]:
    late: list[int] = []
    first = await wait_for_signal("go", list[int], timeout=1.0, default=late)
    late.append(1)
    return [first, first is late]


def test_a_default_comes_back_as_a_value_of_its_own(drive: Drive) -> None:
    run = drive(with_default)
    run.is_due("0")
    assert run.result == [[], False]


async def wait_twice_for_a_number() -> object:
    try:
        return await wait_for_signal(number)
    except SerializationError:
        return ["bad", await wait_for_signal(number)]


def test_a_signal_that_does_not_fit_its_type_is_raised_at_the_wait_and_used_up(
    drive: Drive,
) -> None:
    run = drive(wait_twice_for_a_number)
    run.signal("number", "seven")
    run.signal("number", 7)
    assert run.result == ["bad", 7]
    assert run.replayed().result == ["bad", 7]


@pytest.mark.parametrize("early", [True, False])
def test_a_signal_that_does_not_fit_is_the_same_error_early_or_late(
    drive: Drive, early: bool
) -> None:
    async def ask() -> object:
        if early:
            await a()
        return await wait_for_signal(number)

    run = drive(ask)
    run.signal("number", "seven")
    if early:
        run.returns("0")
    assert isinstance(run.error, SerializationError)
    assert "number" in str(run.error)


async def waits_with_a_bad_default() -> str:
    try:
        await wait_for_signal("go", timeout=5.0, default=object)
    except SerializationError:
        await a("refused")
    return "went on"


def test_a_default_that_cannot_be_stored_is_refused_where_the_wait_is_asked_for(
    drive: Drive,
) -> None:
    run = drive(waits_with_a_bad_default)
    assert run.open == {"1": "a"}
    run.returns("1")
    assert run.result == "went on"
    assert run.replayed().events == run.events

"""parallel and race: who is resumed when, with what, and what becomes of the others."""

from __future__ import annotations

import pytest

from stepwell import parallel, race, sleep, wait_for_signal
from tests.replay.driver import Drive
from tests.replay.steps import a, b, book, c, child, interruptible


async def pair() -> tuple[object, object]:
    return await parallel(a(1), b(2))


@pytest.mark.parametrize("order", [("0.0.0", "0.1.0"), ("0.1.0", "0.0.0")])
def test_results_come_in_the_order_of_the_arguments(drive: Drive, order: tuple[str, str]) -> None:
    run = drive(pair)
    assert run.open == {"0.0.0": "a", "0.1.0": "b"}
    for path in order:
        run.returns(path, path)
    assert run.result == ("0.0.0", "0.1.0")


async def three_at_once() -> object:
    try:
        return await parallel(a(), sleep(60), b())
    except ValueError as error:
        return [str(error), getattr(error, "__notes__", []), await c()]


def test_a_failure_ends_the_waits_of_the_others_and_lets_running_steps_end(drive: Drive) -> None:
    run = drive(three_at_once)
    run.raises("0.0.0", ValueError("first"))
    assert run.open == {"0.2.0": "b"}
    run.returns("0.2.0")
    assert run.open == {"1": "c"}
    run.returns("1")
    assert run.result == ["first", [], None]


def test_the_first_failure_is_raised_itself_and_later_ones_are_notes_on_it(drive: Drive) -> None:
    run = drive(three_at_once)
    run.raises("0.2.0", ValueError("first"))
    run.raises("0.0.0", KeyError("second"))
    run.returns("1", "handled")
    message, notes, handled = run.result
    assert (message, handled) == ("first", "handled")
    assert "KeyError: 'second'" in notes[0]
    assert "0.0" in notes[0]
    assert run.replayed().result == run.result


def test_a_failed_sibling_is_no_divergence_on_replay(drive: Drive) -> None:
    run = drive(three_at_once)
    run.raises("0.0.0", ValueError("first"))
    again = run.replayed()
    again.returns("0.2.0")
    assert again.open == {"1": "c"}


async def with_children() -> object:
    return await parallel(a(), child())


def test_children_of_a_failed_parallel_are_cancelled_and_awaited(drive: Drive) -> None:
    run = drive(with_children)
    run.execution.take_opened()
    run.raises("0.0.0", ValueError("no"))
    assert [op.path for op in run.execution.take_withdrawn()] == ["0.1.0"]
    assert run.execution.outcome is None
    run.is_cut("0.1.0")
    assert isinstance(run.error, ValueError)


async def keep_going() -> object:
    found = await parallel(a(), b(), return_exceptions=True)
    return [repr(one) for one in found]


def test_with_return_exceptions_nothing_is_cancelled(drive: Drive) -> None:
    run = drive(keep_going)
    run.raises("0.0.0", ValueError("no"))
    assert run.open == {"0.1.0": "b"}
    run.returns("0.1.0", 2)
    assert run.result == ["ValueError('no')", "2"]


async def two_at_a_time() -> object:
    return await parallel(*[a(number) for number in range(4)], limit=2)


def test_no_more_branches_than_the_limit_are_open(drive: Drive) -> None:
    run = drive(two_at_a_time)
    assert list(run.open) == ["0.0.0", "0.1.0"]
    run.returns("0.1.0", 1)
    assert list(run.open) == ["0.0.0", "0.2.0"]
    for path in ("0.2.0", "0.0.0", "0.3.0"):
        run.returns(path, int(path[2]))
    assert run.result == (0, 1, 2, 3)


def test_branches_that_have_not_begun_never_do_once_one_has_failed(drive: Drive) -> None:
    run = drive(two_at_a_time)
    run.raises("0.0.0", ValueError("no"))
    assert list(run.open) == ["0.1.0"]
    run.returns("0.1.0")
    assert isinstance(run.error, ValueError)


async def empty() -> object:
    found: tuple[object, ...] = await parallel()
    return found


def test_a_parallel_of_nothing_is_done_at_once(drive: Drive) -> None:
    assert drive(empty).result == ()


async def fast_or_late() -> object:
    index, value = await race(a(), sleep(10))
    return [index, value, await b()]


def test_a_race_returns_with_its_winner_at_once(drive: Drive) -> None:
    run = drive(fast_or_late)
    run.returns("0.0.0", "fast")
    assert run.open == {"1": "b"}
    run.returns("1")
    assert run.result == [0, "fast", None]


def test_a_running_step_that_lost_a_race_is_let_end(drive: Drive) -> None:
    run = drive(fast_or_late)
    run.execution.take_opened()
    run.is_due("0.1.0")
    assert run.open == {"0.0.0": "a", "1": "b"}
    run.returns("1", "went on")
    assert run.execution.outcome is None, "a run does not end while a step of it is running"
    run.returns("0.0.0", "too late")
    assert run.result == [1, None, "went on"]
    assert run.replayed().result == run.result


async def failing_winner() -> object:
    return await race(a(), sleep(10))


def test_a_winner_that_failed_keeps_its_error(drive: Drive) -> None:
    run = drive(failing_winner)
    run.raises("0.0.0", KeyError("mine"))
    assert isinstance(run.error, KeyError)


async def booked_in_a_losing_branch() -> None:
    async def loser() -> None:
        await book("seat")
        await sleep(60)

    await race(loser(), wait_for_signal("go"))
    await a()


@pytest.mark.parametrize("booked_before", [True, False])
def test_undos_of_a_losing_branch_stay_registered(drive: Drive, booked_before: bool) -> None:
    run = drive(booked_in_a_losing_branch)
    run.execution.take_opened()
    if booked_before:
        run.returns("0.0.0", "seat")
        run.signal("go")
    else:
        run.signal("go")
        run.returns("0.0.0", "seat")
    run.raises("1", ValueError("later"))
    run.roll_back()
    assert run.open == {"~0.0": "undo"}


async def interruptible_loser() -> object:
    return await race(interruptible(), sleep(1))


def test_an_interruptible_step_that_lost_is_not_waited_for(drive: Drive) -> None:
    run = drive(interruptible_loser)
    run.execution.take_opened()
    run.is_due("0.1.0")
    assert run.result == (1, None)
    assert [op.path for op in run.execution.take_withdrawn()] == ["0.0.0"]


async def nested() -> object:
    async def inner() -> object:
        return await parallel(a(), race(b(), sleep(5)))

    return await race(inner(), sleep(1))


def test_groups_nest(drive: Drive) -> None:
    run = drive(nested)
    assert run.open == {
        "0.0.0.0.0": "a",
        "0.1.0": "sleep",
        "0.0.0.1.0.0.0": "b",
        "0.0.0.1.0.1.0": "sleep",
    }
    run.returns("0.0.0.1.0.0.0", "b")
    run.returns("0.0.0.0.0", "a")
    assert run.result == (0, ("a", (0, "b")))


def test_a_lost_group_is_cancelled_to_its_leaves(drive: Drive) -> None:
    run = drive(nested)
    run.execution.take_opened()
    run.is_due("0.1.0")
    assert set(run.open) == {"0.0.0.0.0", "0.0.0.1.0.0.0"}
    assert run.execution.outcome is None
    run.is_cut("0.0.0.0.0")
    run.returns("0.0.0.1.0.0.0")
    assert run.result == (1, None)


async def asked_and_cancelled_at_once() -> object:
    async def late() -> object:
        return await a()

    async def winner() -> str:
        return "won"

    return await race(late(), winner())


def test_a_step_that_is_asked_for_and_cancelled_in_one_delivery_is_never_begun(
    drive: Drive,
) -> None:
    run = drive(asked_and_cancelled_at_once)
    assert run.result == (1, "won")
    assert run.execution.take_opened() == []
    assert run.journal == []


async def shared_by_branches() -> list[object]:
    seen: list[str] = []

    async def branch(name: str) -> object:
        await sleep(1)
        seen.append(name)
        # which step this is depends on who came first
        return await (a() if seen[0] == name else b())

    await parallel(branch("x"), branch("y"))
    return list(seen)


@pytest.mark.parametrize("order", [("0.0.0", "0.1.0"), ("0.1.0", "0.0.0")])
def test_state_shared_between_branches_takes_the_same_path_on_replay(
    drive: Drive, order: tuple[str, str]
) -> None:
    run = drive(shared_by_branches)
    for path in order:
        run.is_due(path)
    first, second = (path[:-1] + "1" for path in order)
    assert run.open == {first: "a", second: "b"}
    run.returns(second)
    run.returns(first)
    assert run.replayed().events == run.events
    assert run.replayed().result == run.result

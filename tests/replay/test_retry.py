"""A retry voids what failed and what was asked for after it; the rest stays done."""

from __future__ import annotations

import contextlib

from stepwell import Cancelled, parallel, sleep, wait_for_signal
from stepwell_queue.contract import RecordKind
from tests.replay.driver import Code, Drive, Driven
from tests.replay.steps import a, b, c, child


def retried(run: Driven, drive: Drive, code: Code) -> Driven:
    """Return fresh code to which all but the voided records were delivered."""
    voided = run.execution.retry_voids()
    again = drive(code)
    for record in run.journal:
        if record.seq not in voided:
            again.deliver(record)
    return again


async def in_sequence() -> list[object]:
    return [await a(), await b(), await c()]


def test_a_retry_goes_on_from_the_step_that_failed(drive: Drive) -> None:
    run = drive(in_sequence)
    run.returns("0", 1)
    run.raises("1", ValueError("no"))
    assert run.execution.retry_voids() == [1]
    again = retried(run, drive, in_sequence)
    assert again.open == {"1": "b"}


async def tries_something_else() -> object:
    try:
        await a()
    except ValueError:
        await b()
        raise
    return None


def test_what_was_done_about_the_failure_is_done_anew(drive: Drive) -> None:
    run = drive(tries_something_else)
    run.raises("0", ValueError("no"))
    run.returns("1")
    assert run.execution.retry_voids() == [0, 1]
    again = retried(run, drive, tries_something_else)
    assert again.open == {"0": "a"}


async def at_once() -> object:
    return await parallel(a(), b(), sleep(5))


def test_what_other_branches_had_done_stays_done(drive: Drive) -> None:
    run = drive(at_once)
    run.execution.take_opened()
    run.raises("0.0.0", ValueError("no"))
    run.returns("0.1.0", "kept")
    assert run.execution.retry_voids() == [0]
    again = retried(run, drive, at_once)
    assert set(again.open) == {"0.0.0", "0.2.0"}


def test_what_was_cut_because_of_the_failure_is_done_anew(drive: Drive) -> None:
    run = drive(at_once)
    run.execution.take_opened()
    run.raises("0.0.0", ValueError("no"))
    run.is_cut("0.1.0")
    assert run.execution.retry_voids() == [0, 1]


async def wraps() -> None:
    try:
        await a()
    except ValueError as error:
        raise RuntimeError("wrapped") from error


def test_the_failed_step_is_found_behind_an_error_that_wraps_it(drive: Drive) -> None:
    run = drive(wraps)
    run.raises("0", ValueError("no"))
    assert run.execution.retry_voids() == [0]


async def forgives_then_fails() -> None:
    with contextlib.suppress(ValueError):
        await a()
    await b()


def test_a_failure_that_was_forgiven_is_not_retried(drive: Drive) -> None:
    run = drive(forgives_then_fails)
    run.raises("0", ValueError("no"))
    run.raises("1", KeyError("too"))
    assert run.execution.retry_voids() == [1]


async def fails_by_itself() -> None:
    await a()
    raise ValueError("own")


def test_a_failure_of_the_code_itself_voids_nothing(drive: Drive) -> None:
    run = drive(fails_by_itself)
    run.returns("0")
    assert run.execution.retry_voids() == []


def test_a_completed_run_has_nothing_to_void(drive: Drive) -> None:
    run = drive(in_sequence)
    for path in ("0", "1", "2"):
        run.returns(path)
    assert run.execution.retry_voids() == []


async def of_a_child() -> object:
    await wait_for_signal("go")
    return await child()


def test_a_failed_child_is_voided_and_signals_are_kept(drive: Drive) -> None:
    run = drive(of_a_child)
    run.signal("go", 1)
    run.raises("1", ValueError("no"))
    assert [run.journal[seq].kind for seq in run.execution.retry_voids()] == [
        RecordKind.CHILD_FAILED
    ]


async def cleans_up_and_fails() -> None:
    try:
        await a()
    finally:
        await b("cleanup")


def test_cleanup_after_the_failure_is_done_anew(drive: Drive) -> None:
    run = drive(cleans_up_and_fails)
    run.raises("0", ValueError("no"))
    run.returns("1")
    assert run.execution.retry_voids() == [0, 1]


def test_a_cancelled_run_has_nothing_to_void(drive: Drive) -> None:
    run = drive(in_sequence)
    run.cancel()
    run.is_cut("0")
    assert isinstance(run.error, Cancelled)
    assert run.execution.retry_voids() == []


def test_what_failed_while_it_was_let_end_is_done_anew(drive: Drive) -> None:
    run = drive(at_once)
    run.execution.take_opened()
    run.raises("0.0.0", ValueError("no"))
    run.raises("0.1.0", ValueError("one attempt only"))
    assert run.execution.retry_voids() == [0, 1]

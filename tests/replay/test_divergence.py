"""Code that does not fit its journal stops at once, and says where and why."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import DecodingError, Diverged, StepwellError, parallel, race, sleep, wait_for_signal
from stepwell_queue.contract import RecordKind
from tests.replay.driver import Code, Drive, codec
from tests.replay.steps import a, b, c, child


async def a_then_b() -> None:
    await a()
    await b()


async def b_then_a() -> None:
    await b()
    await a()


async def only_a() -> None:
    await a()


async def b_first() -> None:
    await c()
    await a()
    await b()


async def sleeps_then_b() -> None:
    await sleep(1)
    await b()


async def child_then_b() -> None:
    await child()
    await b()


async def waits_then_b() -> None:
    await wait_for_signal("go")
    await b()


async def nothing() -> None: ...


async def in_a_group() -> None:
    await parallel(a(), b())


@pytest.mark.parametrize(
    ("code", "path", "asked"),
    [
        (b_then_a, "0", "step 'b'"),
        (b_first, "0", "step 'c'"),
        (sleeps_then_b, "0", "sleep 'sleep'"),
        (child_then_b, "0", "child"),
        (waits_then_b, "0", "wait 'go'"),
        (in_a_group, "0", "nothing"),
        (only_a, "1", "nothing"),
        (nothing, "0", "nothing"),
    ],
)
def test_a_journal_of_other_code_is_refused_naming_what_was_recorded_and_asked(
    drive: Drive, code: Code, path: str, asked: str
) -> None:
    run = drive(a_then_b)
    run.returns("0")
    run.returns("1")
    again = run.replayed(code)
    stuck = again.stuck
    assert isinstance(stuck, Diverged)
    assert isinstance(stuck, StepwellError)
    assert stuck.path == path
    assert "step ok" in stuck.recorded
    assert asked in stuck.asked
    assert path in str(stuck)


def test_nothing_is_delivered_past_a_divergence(drive: Drive) -> None:
    run = drive(a_then_b)
    run.returns("0")
    again = run.replayed(b_then_a)
    asked = list(again.events)
    again.say(RecordKind.STEP_OK, "0", "b", codec.encode(None, "a result"))
    again.signal("go")
    assert [event for event in again.events if event[0] == "asked"] == [
        event for event in asked if event[0] == "asked"
    ]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (RecordKind.TIMER, "a"),
        (RecordKind.CHILD_OK, "a"),
        (RecordKind.STARTED, "a"),
        (RecordKind.STEP_OK, "b"),
    ],
)
def test_a_record_of_another_kind_or_name_is_refused(
    drive: Drive, kind: RecordKind, name: str
) -> None:
    run = drive(only_a)
    run.say(kind, "0", name, codec.encode(None, "a result"))
    assert isinstance(run.stuck, Diverged)


def test_code_that_goes_on_after_its_journal_has_not_diverged(drive: Drive) -> None:
    run = drive(only_a)
    run.returns("0")
    assert run.replayed(a_then_b).open == {"1": "b"}


def test_signals_and_cancels_that_nobody_asks_for_are_no_divergence(drive: Drive) -> None:
    run = drive(only_a)
    run.signal("other")
    run.returns("0")
    run.cancel()
    run.signal("late")
    assert run.result is None


async def race_of_two() -> Any:
    return await race(a(), sleep(1))


def test_a_record_of_a_losing_branch_is_no_divergence(drive: Drive) -> None:
    run = drive(race_of_two)
    run.returns("0.0.0", "won")
    run.say(RecordKind.TIMER, "0.1.0", "sleep")
    assert run.result == (0, "won")


def test_a_rollback_of_code_that_no_longer_fails_is_refused(drive: Drive) -> None:
    run = drive(only_a)
    run.raises("0", ValueError("no"))
    run.say(RecordKind.FAILURE, "", "failed", codec.encode_error(run.error, "the run"))

    async def forgives() -> None:
        try:
            await a()
        except ValueError:
            return

    assert isinstance(run.replayed(forgives).stuck, Diverged)

    async def goes_on() -> None:
        try:
            await a()
        except ValueError:
            await b()

    assert isinstance(run.replayed(goes_on).stuck, Diverged)


def test_a_result_that_cannot_be_read_leaves_the_run_stuck(drive: Drive) -> None:
    run = drive(only_a)
    never_used = b"\xc1"
    run.say(RecordKind.STEP_OK, "0", "a", never_used)
    assert isinstance(run.stuck, DecodingError)
    assert "step 'a'" in str(run.stuck)


def test_a_comment_or_other_local_code_is_no_divergence(drive: Drive) -> None:
    async def changed() -> None:
        value = [1, 2, 3]
        await a()
        value.sort()
        await b()

    run = drive(a_then_b)
    run.returns("0")
    run.returns("1")
    assert run.replayed(changed).result is None

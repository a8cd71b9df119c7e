"""What code sees is what a replay would show it: values of its own, one time, one chance."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from stepwell import StepFailed, current_run, now, parallel, random, sleep, uuid4, wait_for_signal
from stepwell_queue.contract import Record, RecordKind
from tests.replay.driver import START, Drive, codec
from tests.replay.steps import a, b, child


async def changes_what_it_got() -> list[Any]:
    got = await a()
    got.append("mine")
    again = await b(got)
    return [got, again, got is again]


def test_a_result_is_a_value_of_its_own_each_time(drive: Drive) -> None:
    run = drive(changes_what_it_got)
    result = ["theirs"]
    run.returns("0", result)
    run.returns("1", result)
    assert result == ["theirs"]
    assert run.result == [["theirs", "mine"], ["theirs"], False]
    assert run.replayed().result == run.result


async def tells_the_time() -> list[datetime]:
    times = [now()]
    await sleep(5)
    times.append(now())
    await a()
    return [*times, now()]


def test_now_is_the_time_of_the_last_delivery_also_on_replay(drive: Drive) -> None:
    run = drive(tells_the_time)
    run.is_due("0")
    run.now += 2
    run.returns("1")
    assert run.result == [datetime.fromtimestamp(START + s, UTC) for s in (0, 5, 7)]
    assert run.replayed().result == run.result


def test_now_never_goes_back(drive: Drive) -> None:
    run = drive(tells_the_time)
    run.is_due("0")
    value = codec.encode(None, "a result")
    run.deliver(Record(1, RecordKind.STEP_OK, "1", "a", value, START - 100))
    assert run.result[2] == run.result[1]


async def takes_chances() -> list[Any]:
    async def branch() -> list[Any]:
        first = [random().random(), str(uuid4())]
        await a()
        return [*first, random().random(), str(uuid4())]

    own = [random().random(), str(uuid4())]
    return [own, *await parallel(branch(), branch())]


def test_chance_is_the_same_on_replay_whatever_the_order_of_branches(drive: Drive) -> None:
    run = drive(takes_chances)
    run.returns("0.0.0")
    run.returns("0.1.0")
    other = drive(takes_chances)
    other.returns("0.1.0")
    other.returns("0.0.0")
    assert run.result == other.result == run.replayed().result


def test_chance_differs_between_branches_uses_and_runs(drive: Drive) -> None:
    run = drive(takes_chances)
    other = drive(takes_chances, seed="run/2/0")
    for one in (run, other):
        one.returns("0.0.0")
        one.returns("0.1.0")
    values = [value for result in (run.result, other.result) for part in result for value in part]
    assert len(set(values)) == len(values)


def test_uuids_are_version_4(drive: Drive) -> None:
    async def code() -> int | None:
        return uuid4().version

    assert drive(code).result == 4


async def knows_itself() -> list[Any]:
    facts = current_run()
    return [facts.id, facts.workflow, facts.attempt, facts.parent_id]


def test_the_code_knows_its_run(drive: Drive) -> None:
    assert drive(knows_itself).result == ["run", "knows_itself", 1, None]


async def catches() -> Any:
    try:
        await a()
    except Exception as error:  # noqa: BLE001  what it is, is what is tested
        return [type(error).__name__, str(error)]


def test_control_flow_exceptions_of_a_step_arrive_as_step_failed(drive: Drive) -> None:
    for error in (StopIteration(1), StopAsyncIteration(), GeneratorExit(), SystemExit(3)):
        run = drive(catches)
        run.raises("0", error)
        kind, text = run.result
        assert kind == StepFailed.__name__
        assert type(error).__name__ in text
        assert run.replayed().result == run.result


async def bad_argument() -> Any:
    try:
        await a(lambda: None)
    except Exception as error:  # noqa: BLE001  what it is, is what is tested
        return [type(error).__name__, await b()]


def test_an_argument_that_cannot_be_stored_is_raised_where_it_is_awaited(drive: Drive) -> None:
    run = drive(bad_argument)
    assert run.open == {"1": "b"}
    run.returns("1")
    assert run.result == ["SerializationError", None]
    assert run.replayed().result == run.result


async def bad_result() -> Any:
    await a()
    return lambda: None


def test_a_result_that_cannot_be_stored_fails_the_run(drive: Drive) -> None:
    run = drive(bad_result)
    run.returns("0")
    assert run.outcome.verdict == "failed"
    assert "bad_result" in str(run.error)


async def awaits_twice() -> list[Any]:
    call = a(1)
    return [await call, await call]


def test_a_call_that_is_awaited_twice_is_executed_twice(drive: Drive) -> None:
    run = drive(awaits_twice)
    run.returns("0", "x")
    run.returns("1", "y")
    assert run.result == ["x", "y"]


def test_a_child_gets_a_path_and_its_result(drive: Drive) -> None:
    async def code() -> Any:
        return [await child(1), await wait_for_signal("go")]

    run = drive(code)
    assert run.open == {"0": "child of a replayed run"}
    run.returns("0", "grown")
    run.signal("go", 1)
    assert run.result == ["grown", 1]

"""What a workflow may wait for and note, as users see it."""

from __future__ import annotations

import random as standard_random
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell import (
    OutsideWorkflow,
    Retry,
    RetryLater,
    Signal,
    Stepwell,
    compensate,
    current_run,
    current_step,
    now,
    parallel,
    race,
    random,
    sleep,
    sleep_until,
    step,
    task,
    uuid4,
    wait_for_signal,
    workflow,
)

pytestmark = pytest.mark.anyio
go = Signal("go", int)
undone: list[str] = []
tried: list[int] = []


@step
async def echo(value: int) -> int:
    return value


@step
async def fail(value: int) -> int:
    raise LookupError(value)


@step
async def undo(what: str) -> None:
    undone.append(what)


@step(compensate=lambda result: undo(f"auto {result}"))
async def reserve(value: int) -> int:
    return value


async def twice(value: int) -> int:
    return await echo(value) + await echo(value)


@workflow
async def branches() -> tuple[int, int, tuple[int, ...]]:
    first, second = await parallel(echo(1), twice(2))
    return first, second, await parallel(*(echo(n) for n in range(5)), limit=2)


@workflow
async def failures_returned() -> tuple[int, str]:
    good, bad = await parallel(echo(1), fail(2), return_exceptions=True)
    assert isinstance(good, int)
    return good, repr(bad)


@workflow
async def first_failure() -> None:
    await parallel(fail(1), sleep(3600), fail(2))


@workflow
async def nothing_at_once() -> tuple[Any, ...]:
    return await parallel(*[echo(n) for n in range(0)])


@workflow
async def winner() -> str:
    match await race(sleep(3600), echo(5), wait_for_signal(go)):
        case (1, int(value)):
            return f"echo {value}"
        case other:
            return f"{other}"


@workflow
async def losing_race() -> None:
    await race(fail(1), sleep(3600))


@workflow
async def naps() -> list[float]:
    begun = now()
    await sleep(0.02)
    await sleep(timedelta(milliseconds=20))
    await sleep_until(begun + timedelta(milliseconds=60))
    await sleep_until(begun - timedelta(days=1))
    return [(now() - begun).total_seconds()]


@workflow
async def chance() -> tuple[list[str], list[float], datetime]:
    async def draw() -> tuple[str, float]:
        await echo(1)
        return str(uuid4()), random().random()

    mine = str(uuid4()), random().random()
    draws = [mine, *await parallel(draw(), draw())]
    return [one[0] for one in draws], [one[1] for one in draws], now()


@workflow
async def facts() -> dict[str, Any]:
    run = current_run()
    return {
        "id": run.id,
        "workflow": run.workflow,
        "version": run.version,
        "queue": run.queue,
        "attempt": run.attempt,
        "parent": run.parent_id,
        "deadline": run.deadline,
        "created": run.created_at,
        "scheduled": run.scheduled_at,
    }


@workflow
async def undoes(discard: bool) -> None:
    first = compensate(undo("first"))
    await reserve(7)
    compensate(undo("second").with_options(retry=Retry(attempts=2)))
    if discard:
        first.discard()
        first.discard()
    raise LookupError("no luck")


@step
async def about_itself() -> tuple[str, str, int, bool, str, str]:
    me = current_step()
    return me.run_id, me.path, me.attempt, me.cancelled, me.key, repr(me)


@workflow
async def asks_its_step() -> list[tuple[str, str, int, bool, str, str]]:
    return [await about_itself(), await about_itself()]


@step
async def not_yet() -> int:
    tried.append(current_step().attempt)
    if len(tried) < 4:
        raise RetryLater(0.0)
    return len(tried)


@workflow
async def patient() -> int:
    return await not_yet()


@task
async def task_facts() -> tuple[str, str, int]:
    me = current_step()
    return me.run_id, me.name, me.attempt


async def test_parallel_returns_the_results_in_order(app: Stepwell) -> None:
    async with app:
        assert await app.run(branches(), timeout=20) == (1, 4, (0, 1, 2, 3, 4))
        assert await app.run(nothing_at_once(), timeout=20) == ()


async def test_parallel_may_return_failures(app: Stepwell) -> None:
    async with app:
        assert await app.run(failures_returned(), timeout=20) == (1, "LookupError(2)")


async def test_parallel_raises_the_first_failure_itself(app: Stepwell) -> None:
    async with app:
        with pytest.raises(LookupError, match="1"):
            await app.run(first_failure(), timeout=20)


async def test_race_returns_the_index_and_value_of_the_winner(app: Stepwell) -> None:
    async with app:
        assert await app.run(winner(), timeout=20) == "echo 5"


async def test_race_raises_the_failure_of_the_first_to_end(app: Stepwell) -> None:
    async with app:
        with pytest.raises(LookupError):
            await app.run(losing_race(), timeout=20)


async def test_sleep_takes_seconds_and_timedeltas(app: Stepwell) -> None:
    async with app:
        (passed,) = await app.run(naps(), timeout=20)
        assert 0.06 <= passed < 10


async def test_chance_differs_between_runs_and_branches(app: Stepwell) -> None:
    state = standard_random.getstate()
    async with app:
        ids, numbers, when = await app.run(chance(), timeout=20)
        others, _, _ = await app.run(chance(), timeout=20)
    assert len(set(ids) | set(others)) == 6
    assert len(set(numbers)) == 3
    assert {uuid.UUID(one).version for one in ids} == {4}
    assert when.tzinfo is UTC
    assert standard_random.getstate() == state


async def test_a_run_knows_itself(app: Stepwell) -> None:
    async with app:
        call = facts().with_options(deadline=3600, delay=0)
        found = await app.run(call, id="the-run", timeout=20)
    assert found["deadline"] == found["created"] + timedelta(hours=1)
    assert (found["id"], found["workflow"], found["version"]) == ("the-run", "facts", 1)
    assert (found["queue"], found["attempt"], found["parent"]) == ("default", 1, None)
    assert found["scheduled"] >= found["created"]
    assert found["created"].tzinfo is UTC


@pytest.mark.parametrize(
    ("discard", "expected"),
    [(False, ["second", "auto 7", "first"]), (True, ["second", "auto 7"])],
)
async def test_undos_run_newest_first_unless_discarded(
    app: Stepwell, discard: bool, expected: list[str]
) -> None:
    undone.clear()
    async with app:
        with pytest.raises(LookupError):
            await app.run(undoes(discard), timeout=20)
    assert undone == expected


async def test_a_step_knows_itself(app: Stepwell) -> None:
    async with app:
        first, second = await app.run(asks_its_step(), id="the-run", timeout=20)
        other, _ = await app.run(asks_its_step(), id="another", timeout=20)
    assert first[:4] == ("the-run", "0", 1, False)
    assert second[:4] == ("the-run", "1", 1, False)
    assert len({first[4], second[4], other[4]}) == 3
    assert second[5] == "<attempt 1 of 'about_itself' at path 1 of run 'the-run'>"


async def test_retry_later_costs_no_attempt(app: Stepwell) -> None:
    tried.clear()
    async with app:
        assert await app.run(patient(), timeout=20) == 4
    assert tried == [1, 1, 1, 1]


async def test_a_task_knows_itself(app: Stepwell) -> None:
    async with app:
        found = await app.run(task_facts(), id="the-task", timeout=20)
    assert found == ("the-task", "task_facts", 1)


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), True, "1", None])
async def test_sleep_refuses_what_is_no_span(app: Stepwell, delay: Any) -> None:
    @workflow
    async def flow() -> None:
        await sleep(delay)

    async with app:
        with pytest.raises((TypeError, ValueError), match="sleep"):
            await app.run(flow(), timeout=20)


async def test_the_same_coroutine_twice_is_refused(app: Stepwell) -> None:
    @workflow
    async def flow() -> None:
        one = twice(1)
        await parallel(one, one)

    async with app:
        with pytest.raises(ValueError, match="one coroutine twice"):
            await app.run(flow(), timeout=20)


OUTSIDE: list[Callable[[], Any]] = [
    now,
    uuid4,
    random,
    current_run,
    parallel,
    race,
    lambda: compensate(undo("x")),
]
OUTSIDE_AWAITED: list[Callable[[], Awaitable[object]]] = [
    lambda: sleep(1),
    lambda: sleep_until(datetime.now(UTC)),
    lambda: wait_for_signal(go),
]


async def test_primitives_work_only_in_a_workflow(app: Stepwell) -> None:
    async def check() -> None:
        for primitive in OUTSIDE:
            with pytest.raises(OutsideWorkflow):
                primitive()
        for awaited in OUTSIDE_AWAITED:
            with pytest.raises(OutsideWorkflow):
                await awaited()

    await check()
    checking = step(check)

    @workflow
    async def flow() -> None:
        await checking()

    async with app:
        await app.run(flow(), timeout=20)

"""Values, exceptions and context: the same for code that goes on and for code that is replayed."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import math
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stepwell import (
    IdConflict,
    PayloadTooLarge,
    Retry,
    RunFailed,
    Signal,
    StepFailed,
    Stepwell,
    current_step,
    now,
    parallel,
    random,
    step,
    task,
    uuid4,
    wait_for_signal,
    workflow,
)
from tests.behaviour.stage import LONG, stage

pytestmark = pytest.mark.anyio
go = Signal("go", int)


class Colour(Enum):
    RED = "red"


class Pair(NamedTuple):
    left: int
    right: str


@dataclass(frozen=True)
class Order:
    id: uuid.UUID
    colour: Colour
    total: decimal.Decimal


VALUES: dict[str, Any] = {
    "large": 2**64,
    "larger": -(10**400),
    "true": True,
    "whole float": 1.0,
    "negative zero": -0.0,
    "infinity": math.inf,
    "naive": datetime.datetime(2030, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001 - kept naive
    "aware": datetime.datetime(2030, 1, 2, tzinfo=datetime.UTC),
    "date": datetime.date(2030, 1, 2),
    "delta": datetime.timedelta(microseconds=-1),
    "bytes": b"\x00\xff",
    "tuple": (1, (2, "three")),
    "set": {1, 2},
    "frozenset": frozenset("ab"),
    "path": Path("a/b"),
    "uuid": uuid.UUID(int=5),
    "enum": Colour.RED,
    "named": Pair(1, "x"),
    "counter": Counter("aab"),
    "order": Order(uuid.UUID(int=1), Colour.RED, decimal.Decimal("1.10")),
}


@step
async def untyped(name):  # type: ignore[no-untyped-def]  # values keep their type without annotations
    return VALUES[name]


@workflow
async def compares_values() -> list[str]:
    wrong: list[str] = []
    for _ in range(2):
        for name, expected in VALUES.items():
            found: Any = await untyped(name)
            if type(found) is not type(expected) or found != expected:
                wrong.append(f"{name}: {found!r}")
        nan: Any = await untyped_nan()
        if not math.isnan(nan["m"]):
            wrong.append("nan")
        await wait_for_signal(go)
    return wrong


@step
async def untyped_nan() -> Any:
    return {"m": math.nan}


@pytest.mark.parametrize("cache", [0, 1000])
async def test_values_keep_their_type_and_are_the_same_live_and_replayed(
    app: Stepwell, cache: int
) -> None:
    run = await app.start(compares_values())
    for number in range(2):
        async with app.worker(cache=cache) as worker:
            await worker.drain()
            await run.signal(go, number)
    async with app.worker(cache=cache):
        assert await run.result(timeout=LONG) == []


@step
async def shares(value: list[int]) -> list[int]:
    return value


@workflow
async def checks_identity() -> tuple[bool, bool]:
    mine = [1]
    first = await shares(mine)
    second = await shares(mine)
    return first is mine, first is second


async def test_a_result_is_never_the_very_object_that_a_step_returned(app: Stepwell) -> None:
    async with app.worker():
        assert await (await app.start(checks_identity())).result(timeout=LONG) == (False, False)


@step
async def oversized(size: int) -> bytes:
    stage.note("executed")
    return bytes(size)


@step
async def takes(data: bytes) -> int:
    stage.note("took")
    return len(data)


async def refusal(call: Awaitable[object]) -> str:
    try:
        await call
    except PayloadTooLarge as error:
        return str(error)
    return "none"


@workflow
async def handles_large_values() -> tuple[str, str, int]:
    first = await refusal(oversized(2_000_000))
    second = await refusal(takes(bytes(2_000_000)))
    return first, second, await takes(b"small")


@pytest.fixture
def small_app(tmp_path: Path) -> Stepwell:
    return Stepwell(
        tmp_path / "small.db", include=[__name__], durability="process", max_value_size=1_000_000
    )


async def test_what_is_too_large_is_refused_once_and_says_what_and_how_large(
    small_app: Stepwell,
) -> None:
    async with small_app as app, app.worker():
        run = await app.start(handles_large_values())
        first, second, size = await run.result(timeout=LONG)
        with pytest.raises(PayloadTooLarge):
            await run.signal("data", bytes(2_000_000))
        with pytest.raises(PayloadTooLarge):
            await app.enqueue(takes_task(bytes(2_000_000)))
    assert "'oversized'" in first
    assert "the limit is 1,000,000 bytes" in first
    assert "'takes'" in second
    assert size == 5
    assert stage.done == ["executed", "took"]


@task
async def takes_task(data: bytes) -> int:
    return len(data)


class Inconvenient(Exception):
    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@step
async def raises_inconvenient() -> None:
    raise Inconvenient("m", 7)


@workflow
async def lets_it_pass(kind: str) -> None:
    await RAISING[kind]()


def make_local() -> type[Exception]:
    class Local(Exception):
        pass

    return Local


@step
async def raises_local() -> None:
    raise make_local()("local")


RAISING = {"inconvenient": raises_inconvenient, "local": raises_local}


async def test_an_exception_with_an_init_of_its_own_comes_back_as_itself(app: Stepwell) -> None:
    async with app.worker():
        with pytest.raises(Inconvenient) as caught:
            await (await app.start(lets_it_pass("inconvenient"))).result(timeout=LONG)
    assert (caught.value.code, str(caught.value)) == (7, "m")


async def test_an_exception_that_cannot_be_imported_is_named_and_breaks_no_listing(
    make_app: Callable[..., Stepwell],
) -> None:
    async with make_app() as app, app.worker():
        run = await app.start(lets_it_pass("local"))
        with pytest.raises(RunFailed, match=r"Local.*local") as caught:
            await run.result(timeout=LONG)
        assert not isinstance(caught.value, StepFailed)
        inconvenient = await app.start(lets_it_pass("inconvenient"))
        with pytest.raises(Inconvenient):
            await inconvenient.result(timeout=LONG)
    async with make_app() as app:
        errors = {one.id: one.error for one in await app.runs(status="failed")}
        assert "Local: local" in str(errors[run.id])
        assert "Inconvenient: m" in str(errors[inconvenient.id])
        assert (await app.history(run.id)).events[0].outcome == "failed"


@workflow
async def gambles() -> list[Any]:
    async def branch() -> list[Any]:
        first = random().random()
        await shares([])
        return [first, random().random(), str(uuid4())]

    begun = now()
    before = [random().random(), str(uuid4()), begun]
    drawn = await parallel(branch(), branch())
    stage.note([before, *drawn])
    await wait_for_signal(go)
    return [before, *drawn, random().random(), now() > begun]


async def test_chance_and_time_are_the_same_at_every_replay(app: Stepwell) -> None:
    run = await app.start(gambles())
    for number in range(3):
        async with app.worker() as worker:
            await worker.drain()
            await run.signal("noise", number)
    await run.signal(go, 1)
    async with app.worker():
        result = await run.result(timeout=LONG)
    assert len(stage.done) == 4
    assert stage.done == [result[:3]] * 4
    assert result[-1] is True


request: ContextVar[str] = ContextVar("request", default="none")


@step
async def reads_context() -> str:
    seen = request.get()
    request.set("changed by a step")
    return seen


@step
def reads_context_in_thread() -> str:
    seen = request.get()
    request.set("changed by a thread")
    return seen


@step(retry=Retry(attempts=3, delay=0.0))
async def reads_context_at_last() -> str:
    seen = request.get()
    request.set("changed by an attempt")
    if current_step().attempt < 3:
        raise LookupError
    return seen


@workflow
async def carries(name: str) -> list[str]:
    async def branch(value: str) -> str:
        inherited = request.get()
        request.set(value)
        await wait_for_signal(value)
        return f"{inherited} {await reads_context()} {request.get()}"

    request.set(name)
    seen = [await reads_context(), await reads_context_in_thread(), await reads_context_at_last()]
    seen += await parallel(branch("left"), branch("right"))
    return [*seen, request.get()]


@pytest.mark.parametrize("cache", [0, 1000])
async def test_context_reaches_every_step_and_leaks_to_no_other_branch_or_run(
    app: Stepwell, cache: int
) -> None:
    async with app.worker(cache=cache) as worker:
        runs = [await app.start(carries(name)) for name in ("one", "two")]
        await worker.drain()
        for run in runs:
            await run.signal("right")
            await run.signal("left")
        results = [await run.result(timeout=LONG) for run in runs]
    assert results == [
        [name] * 3 + [f"{name} left left", f"{name} right right", name] for name in ("one", "two")
    ]
    assert request.get() == "none"


@workflow
async def has_id(value: dict[str, int]) -> int:
    return sum(value.values())


async def test_an_id_that_is_taken_by_other_arguments_is_refused_and_the_first_left_alone(
    app: Stepwell,
) -> None:
    first = await app.start(has_id({"a": 1, "b": 2}), id="k")
    again = await app.start(has_id({"b": 2, "a": 1}), id="k")
    assert (first.created, again.created) == (True, False)
    with pytest.raises(IdConflict):
        await app.start(has_id({"a": 2}), id="k")
    async with app.worker():
        assert await first.result(timeout=LONG) == 3


@step
async def with_tasks() -> list[int]:
    async def part(number: int) -> int:
        await asyncio.sleep(0)
        return number

    async with asyncio.timeout(LONG), asyncio.TaskGroup() as group:
        tasks = [group.create_task(part(number)) for number in range(3)]
    return [one.result() for one in tasks]


@workflow
async def uses_tasks_in_a_step() -> list[int]:
    return await with_tasks()


async def test_a_step_may_use_all_of_asyncio(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(uses_tasks_in_a_step())
        assert await run.result(timeout=LONG) == [0, 1, 2]

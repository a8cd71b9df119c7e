"""A call is a value; who runs it decides how."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell import (
    OutsideWorkflow,
    Retry,
    Signal,
    Stepwell,
    compensate,
    current_step,
    parallel,
    start,
    step,
    task,
    wait_for_signal,
    workflow,
)

pytestmark = pytest.mark.anyio


@step
async def double(number: int) -> int:
    """Twice as much."""
    return number * 2


@step
def thread_name() -> str:
    return threading.current_thread().name


@task
async def send(number: int, *, loudly: bool = False) -> str:
    return f"{number}{'!' if loudly else ''}"


@workflow
async def doubled(number: int) -> int:
    return await double(number)


@dataclass(frozen=True)
class Till:
    fee: int

    @step
    async def charge(self, amount: int) -> int:
        return amount + self.fee

    @workflow
    async def sell(self, amount: int) -> int:
        return await self.charge(amount)

    @staticmethod
    @step
    async def plain(amount: int) -> int:
        return amount


async def test_a_step_awaited_outside_of_a_run_runs_its_function() -> None:
    assert await double(4) == 8
    assert await double.fn(4) == 8


async def test_a_plain_function_awaited_outside_of_a_run_does_not_block_the_loop() -> None:
    assert await thread_name() != threading.main_thread().name


async def test_a_task_awaited_outside_of_a_run_runs_its_function() -> None:
    assert await send(4, loudly=True) == "4!"


async def test_awaiting_a_call_twice_executes_it_twice() -> None:
    executed: list[int] = []

    @step
    async def note() -> int:
        executed.append(1)
        return len(executed)

    call = note()
    assert (await call, await call) == (1, 2)


async def test_a_plain_function_that_returns_an_awaitable_is_awaited() -> None:
    @step
    def later() -> Any:
        return double.fn(4)

    assert await later() == 8


@step
def wraps_an_async_one(number: int) -> Any:
    return double.fn(number)


@workflow
async def wraps() -> int:
    number: int = await wraps_an_async_one(4)
    return number


async def test_what_a_plain_step_wraps_is_awaited_in_a_workflow_too(app: Stepwell) -> None:
    async with app:
        assert await app.run(wraps(), timeout=20) == 8


async def test_the_exception_of_a_plain_step_arrives_unchanged() -> None:
    @step
    def fail() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        await fail()


def test_a_decorated_function_looks_like_its_function() -> None:
    assert (double.__name__, double.__doc__) == ("double", "Twice as much.")
    assert double.__module__ == __name__
    assert list(inspect.signature(double).parameters) == ["number"]
    assert (double.name, double.version) == ("double", 1)
    assert repr(double).startswith("<step double from ")
    assert repr(send(1, loudly=True)) == "<task call send(1, loudly=True)>"


def test_arguments_are_checked_when_the_call_is_made() -> None:
    anything: Any = send
    wrong: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {}),
        ((1, True), {}),
        ((1,), {"quietly": True}),
        ((), {"loudly": 1}),
    ]
    for args, kwargs in wrong:
        with pytest.raises(TypeError, match=r"^send\(\): "):
            anything(*args, **kwargs)
    assert send(number=1).kwargs == {"number": 1}


async def test_defaults_and_variable_arguments_need_no_binding() -> None:
    @step
    async def gather(first: int, *rest: int, scale: int = 1, **named: int) -> list[int]:
        return [first, *rest, scale, *named.values()]

    assert await gather(1) == [1, 1]
    assert await gather(1, 2, 3, scale=4, more=5) == [1, 2, 3, 4, 5]


async def test_self_is_the_first_argument_of_a_method() -> None:
    till = Till(3)
    call = till.charge(10)
    assert call.args == (till, 10)
    assert await call == 13
    assert till.sell(10).args == (till, 10)
    assert Till.charge.name == "Till.charge"
    static: Any = till
    assert await static.plain(5) == await Till.plain(5) == 5


async def test_a_method_runs_as_a_workflow(app: Stepwell) -> None:
    async with app:
        assert await app.run(Till(3).sell(10), timeout=20) == 13


def test_with_options_makes_a_new_call() -> None:
    call = send(1)
    retry = Retry(attempts=3)
    at = datetime(2030, 1, 1, tzinfo=UTC)
    other = call.with_options(
        id="a",
        queue="mail",
        timeout=2,
        deadline=timedelta(hours=1),
        retry=retry,
        priority=5,
        at=at,
    )
    assert call.options.id is None
    found = other.options
    assert (found.id, found.queue, found.timeout, found.deadline) == ("a", "mail", 2.0, 3600.0)
    assert (found.retry, found.priority, found.at) == (retry, 5, at.timestamp())
    assert other.with_options(queue="post").options.id == "a"
    assert type(other) is type(call)
    assert doubled(1).with_options(delay=timedelta(seconds=3)).options.delay == 3.0
    assert double(1).with_options(timeout=1).options.timeout == 1.0


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"id": ""}, ValueError, "characters"),
        ({"id": 7}, TypeError, "str"),
        ({"id": "a/1"}, ValueError, "child run"),
        ({"queue": "a\nb"}, ValueError, "printable"),
        ({"timeout": 0}, ValueError, "greater than 0"),
        ({"timeout": True}, TypeError, "seconds"),
        ({"timeout": float("nan")}, ValueError, "finite"),
        ({"deadline": -1}, ValueError, "finite span"),
        ({"retry": 3}, TypeError, "Retry"),
        ({"priority": 1.5}, TypeError, "whole number"),
        ({"priority": 2**40}, ValueError, "must be from"),
        ({"delay": timedelta(days=-1)}, ValueError, "finite span"),
        ({"at": 1.0}, TypeError, "aware datetime"),
    ],
)
def test_a_bad_option_is_refused_where_it_is_given(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        send(1).with_options(**options)


@workflow
async def awaits_a_child(number: int) -> int:
    return await doubled(number)


async def test_a_workflow_awaited_in_a_workflow_is_a_child_run(app: Stepwell) -> None:
    async with app:
        assert await app.run(awaits_a_child(4), id="parent", timeout=20) == 8
        (child,) = await app.runs(parent="parent")
    assert (child.name, child.status) == ("doubled", "completed")


@workflow
async def awaits_a_task() -> str:
    return await send(4, loudly=True)


async def test_a_task_awaited_in_a_workflow_is_a_child_run(app: Stepwell) -> None:
    async with app:
        assert await app.run(awaits_a_task(), id="parent", timeout=20) == "4!"
        (child,) = await app.runs(parent="parent")
    assert (child.name, child.kind) == ("send", "task")


@step
async def calls_others() -> tuple[int, str, str]:
    return await double(2), await send(3), current_step().name


@workflow
async def nested() -> tuple[int, str, str]:
    return await calls_others()


async def test_steps_and_tasks_awaited_in_a_step_are_functions(app: Stepwell) -> None:
    async with app:
        assert await app.run(nested(), id="run", timeout=20) == (4, "3", "calls_others")
        events = (await app.history("run")).events
        assert [event.name for event in events] == ["calls_others"]
        assert await app.runs(parent="run") == []


@step
async def awaits_a_workflow() -> int:
    return await doubled(1)


@workflow
async def nests_a_workflow() -> int:
    return await awaits_a_workflow()


async def test_a_workflow_awaited_in_a_step_is_refused(app: Stepwell) -> None:
    async with app:
        with pytest.raises(OutsideWorkflow, match=r"app\.start"):
            await app.run(nests_a_workflow(), timeout=20)


forgotten_on_line: list[int] = []


@workflow
async def forgets() -> None:
    frame = inspect.currentframe()
    assert frame is not None
    forgotten_on_line.append(frame.f_lineno + 1)
    double(1)


@workflow
async def hands_everything_on(first: bool) -> int:
    compensate(double(1))
    changed = double(2).with_options(timeout=5)
    child = await start(doubled(3).with_options(deadline=60))
    both = await parallel(changed, double(4))
    if first:
        await parallel(double(5), parallel(double(6), double(7)), limit=1)
    return sum(both) + await child.result()


async def test_a_call_that_is_never_awaited_warns_with_its_line(app: Stepwell) -> None:
    async with app:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            await app.run(forgets(), timeout=20)
            gc.collect()
    (warning,) = [one for one in caught if "never awaited" in str(one.message)]
    assert warning.category is RuntimeWarning
    assert "step call double(…)" in str(warning.message)
    assert (warning.filename, warning.lineno) == (__file__, forgotten_on_line[0])


async def test_a_call_that_is_awaited_or_handed_on_does_not_warn(app: Stepwell) -> None:
    async with app:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert await app.run(hands_everything_on(True), timeout=20) == 18
            gc.collect()
    assert [str(one.message) for one in caught if "never awaited" in str(one.message)] == []


go = Signal("go", int)


@workflow
async def keeps_a_call() -> int:
    call = double(4)
    await wait_for_signal(go)
    return await call


async def test_a_call_of_a_workflow_that_is_put_aside_does_not_warn(app: Stepwell) -> None:
    async with app:
        run = await app.start(keeps_a_call())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            async with app.worker() as worker:
                await worker.drain()
            gc.collect()
        assert [str(one.message) for one in caught if "never awaited" in str(one.message)] == []
        await run.signal(go, 1)
        async with app.worker():
            assert await run.result(timeout=20) == 8


async def test_a_call_built_outside_of_a_workflow_may_be_dropped() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        double(1)
        gc.collect()


async def test_a_discarded_workflow_executes_no_step_while_it_is_closed() -> None:
    executed: list[int] = []

    @step
    async def note() -> None:
        executed.append(1)

    async def body() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await note()

    coroutine = body()
    coroutine.send(None)
    coroutine.close()
    assert executed == []


async def test_concurrent_plain_steps_share_no_state_with_each_other(
    make_app: Callable[[], Stepwell],
) -> None:
    names = await asyncio.gather(*(thread_name() for _ in range(3)))
    assert len(names) == 3

"""Steps and tasks that fail, take too long, or end in ways that they should not."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from dataclasses import dataclass

import pytest
import structlog
from structlog import DropEvent
from structlog.testing import capture_logs
from structlog.typing import EventDict

from stepwell import (
    Retry,
    RetryLater,
    RunFailed,
    RunStuck,
    SerializationError,
    StepFailed,
    StepTimeout,
    Stepwell,
    current_step,
    sleep,
    step,
    task,
    workflow,
)
from tests.behaviour.stage import LONG, stage, until

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Card:
    number: str


class Declined(Exception):
    def __init__(self, card: Card, *, code: int) -> None:
        super().__init__(f"{card.number} declined")
        self.card, self.code = card, code


class Foreign(BaseException):
    pass


class ForeignGroup(BaseExceptionGroup[BaseException]):
    pass


@step
async def work(what: str = "work") -> str:
    stage.note(what)
    return what


@step
async def exits() -> None:
    sys.exit(3)


@step
async def interrupts() -> None:
    raise KeyboardInterrupt


@step
async def raises_foreign() -> None:
    raise Foreign("x")


@step
def exits_in_thread() -> None:
    sys.exit(3)


@step
async def raises_a_group() -> None:
    raise ForeignGroup("several", [SystemExit(1), Foreign("y")])


@step
async def raises_generator_exit() -> None:
    raise GeneratorExit


@step
async def raises_stop_iteration() -> None:
    async def inner() -> None:
        raise StopIteration(1)

    await inner()


@step
def returns_a_lock() -> object:
    return {"locks": [threading.Lock()]}


STEPS = {
    "SystemExit": exits,
    "KeyboardInterrupt": interrupts,
    "Foreign": raises_foreign,
    "ForeignGroup": raises_a_group,
    "GeneratorExit": raises_generator_exit,
    "RuntimeError": raises_stop_iteration,
}


@workflow
async def catches(which: str) -> tuple[str, str]:
    try:
        await STEPS[which]()
    except StepFailed as error:
        return error.type_name, await work()
    except RuntimeError as error:
        return type(error).__name__, await work()
    return "", ""


@pytest.mark.parametrize("which", STEPS)
async def test_whatever_a_step_raises_is_its_failure_and_its_type_is_named(
    app: Stepwell, which: str
) -> None:
    async with app.worker():
        run = await app.start(catches(which))
        assert await run.result(timeout=LONG) == (which, "work")
        # the worker goes on
        assert await app.run(catches("SystemExit"), timeout=LONG) == ("SystemExit", "work")


@workflow
async def exits_in_a_thread() -> str:
    try:
        await exits_in_thread()
    except StepFailed as error:
        return error.type_name
    return ""


async def test_an_exit_in_a_thread_is_the_failure_of_that_step(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(exits_in_a_thread())
        assert await run.result(timeout=LONG) == "SystemExit"


@workflow
async def exits_itself(which: str) -> None:
    if which == "exit":
        sys.exit(4)
    raise Foreign(which)


@pytest.mark.parametrize(("which", "name"), [("exit", "SystemExit"), ("x", "Foreign")])
async def test_a_workflow_that_exits_fails_and_the_worker_goes_on(
    app: Stepwell, which: str, name: str
) -> None:
    async with app.worker():
        run = await app.start(exits_itself(which))
        with pytest.raises(RunFailed, match=name):
            await run.result(timeout=LONG)
        assert await app.run(catches("Foreign"), timeout=LONG) == ("Foreign", "work")


@workflow
async def cannot_store() -> str:
    try:
        await returns_a_lock()
    except SerializationError as error:
        return f"{error.where} {error.path} {error.type_name}"
    return ""


async def test_a_result_that_cannot_be_stored_fails_its_step_at_once_and_says_where(
    app: Stepwell,
) -> None:
    async with app.worker():
        found = await (await app.start(cannot_store())).result(timeout=LONG)
    assert "returns_a_lock" in found
    assert "locks" in found
    assert "lock" in found.rsplit(maxsplit=1)[-1]


@workflow
async def returns_what_cannot_be_stored() -> object:
    await work()
    return threading.Lock()


async def test_a_run_whose_result_cannot_be_stored_fails_with_that(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(returns_what_cannot_be_stored())
        with pytest.raises(SerializationError, match="returns_what_cannot_be_stored"):
            await run.result(timeout=LONG)


@workflow
async def passes_what_cannot_be_stored() -> str:
    try:
        await takes_anything(threading.Lock())
    except SerializationError as error:
        return f"{error} {error.__notes__}"
    return ""


@step
async def takes_anything(value: object) -> None:
    stage.note("executed")


async def test_an_argument_that_cannot_be_stored_is_refused_at_the_call(app: Stepwell) -> None:
    async with app.worker():
        found = await (await app.start(passes_what_cannot_be_stored())).result(timeout=LONG)
    assert "the arguments of step 'takes_anything'" in found
    assert "at path 0" in found
    assert stage.done == []


@step
async def declines() -> None:
    raise Declined(Card("4711"), code=7) from LookupError("no such card")


@workflow
async def catches_its_own(waits: bool) -> tuple[str, int, str, str]:
    try:
        await declines()
    except Declined as error:
        if waits:
            await sleep(0.01)
        return error.card.number, error.code, str(error), repr(error.__cause__)
    return "", 0, "", ""


@pytest.mark.parametrize("cache", [0, 1000])
async def test_a_step_raises_the_users_own_exception_with_what_it_carries(
    app: Stepwell, cache: int
) -> None:
    async with app.worker(cache=cache):
        found = await (await app.start(catches_its_own(waits=True))).result(timeout=LONG)
    assert found == ("4711", 7, "4711 declined", "LookupError('no such card')")


async def test_an_exception_that_carries_what_cannot_be_stored_is_the_same_live_and_replayed(
    app: Stepwell,
) -> None:
    async with app.worker(cache=0):
        run = await app.start(catches_with_a_lock())
        assert await run.result(timeout=LONG) == ["Declined", "Declined"]


@step
async def declines_with_a_lock() -> None:
    error = Declined(Card("1"), code=2)
    error.lock = threading.Lock()  # type: ignore[attr-defined]  # what users do
    raise error


@workflow
async def catches_with_a_lock() -> list[str]:
    seen: list[str] = []
    for _ in range(2):
        try:
            await declines_with_a_lock()
        except StepFailed as error:
            seen.append(error.type_name.rpartition(".")[2])
        await sleep(0.01)
    return seen


@step(timeout=0.3, retry=Retry(attempts=2, delay=0.0))
async def late_once() -> str:
    attempt = current_step().attempt
    stage.note(f"begin {attempt}")
    if attempt == 1:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.01)
            stage.note("cleaned up")
    return f"attempt {attempt}"


@workflow
async def awaits_late() -> str:
    return await late_once()


async def test_an_async_step_is_cancelled_and_awaited_before_it_is_tried_again(
    app: Stepwell,
) -> None:
    async with app.worker():
        assert await (await app.start(awaits_late())).result(timeout=LONG) == "attempt 2"
    assert stage.done == ["begin 1", "cleaned up", "begin 2"]


@step(timeout=0.3, retry=Retry(attempts=2, delay=0.0))
def late_once_in_thread() -> str:
    attempt = current_step().attempt
    if attempt == 1:
        stage.hold_thread("late")
        stage.note(f"late, cancelled: {current_step().cancelled}")
        stage.reach("over")
        return "late"
    return "ok"


@workflow
async def awaits_late_thread() -> str:
    return await late_once_in_thread()


async def test_what_a_thread_returns_after_its_timeout_is_dropped(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(awaits_late_thread())
        assert await run.result(timeout=LONG) == "ok"
        stage.release("late")
        await stage.reached("over")
        assert stage.done == ["late, cancelled: True"]
        (event,) = (await run.history()).events
        assert (event.value, event.attempt) == ("ok", 2)


@step(timeout=0.02)
def blocks() -> None:
    stage.hold_thread("blocked")


@step
def quick() -> str:
    return "quick"


@workflow
async def times_out() -> str:
    try:
        await blocks()
    except TimeoutError as error:  # as which a StepTimeout is caught, too
        return f"{type(error).__name__} {error}"
    return ""


@workflow
async def is_quick() -> str:
    return await quick()


async def test_threads_that_were_abandoned_take_no_place_from_others(app: Stepwell) -> None:
    async with app.worker(threads=4):
        runs = [await app.start(times_out()) for _ in range(20)]
        for run in runs:
            assert "StepTimeout step 'blocks'" in await run.result(timeout=LONG)
        assert await (await app.start(is_quick())).result(timeout=LONG) == "quick"
        stage.release("blocked")


@step(timeout=0.02)
async def ignores_its_timeout() -> str:
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        return "too late"
    return ""


@workflow
async def awaits_ignorant() -> str:
    try:
        return await ignores_its_timeout()
    except StepTimeout:
        return "timed out"


async def test_a_result_returned_after_the_timeout_does_not_count(app: Stepwell) -> None:
    async with app.worker():
        assert await (await app.start(awaits_ignorant())).result(timeout=LONG) == "timed out"


@task(timeout=0.3, retry=Retry(attempts=2, delay=0.0))
async def late_task() -> str:
    stage.note(current_step().attempt)
    if current_step().attempt == 1:
        await asyncio.sleep(3600)
    return "done"


async def test_the_timeout_of_a_task_is_one_of_its_failures(app: Stepwell) -> None:
    async with app.worker():
        run = await app.enqueue(late_task())
        assert await run.result(timeout=LONG) == "done"
        assert (await run.info()).attempts == 1
    assert stage.done == [1, 2]


class Transient(Exception):
    pass


class Fatal(Transient):
    pass


@step(retry=Retry(attempts=5, delay=0.0, retry_on=(Transient,), give_up_on=(Fatal,)))
async def picky(kind: str) -> None:
    stage.note(current_step().key)
    raise {"transient": Transient, "fatal": Fatal, "other": LookupError}[kind]


@workflow
async def awaits_picky(kind: str) -> None:
    await picky(kind)


@pytest.mark.parametrize(("kind", "executions"), [("transient", 5), ("fatal", 1), ("other", 1)])
async def test_only_what_is_worth_it_is_tried_again_and_always_under_the_same_key(
    app: Stepwell, kind: str, executions: int
) -> None:
    async with app.worker():
        with pytest.raises((Transient, LookupError)):
            await (await app.start(awaits_picky(kind))).result(timeout=LONG)
    assert len(stage.done) == executions
    assert len(set(stage.done)) == 1


@step(retry=Retry(attempts=2, delay=0.0))
async def busy_then_broken() -> None:
    stage.note(current_step().attempt)
    if len(stage.done) in (1, 3):
        raise RetryLater(0.0)
    raise LookupError("broken")


@workflow
async def awaits_busy() -> None:
    await busy_then_broken()


async def test_retry_later_costs_no_attempt_between_failures(app: Stepwell) -> None:
    async with app.worker():
        with pytest.raises(LookupError):
            await (await app.start(awaits_busy())).result(timeout=LONG)
    assert stage.done == [1, 1, 2, 2]


@task
async def postponed() -> str:
    stage.note(current_step().attempt)
    if len(stage.done) < 3:
        raise RetryLater(0.01)
    return "done"


async def test_retry_later_costs_a_task_no_attempt(app: Stepwell) -> None:
    async with app.worker():
        assert await (await app.enqueue(postponed())).result(timeout=LONG) == "done"
    assert stage.done == [1, 1, 1]


@step(retry=Retry(attempts=3, delay=0.01))
async def fails_twice() -> str:
    stage.note(current_step().attempt)
    if current_step().attempt < 3:
        raise LookupError(current_step().attempt)
    return "third"


@workflow
async def awaits_third() -> str:
    return await fails_twice()


@pytest.mark.parametrize("cache", [0, 1000])
async def test_failures_are_counted_across_restarts(app: Stepwell, cache: int) -> None:
    run = await app.start(awaits_third())

    for number in range(1, 4):
        async with app.worker(cache=cache):

            async def tried(number: int = number) -> bool:
                return len(stage.done) >= number

            await until(tried)
    async with app.worker(cache=cache):
        assert await run.result(timeout=LONG) == "third"
    assert stage.done[:2] == [1, 2]
    assert set(stage.done) == {1, 2, 3}


@step
async def blocks_the_loop() -> str:
    await asyncio.sleep(0)
    time.sleep(0.3)  # noqa: ASYNC251 - the mistake that is tested
    await asyncio.sleep(0)
    return "blocked"


@task(retry=Retry(attempts=3, delay=0.0))
async def succeeds_at_last() -> int:
    if current_step().attempt < 3:
        raise LookupError
    return current_step().attempt


def refuse_retries(logger: object, method: str, event: EventDict) -> EventDict:
    if event["event"] in ("job_retry", "job_broke", "attempt_broke"):
        raise ZeroDivisionError
    raise DropEvent


async def test_a_log_that_raises_loses_no_task_and_no_place(app: Stepwell) -> None:
    before = structlog.get_config()["processors"]
    structlog.configure(processors=[refuse_retries])
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: None)  # it tells of the lane that has died
    try:
        async with app.worker(concurrency=1):
            for _ in range(2):
                run = await app.enqueue(succeeds_at_last())
                assert await run.result(timeout=LONG) == 3
    finally:
        structlog.configure(processors=before)


@workflow
async def awaits_what_is_not_durable() -> None:
    await asyncio.sleep(0)


@workflow
async def calm() -> str:
    return await work("calm")


def refuse(logger: object, method: str, event: EventDict) -> EventDict:
    raise ZeroDivisionError


async def test_a_log_that_raises_holds_up_none_of_the_runs_beside_it(app: Stepwell) -> None:
    before = structlog.get_config()["processors"]
    structlog.configure(processors=[refuse])
    try:
        stuck, *others = await app.start_many(
            [awaits_what_is_not_durable(), *[calm() for _ in range(3)]]
        )
        async with app.worker():
            for run in others:
                assert await run.result(timeout=LONG) == "calm"
            with pytest.raises(RunStuck):
                await stuck.result(timeout=LONG)
    finally:
        structlog.configure(processors=before)


@step(retry=Retry(attempts=3, delay=0.0))
async def step_that_succeeds_at_last() -> int:
    if current_step().attempt < 3:
        raise LookupError
    return current_step().attempt


@workflow
async def succeeds_after_retries() -> int:
    return await step_that_succeeds_at_last()


async def test_a_log_that_raises_at_a_retry_does_not_concern_the_run(app: Stepwell) -> None:
    before = structlog.get_config()["processors"]
    structlog.configure(processors=[refuse])
    try:
        async with app.worker():
            run = await app.start(succeeds_after_retries())
            assert await run.result(timeout=LONG) == 3
    finally:
        structlog.configure(processors=before)


@workflow
async def computes_for_long() -> str:
    what = await work("long")
    time.sleep(0.15)  # noqa: ASYNC251 - the mistake that is tested
    return what


@pytest.mark.blocking
async def test_a_log_may_ask_for_the_running_task(app: Stepwell) -> None:
    seen: list[str] = []

    def look(logger: object, method: str, event: EventDict) -> EventDict:
        asyncio.current_task()
        seen.append(event["event"])
        raise DropEvent

    before = structlog.get_config()["processors"]
    structlog.configure(processors=[look])
    try:
        async with app.worker():
            run = await app.start(computes_for_long())
            assert await run.result(timeout=LONG) == "long"
    finally:
        structlog.configure(processors=before)
    assert "loop_blocked" in seen


hashes_fail: list[bool] = []


@dataclass(frozen=True)
class Key:
    number: int

    def __hash__(self) -> int:
        if hashes_fail:
            raise ZeroDivisionError
        return self.number


@step
async def takes_keys(keys: set[Key]) -> int:
    return len(keys)


@workflow
async def hands_keys_on() -> int:
    return await takes_keys({Key(1)})


@step
async def holds_the_place() -> str:
    await stage.hold("place")
    return "held"


@workflow
async def has_the_place() -> str:
    return await holds_the_place()


async def test_arguments_that_cannot_be_rebuilt_trouble_no_other_run(app: Stepwell) -> None:
    async def waits_for_the_place() -> bool:
        return await troubled.status() == "running"

    hashes_fail.clear()
    async with app.worker(step_concurrency=1):
        holder = await app.start(has_the_place())
        await stage.reached("place")
        troubled = await app.start(hands_keys_on())
        await until(waits_for_the_place)
        hashes_fail.append(True)
        stage.release("place")
        assert await holder.result(timeout=LONG) == "held"
        with pytest.raises(RunStuck, match="takes_keys"):
            await troubled.result(timeout=LONG)
        assert await (await app.start(has_the_place())).result(timeout=LONG) == "held"


@workflow
async def blocks_in_a_step() -> str:
    return await blocks_the_loop()


@workflow
async def blocks_by_itself() -> str:
    await work()
    time.sleep(0.15)  # noqa: ASYNC251 - the mistake that is tested
    return await work()


@pytest.mark.blocking
async def test_who_blocks_the_loop_is_named_in_the_log(app: Stepwell) -> None:
    with capture_logs() as logs:
        async with app.worker():
            first = await app.start(blocks_in_a_step())
            assert await first.result(timeout=LONG) == "blocked"
            second = await app.start(blocks_by_itself())
            assert await second.result(timeout=LONG) == "work"
    step_line, workflow_line = [line for line in logs if line["event"] == "loop_blocked"]
    assert (step_line["step"], step_line["run"]) == ("blocks_the_loop", first.id)
    assert step_line["seconds"] >= 0.3
    assert (workflow_line["workflow"], workflow_line["run"]) == ("blocks_by_itself", second.id)
    assert workflow_line["seconds"] >= 0.15

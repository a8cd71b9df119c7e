"""The handle of a run: results, errors, signals, history."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import Any

import pytest
import structlog

from stepwell import (
    ChildRun,
    RequestRefused,
    Retry,
    RunCancelled,
    RunEnded,
    RunFailed,
    RunHeld,
    RunNotFound,
    Signal,
    SignalTimeout,
    Stepwell,
    compensate,
    parallel,
    sleep,
    start,
    step,
    task,
    wait_for_signal,
    workflow,
)

pytestmark = pytest.mark.anyio
go = Signal("go", int)
maybe = Signal[int | None]("maybe", int | None)


@dataclass(frozen=True)
class Order:
    id: str
    lines: tuple[int, ...]


class Declined(Exception):
    def __init__(self, order: Order, *, code: int) -> None:
        super().__init__(f"declined with {code}")
        self.order, self.code = order, code


attempts: list[int] = []
mended: list[bool] = []


@step
async def charge(order: Order, fail: bool = False) -> Order:
    if fail:
        raise Declined(order, code=7)
    return order


@step
async def refund(order: Order) -> None: ...


@step(retry=Retry(attempts=3, delay=0.0))
async def flaky() -> int:
    attempts.append(1)
    if len(attempts) < 3:
        raise OSError("not yet")
    return len(attempts)


@workflow
async def checkout(order: Order, fail: bool) -> Order:
    receipt = await charge(order)
    compensate(refund(receipt))
    await charge(order, fail=fail)
    return receipt


@workflow
async def waits() -> int:
    return await wait_for_signal(go)


@workflow
async def waits_in_vain() -> str:
    try:
        number = await wait_for_signal(go, timeout=0.01)
        return f"{number}"
    except SignalTimeout as error:
        return f"{error.name} {error.timeout}"


@workflow
async def waits_with_a_default() -> tuple[int | str, object, int | None]:
    first = await wait_for_signal(go, timeout=0.01, default="none")
    second = await wait_for_signal("go", timeout=timedelta(milliseconds=10), default=None)
    return first, second, await wait_for_signal(maybe, timeout=0)


@workflow
async def retries() -> int:
    return await flaky()


@step
async def mend() -> str:
    if not mended:
        raise OSError("broken")
    return "mended"


@workflow(on_failure="hold")
async def held() -> str:
    await charge(Order("o", ()))
    return await mend()


@workflow
async def child(number: int) -> int:
    await sleep(0.01)
    return number


@step
async def asks(run: ChildRun[int]) -> int:
    return await run.result()


@workflow
async def detaches() -> tuple[int, int, ChildRun[int]]:
    run = await start(child(3), id="the-child")
    return await run.result(), await asks(run), run


@task(retry=Retry(attempts=2, delay=0.0))
async def unlucky() -> None:
    raise LookupError("nothing there")


async def test_result_has_the_type_and_value_that_the_run_returned(app: Stepwell) -> None:
    order = Order("o-1", (1, 2))
    async with app, app.worker():
        run = await app.start(checkout(order, fail=False))
        found = await run.result(timeout=20)
        assert found == order
        assert found is not await run.result()


async def test_result_raises_the_exception_of_the_run_afresh(app: Stepwell) -> None:
    order = Order("o-1", (1, 2))
    async with app, app.worker():
        run = await app.start(checkout(order, fail=True))
        with pytest.raises(Declined, match="declined with 7") as first:
            await run.result(timeout=20)
        with pytest.raises(Declined) as second:
            await run.result()
        assert (first.value.order, first.value.code) == (order, 7)
        assert first.value is not second.value
        info = await run.info()
    assert (info.status, info.rollback, info.ended) == ("failed", "complete", True)
    assert info.error == "Declined: declined with 7"


async def test_an_exception_that_cannot_be_rebuilt_is_named(app: Stepwell) -> None:
    @workflow
    async def fails() -> None:
        class Local(Exception): ...

        raise Local("seen here only")

    async with app:
        with pytest.raises(RunFailed, match=r"Local.*seen here only") as caught:
            await app.run(fails(), id="run", timeout=20)
    assert caught.value.run_id == "run"


async def test_result_that_times_out_leaves_the_run_alone(app: Stepwell) -> None:
    async with app, app.worker():
        run = await app.start(waits())
        for number, said in ((0.01, "0.01 s"), (timedelta(milliseconds=20), "0.02 s"), (0, "0 s")):
            with pytest.raises(TimeoutError) as late:
                await run.result(timeout=number)
            assert f"run {run.id!r} has not ended within {said};" in str(late.value)
            assert "the run goes on" in str(late.value)
        await run.signal(go, 4)
        assert await run.result(timeout=20) == 4


async def test_a_result_that_no_worker_will_bring_is_warned_about(
    app: Stepwell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell_runtime.unserved.UNSERVED_AFTER", 0.01)
    warned = asyncio.Event()

    def watch(_: Any, __: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        lines.append(line)
        warned.set()
        raise structlog.DropEvent

    lines: list[MutableMapping[str, Any]] = []
    async with app:
        run = await app.enqueue(unlucky(), queue="nobody's")
        waiting = asyncio.create_task(run.result())
        structlog.configure(processors=[watch])
        try:
            await asyncio.wait_for(warned.wait(), 20)
        finally:
            structlog.reset_defaults()
        waiting.cancel()
    assert lines[0]["event"] == "no_worker_for_run"
    assert (lines[0]["run"], lines[0]["queue"]) == (run.id, "nobody's")


async def test_several_may_wait_for_one_result(app: Stepwell) -> None:
    async with app, app.worker():
        run = await app.start(waits())
        waiting = [asyncio.create_task(run.result(timeout=20)) for _ in range(5)]
        impatient = asyncio.create_task(run.result())
        await asyncio.sleep(0)
        impatient.cancel()
        await run.signal(go, 4)
        assert await asyncio.gather(*waiting) == [4] * 5


async def test_a_signal_before_the_wait_is_kept(app: Stepwell) -> None:
    async with app:
        run = await app.start(waits())
        await run.signal(go, 4)
        async with app.worker():
            assert await run.result(timeout=20) == 4


async def test_a_signal_to_nobody_is_an_error(app: Stepwell) -> None:
    async with app, app.worker():
        with pytest.raises(RunNotFound):
            await app.get("nobody").signal(go, 1)
        run = await app.start(child(1))
        await run.result(timeout=20)
        with pytest.raises(RunEnded):
            await run.signal(go, 1)


async def test_a_signal_that_does_not_fit_its_type_is_refused(app: Stepwell) -> None:
    async with app:
        run: Any = await app.start(waits())
        for value in (True, "4", None, 4.0):
            with pytest.raises(TypeError, match="signal 'go' takes int"):
                await run.signal(go, value)
        await run.signal(maybe, None)
        history = await run.history()
        assert history.undelivered == (("signal", "maybe"),)


async def test_a_wait_that_times_out_can_be_caught(app: Stepwell) -> None:
    async with app:
        assert await app.run(waits_in_vain(), timeout=20) == "go 0.01"


async def test_a_wait_that_times_out_returns_its_default(app: Stepwell) -> None:
    async with app, app.worker():
        run = await app.start(waits_with_a_default())
        await run.signal(maybe, 5)
        assert await run.result(timeout=20) == ("none", None, 5)


async def test_a_cancelled_run_raises_run_cancelled(app: Stepwell) -> None:
    async with app:
        run = await app.start(waits())
        assert await run.cancel(reason="not needed", actor="ann") == "cancelled"
        with pytest.raises(RunCancelled, match="not needed"):
            await run.result()
        async with app.worker() as worker:
            second = await app.start(waits())
            await worker.drain()
            assert await second.status() == "parked"
            assert (await second.info()).waiting
            await second.cancel()
            with pytest.raises(RunCancelled):
                await second.result(timeout=20)
        with pytest.raises(RunNotFound):
            await app.cancel("nobody")


async def test_a_held_run_goes_on_when_it_is_retried(app: Stepwell) -> None:
    mended.clear()
    async with app, app.worker():
        run = await app.start(held())
        with pytest.raises(RunHeld, match="broken"):
            await run.result(timeout=20)
        assert await run.status() == "held"
        mended.append(True)
        assert await run.retry(reason="mended", actor="ann") == "ready"
        assert await run.result(timeout=20) == "mended"
        history = await run.history()
    assert [(one.action, one.actor, one.reason) for one in history.audit] == [
        ("retry", "ann", "mended")
    ]
    steps = [(one.name, one.outcome, one.voided) for one in history.events if one.kind == "step"]
    assert steps == [("charge", "ok", False), ("mend", "failed", True), ("mend", "ok", False)]


async def test_a_held_run_rolls_back_when_it_is_told(app: Stepwell) -> None:
    mended.clear()
    async with app, app.worker():
        run = await app.start(held())
        with pytest.raises(RunHeld):
            await run.result(timeout=20)
        await run.roll_back()
        with pytest.raises(OSError, match="broken"):
            await run.result(timeout=20)
        assert await run.status() == "failed"


async def test_requests_that_do_not_fit_are_refused(app: Stepwell) -> None:
    async with app:
        await app.run(child(1), id="run", timeout=20)
        run = app.get("run")
        for request in (run.retry, run.roll_back, run.resume_rollback, run.resume):
            with pytest.raises(RequestRefused):
                await request()
        with pytest.raises(RunNotFound):
            await app.get("nobody").retry()
        assert await run.status() == "completed"


async def test_history_shows_decoded_values_errors_and_undos(app: Stepwell) -> None:
    order = Order("o-1", (1,))
    async with app, app.worker():
        run = await app.start(checkout(order, fail=True), id="run")
        with pytest.raises(Declined):
            await run.result(timeout=20)
        history = await run.history()
    first, second, failure, undo = history.events
    assert (first.path, first.name, first.kind, first.outcome) == ("0", "charge", "step", "ok")
    assert first.value == order
    assert first.started_at is not None
    assert first.ended_at is not None
    assert first.started_at <= first.ended_at
    assert first.ended_at.tzinfo is UTC
    assert (second.path, second.outcome) == ("1", "failed")
    assert isinstance(second.error, Declined)
    assert (failure.kind, failure.outcome) == ("failure", "failed")
    assert (undo.path, undo.name, undo.outcome) == ("~0.0", "refund", "ok")
    assert history.run.status == "failed"


async def test_history_shows_what_is_open(app: Stepwell) -> None:
    @workflow
    async def waits_for_much() -> None:
        await parallel(sleep(3600), wait_for_signal(go, timeout=7200), child(1))

    async with app, app.worker() as worker:
        run = await app.start(waits_for_much())
        await worker.drain()
        history = await run.history()
        await run.cancel()
        open_kinds = {one.kind for one in history.events if one.outcome == "open"}
        assert {"sleep", "wait"} <= open_kinds
        assert all(one.due_at for one in history.events if one.kind == "sleep")
        assert [one.name for one in history.children] == ["child"]


@step(queue="elsewhere", retry=Retry(attempts=2, delay=0.0))
async def remote(fail: bool) -> int:
    attempts.append(1)
    if len(attempts) < 2 or fail:
        raise LookupError("not here")
    return len(attempts)


@workflow
async def goes_elsewhere(fail: bool) -> int:
    return await remote(fail)


async def test_a_step_on_another_queue_is_a_step_in_the_history(app: Stepwell) -> None:
    attempts.clear()
    async with app:
        assert await app.run(goes_elsewhere(False), id="fine", timeout=20) == 2
        with pytest.raises(LookupError):
            await app.run(goes_elsewhere(True), id="bad", timeout=20)
        fine, bad = await app.history("fine"), await app.history("bad")
        assert {run.id for run in await app.runs()} == {"fine", "bad"}
    (event,) = fine.events
    assert (event.kind, event.name, event.outcome, event.value) == ("step", "remote", "ok", 2)
    assert event.attempt == 2
    assert event.started_at is not None
    first = bad.events[0]
    assert (first.kind, first.outcome, first.attempt) == ("step", "failed", 2)
    assert isinstance(first.error, LookupError)
    assert fine.children == bad.children == ()


async def test_history_counts_attempts(app: Stepwell) -> None:
    attempts.clear()
    async with app:
        assert await app.run(retries(), id="run", timeout=20) == 3
        (event,) = (await app.history("run")).events
    assert (event.attempt, event.value) == (3, 3)


async def test_a_task_that_fails_for_good_raises_its_error(app: Stepwell) -> None:
    async with app, app.worker():
        run = await app.enqueue(unlucky())
        with pytest.raises(LookupError, match="nothing there"):
            await run.result(timeout=20)
        assert (await run.info()).attempts == 2


async def test_a_detached_child_is_a_value_with_a_durable_result(app: Stepwell) -> None:
    async with app, app.worker():
        run = await app.start(detaches())
        assert await run.result(timeout=20) == (3, 3, ChildRun("the-child"))
        assert await app.get("the-child", child).result() == 3


async def test_a_detached_child_outlives_its_cancelled_parent(app: Stepwell) -> None:
    @workflow
    async def parent() -> int:
        await start(waits(), id="survivor")
        return await wait_for_signal(go)

    async with app, app.worker() as worker:
        run = await app.start(parent())
        await worker.drain()
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=20)
        survivor = app.get("survivor", waits)
        await survivor.signal(go, 4)
        assert await survivor.result(timeout=20) == 4

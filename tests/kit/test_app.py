"""An app in virtual time: it jumps to what is due while a test waits, and stands still else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from stepwell import RunCancelled, RunEnded, StepwellError, sleep, task, workflow
from stepwell.testing import NeverAwaited, NothingDue, TestApp
from tests.kit import flows
from tests.kit.flows import Declined, Order, Receipt, approved, charge, checkout, done, refund, ship

pytestmark = pytest.mark.anyio
DAWN = datetime(2025, 1, 1, tzinfo=UTC)
ORDER = Order("o-1")


@pytest.fixture(autouse=True)
def _nothing_done() -> Iterator[None]:
    done.clear()
    yield
    done.clear()


def kit(patience: float = 0.0) -> TestApp:
    return TestApp(include=[flows], patience=patience)


async def test_a_workflow_of_a_month_takes_a_month_of_virtual_time() -> None:
    async with kit() as app:
        assert await app.run(flows.month(ORDER)) == (DAWN, DAWN + timedelta(days=30))
        assert app.time == DAWN + timedelta(days=30)
    assert done == ["charge o-1"] * 30


async def test_time_stands_still_while_the_test_waits_for_something_else() -> None:
    async with kit() as app:
        run = await app.start(checkout(ORDER))
        await app.advance(0)
        await asyncio.sleep(0.02)
        assert (await run.info()).waiting == "signal approved"
        assert app.time == DAWN
        await run.signal(approved, True)
        assert await run.result() == "shipped o-1"
        assert app.time == DAWN


async def test_a_test_may_say_how_far_time_goes() -> None:
    async with kit() as app:
        run = await app.start(checkout(ORDER))
        await app.advance(timedelta(days=2) - timedelta(seconds=1))
        assert await run.status() == "parked"
        await app.advance_to(DAWN + timedelta(days=2))
        assert await run.status() == "failed"
        with pytest.raises(Declined):
            await run.result()
        assert done == ["charge o-1", "refund o-1"]
        assert app.time == DAWN + timedelta(days=2)


async def test_a_signal_comes_at_its_time() -> None:
    async with kit() as app:
        run = await app.start(flows.waits_for_ever())
        app.signal_at(timedelta(days=100), run, approved, True)
        assert await run.result() is True
        assert app.time == DAWN + timedelta(days=100)


async def test_a_cancel_comes_at_its_time() -> None:
    async with kit() as app:
        run = await app.start(checkout(ORDER))
        app.cancel_at(DAWN + timedelta(days=1), run, "no longer wanted")
        with pytest.raises(RunCancelled, match="no longer wanted"):
            await run.result()
        assert done == ["charge o-1", "refund o-1"]


async def test_a_function_is_called_at_its_time_and_may_wait_for_more() -> None:
    async with kit() as app:

        async def tell() -> None:
            done.append(await app.run(flows.parent(Order("o-2"))))

        app.stub(checkout, returns="stubbed")
        app.at(60, lambda: done.append(f"{app.time:%H:%M}"))
        app.at(3600, tell)
        await app.advance(7200)
    assert done == ["00:01", "count 1", "stubbed, 1"]


async def test_a_test_that_waits_for_what_cannot_come_is_told_what_is_missing() -> None:
    async with kit() as app:
        run = await app.start(flows.waits_for_ever(), id="waiting")
        with pytest.raises(NothingDue, match="'waiting' cannot go on.*parked and waits for signal"):
            await run.result()


async def test_what_comes_in_real_time_within_the_patience_is_in_time() -> None:
    async with kit(patience=20.0) as app:
        run = await app.start(flows.waits_for_ever())
        waiting = asyncio.create_task(run.result())
        await asyncio.sleep(0.02)
        await run.signal(approved, True)
        assert await waiting is True


async def test_what_a_function_at_a_time_raises_fails_the_test() -> None:
    async with kit() as app:
        run = await app.start(flows.whichever())
        app.signal_at(7200, run, approved, True)
        assert await run.result() == 0
        with pytest.raises(AssertionError, match="at 2025-01-01 02:00:00 raised RunEnded"):
            await app.advance(7200)


async def test_a_call_that_is_never_awaited_is_an_error_with_its_line() -> None:
    with pytest.raises(NeverAwaited, match=r"flows\.py:\d+: the step call charge\(…\)"):
        async with kit() as app:
            await app.run(flows.forgets(ORDER))


async def test_schedules_tick_if_they_are_asked_to() -> None:
    async with TestApp(include=[flows], schedules=True) as app:
        await app.advance(timedelta(days=3))
    assert done == ["report"] * 3
    async with kit() as app:
        await app.advance(timedelta(days=3))
    assert done == ["report"] * 3


async def test_a_batch_is_gathered_before_time_goes_on() -> None:
    async with kit() as app:
        assert await app.run(flows.counts_many()) == [0, 1, 2]
        assert app.time - DAWN < timedelta(seconds=1)
    assert done == ["count [0, 1, 2]"]


async def test_apps_do_not_see_each_other() -> None:
    async with kit() as one, kit() as other:
        one.stub(charge, returns=Receipt("stub"))
        await one.start(checkout(ORDER), id="same")
        await other.start(checkout(ORDER), id="same")
        await one.advance(60)
        await other.advance(120)
        assert one.time == DAWN + timedelta(seconds=60)
        assert len(one.calls(charge)) == len(other.calls(charge)) == 1
        assert done == ["charge o-1"]


async def test_every_test_sees_the_same_ids_and_times() -> None:
    seen: list[object] = []
    for _ in range(2):
        async with kit() as app:
            app.stub(charge, outcomes=[ConnectionError, Receipt("r")])
            run = await app.start(flows.month(ORDER))
            await app.advance(timedelta(days=2))
            seen.append((run.id, app.calls(charge)))
    assert seen[0] == seen[1]


async def test_time_passes_while_a_test_waits_for_a_value_or_an_item() -> None:
    async with kit() as app:
        run = await app.start(flows.tells())
        assert await run.wait_value("half", int) == 1
        assert app.time == DAWN + timedelta(days=1)
        items = [item.value async for item in run.stream("days", int)]
        assert items == [1, 2]
        assert app.time == DAWN + timedelta(days=2)
        with pytest.raises(RunEnded):
            await run.wait_value("never", int)


# --- stubs ---


async def test_a_stub_stands_in_for_a_step_and_is_seen_with_its_arguments() -> None:
    async with kit() as app:
        stub = app.stub(charge, returns=Receipt("stub"))
        unused = app.stub(ship, returns="never")
        with pytest.raises(Declined):
            await app.run(checkout(ORDER), id="run")
        [call] = app.calls(charge)
        assert (call.arguments, call.run_id, call.path) == ({"order": ORDER}, "run", "0")
        assert call.attempt == stub.used == 1
        assert len(call.key) == 32
        assert [one.arguments for one in app.calls(refund)] == [{"receipt": Receipt("stub")}]
        assert app.unused_stubs() == [unused]
    assert done == ["refund stub"]


async def test_a_stub_fails_and_is_tried_again_as_the_step_would_be() -> None:
    async with kit() as app:
        app.stub(charge, outcomes=[ConnectionError("no"), TimeoutError, Receipt("third")])
        run = await app.start(checkout(ORDER))
        app.signal_at(timedelta(days=1), run, approved, True)
        assert await run.result() == "shipped o-1"
        assert [call.attempt for call in app.calls(charge)] == [1, 2, 3]
        assert app.calls(charge)[2].at > 0
        app.stub(charge, raises=Declined("always"))
        with pytest.raises(Declined, match="always"):
            await app.run(checkout(ORDER))


async def test_a_stub_may_be_a_function_of_either_kind() -> None:
    async def slowly(number: int) -> int:
        await asyncio.sleep(0)
        return number + 2

    async with kit() as app:
        app.stub(flows.count, does=lambda number: number + 1)
        assert await app.run(flows.count(1)) == 2
        app.stub(flows.count, does=slowly)
        assert await app.run(flows.count(1)) == 3


async def test_a_stub_may_take_its_time_and_times_out_as_the_step_would() -> None:
    async with kit() as app:
        app.stub(charge, returns=Receipt("slow"), takes=20)
        run = await app.start(checkout(ORDER))
        await app.advance(20)
        assert (await run.info()).waiting == "signal approved"
    async with kit() as app:
        app.stub(charge, returns=Receipt("slow"), takes=40)
        with pytest.raises(TimeoutError, match="longer than its timeout of 30 s"):
            await app.run(checkout(ORDER))
        assert len(app.calls(charge)) == 3


async def test_a_stub_stands_in_for_a_child_workflow_and_a_task() -> None:
    async with kit() as app:
        app.stub(checkout, returns="child", takes=timedelta(days=10))
        app.stub(flows.count, returns=7)
        assert await app.run(flows.parent(ORDER)) == "child, 7"
        assert [call.arguments for call in app.calls(checkout)] == [{"order": ORDER}]
        assert app.time == DAWN + timedelta(days=10)
        app.stub(checkout, raises=Declined("child"))
        with pytest.raises(Declined):
            await app.run(flows.parent(ORDER))
    assert done == []


async def test_a_stub_of_a_batch_answers_for_each_job() -> None:
    async with kit() as app:
        app.stub(flows.count_many, returns=9)
        assert await app.run(flows.counts_many()) == [9, 9, 9]
        with pytest.raises(TypeError, match="int"):
            app.stub(flows.count_many, returns="nine")


async def test_what_a_stub_returns_passes_through_the_codec() -> None:
    given = Receipt("stub")
    async with kit() as app:
        app.stub(charge, returns=given)
        with pytest.raises(Declined):
            await app.run(checkout(ORDER))
        [call] = app.calls(refund)
        assert call.arguments["receipt"] == given
        assert call.arguments["receipt"] is not given


async def test_a_stub_that_the_code_could_not_stand_for_is_refused() -> None:
    async with kit() as app:
        with pytest.raises(TypeError, match=r"charge.*takes Receipt, not 'a receipt'"):
            app.stub(charge, returns="a receipt")
        with pytest.raises(TypeError, match="takes Receipt, not None"):
            app.stub(charge, outcomes=[Receipt("first"), None])
        with pytest.raises(TypeError, match="one of returns="):
            app.stub(charge, returns=Receipt("a"), raises=ValueError)
        with pytest.raises(ValueError, match="at least one"):
            app.stub(charge, outcomes=[])
        with pytest.raises(TypeError, match="a step, task or workflow"):
            app.stub(kit)  # type: ignore[arg-type]  # what is wrong with it
        with pytest.raises(ValueError, match=r"app\.runs"):
            app.calls(checkout)
        assert app.unused_stubs() == []


async def test_a_function_whose_result_does_not_fit_fails_the_step() -> None:
    async with kit() as app:
        app.stub(ship, does=lambda order: 7)
        run = await app.start(checkout(ORDER))
        app.signal_at(1, run, approved, True)
        with pytest.raises(TypeError, match="takes str, not 7"):
            await run.result()


async def test_a_stub_called_with_what_the_step_does_not_take_fails_the_test() -> None:
    async with kit() as app:
        app.stub(charge, returns=Receipt("stub"))
        with pytest.raises(AssertionError, match="'charge': its parameter 'order' takes Order"):
            await app.run(flows.charges_wrongly())


# --- what stays as it is ---


@workflow
async def sleeper() -> None:
    await sleep(1)


@task
async def blocks() -> None:
    await asyncio.sleep(0.02)


async def test_steps_that_wait_in_real_time_hold_the_clock() -> None:
    async with TestApp(include=[__name__]) as app:
        await app.start(sleeper(), id="sleeper")
        await app.run(blocks())
        assert app.time == DAWN


async def test_a_loop_whose_time_cannot_be_seen_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(asyncio.get_running_loop(), "_selector", None)
        with pytest.raises(StepwellError, match="without uvloop"):
            kit().virtual.attach()

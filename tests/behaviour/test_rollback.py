"""Undos run once, newest first, whatever began the rollback and whatever happens in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from stepwell import (
    Call,
    DeadlineExceeded,
    RequestRefused,
    Retry,
    RunCancelled,
    Signal,
    Stepwell,
    compensate,
    current_run,
    current_step,
    parallel,
    rollback_scope,
    sleep,
    step,
    wait_for_signal,
    workflow,
)
from tests.behaviour.stage import LONG, stage

pytestmark = pytest.mark.anyio
go = Signal("go", int)
broken: set[str] = set()


@pytest.fixture(autouse=True)
def _nothing_is_broken() -> None:
    broken.clear()


@dataclass(frozen=True)
class Booking:
    ref: str
    seats: tuple[int, ...]


class Refused(Exception):
    pass


@step
async def unbook(booking: Booking, why: str = "") -> None:
    stage.note(f"unbook {booking.ref}")
    stage.reach(f"unbook {booking.ref}")
    if booking.ref in broken:
        raise Refused(booking.ref)


@step(compensate=unbook)
async def book(ref: str) -> Booking:
    stage.note(f"book {ref}")
    return Booking(ref, (1, 2))


@step(compensate=unbook)
async def fail(ref: str) -> Booking:
    raise LookupError(ref)


@step(compensate=unbook)
async def fail_held(ref: str) -> Booking:
    await stage.hold(ref)
    raise LookupError(ref)


@workflow
async def three_steps() -> None:
    await book("a")
    await book("b")
    await fail("c")
    await book("d")


async def test_what_completed_is_undone_in_reverse_and_what_failed_or_never_began_is_not(
    app: Stepwell,
) -> None:
    async with app.worker():
        run = await app.start(three_steps())
        with pytest.raises(LookupError, match="c"):
            await run.result(timeout=LONG)
        assert (await run.info()).rollback == "complete"
    assert stage.done == ["book a", "book b", "unbook b", "unbook a"]


@workflow
async def in_parallel() -> None:
    await book("a")
    await parallel(book("e"), fail("f"))


async def test_of_parallel_branches_only_what_completed_is_undone(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(in_parallel())
        with pytest.raises(LookupError, match="f"):
            await run.result(timeout=LONG)
    assert stage.done == ["book a", "book e", "unbook e", "unbook a"]


@workflow
async def in_a_child() -> None:
    await book("outer")
    await three_steps()


async def test_a_failed_child_undoes_its_own_before_its_parent_does(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(in_a_child())
        with pytest.raises(LookupError):
            await run.result(timeout=LONG)
    assert stage.done[-3:] == ["unbook b", "unbook a", "unbook outer"]


@workflow
async def child_that_succeeds() -> str:
    await book("child")
    return "done"


@workflow
async def fails_after_a_child() -> None:
    await child_that_succeeds()
    raise LookupError("after")


async def test_a_child_that_succeeded_is_not_undone_by_its_parents_failure(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(fails_after_a_child())
        with pytest.raises(LookupError):
            await run.result(timeout=LONG)
    assert stage.done == ["book child"]


@workflow(deadline=3600)
async def waits_between() -> None:
    await book("a")
    await book("b")
    await wait_for_signal(go)


@step(retry=Retry(attempts=2, delay=0.0))
async def exhausts() -> None:
    raise LookupError("exhausted")


@workflow
async def exhausts_retries() -> None:
    await book("a")
    await book("b")
    await exhausts()


async def test_a_cancel_a_deadline_and_a_failure_roll_back_in_the_same_way(app: Stepwell) -> None:
    async with app.worker() as worker:
        cancelled = await app.start(waits_between())
        await worker.drain()
        await cancelled.cancel()
        with pytest.raises(RunCancelled):
            await cancelled.result(timeout=LONG)
        late = await app.start(waits_between().with_options(deadline=1.0))
        with pytest.raises(DeadlineExceeded):
            await late.result(timeout=LONG)
        failed = await app.start(exhausts_retries())
        with pytest.raises(LookupError, match="exhausted"):
            await failed.result(timeout=LONG)
        infos = [await run.info() for run in (cancelled, late, failed)]
    assert [one.status for one in infos] == ["cancelled", "failed", "failed"]
    assert [one.rollback for one in infos] == ["complete"] * 3
    assert stage.done == ["book a", "book b", "unbook b", "unbook a"] * 3


@step
async def slow_undo(what: str) -> None:
    stage.note(f"begin {what}")
    await stage.hold(what)
    stage.note(f"end {what}")


@workflow
async def undoes_slowly() -> None:
    compensate(slow_undo("first"))
    compensate(slow_undo("second"))
    raise LookupError("no")


async def test_a_cancel_and_a_second_one_do_not_interrupt_undos(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(undoes_slowly())
        await stage.reached("second")
        await run.cancel()
        await run.cancel()
        stage.release("second")
        stage.release("first")
        with pytest.raises(LookupError):
            await run.result(timeout=LONG)
        assert (await run.info()).status == "failed"
    assert stage.done == ["begin second", "end second", "begin first", "end first"]


async def test_a_rollback_goes_on_after_a_restart_and_repeats_only_what_was_cut(
    app: Stepwell,
) -> None:
    async with app.worker(grace=0):
        run = await app.start(undoes_slowly())
        stage.release("second")
        await stage.reached("first")
        assert await run.status() == "rolling_back"
    assert await run.status() == "rolling_back"
    stage.release("first")
    async with app.worker():
        with pytest.raises(LookupError):
            await run.result(timeout=LONG)
    assert stage.done == ["begin second", "end second", "begin first", "begin first", "end first"]


@step
async def undo_with_key(what: str) -> None:
    stage.note(current_step().key)
    await stage.hold(what)


@workflow
async def undoes_with_key() -> None:
    compensate(undo_with_key("a"))
    raise LookupError("no")


async def test_an_undo_that_was_cut_is_repeated_under_the_same_key(app: Stepwell) -> None:
    async with app.worker(grace=0):
        run = await app.start(undoes_with_key())
        await stage.reached("a")
    stage.release("a")
    async with app.worker():
        with pytest.raises(LookupError):
            await run.result(timeout=LONG)
    assert len(stage.done) == 2
    assert len(set(stage.done)) == 1


@workflow
async def rolls_back_with_a_signal() -> None:
    compensate(slow_undo("a"))
    await wait_for_signal(go, timeout=0.02)


async def test_a_signal_that_comes_during_the_rollback_changes_nothing(app: Stepwell) -> None:
    async with app.worker(grace=0):
        run = await app.start(rolls_back_with_a_signal())
        await stage.reached("a")
        await run.signal(go, 1)
    await run.signal(go, 2)
    stage.release("a")
    async with app.worker():
        with pytest.raises(TimeoutError):
            await run.result(timeout=LONG)
    assert stage.done == ["begin a", "begin a", "end a"]


@workflow
async def gets_output() -> None:
    booking = await book("a")
    changing = [booking]
    compensate(undo_list(changing))
    changing.append(Booking("later", ()))
    await sleep(0.01)
    raise LookupError("no")


@step
async def undo_list(bookings: list[Booking]) -> None:
    stage.note([one.ref for one in bookings])


async def test_an_undo_gets_what_was_recorded_after_a_restart_too(
    make_app: Callable[[], Stepwell],
) -> None:
    async with make_app() as app:
        run = await app.start(gets_output(), id="run")
        async with app.worker() as worker:
            await worker.drain()
    async with make_app() as app, app.worker():
        with pytest.raises(LookupError):
            await app.get("run", gets_output).result(timeout=LONG)
    assert run.id == "run"
    assert stage.done == ["book a", ["a"], "unbook a"]


@workflow
async def undoes_at_length() -> None:
    await book("a")
    compensate(undo_flow("b"))
    await book("c")
    raise LookupError("no")


@workflow
async def undo_flow(what: str) -> None:
    await sleep(0.01)
    await parallel(unbook(Booking(f"{what}1", ())), sleep(0.01))
    await wait_for_signal(go)
    await unbook(Booking(f"{what}2", ()))


async def test_an_undo_may_be_a_workflow_that_sleeps_and_waits(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(undoes_at_length())
        await stage.reached("unbook b1")
        children = await app.runs(name="undo_flow")
        await app.signal(children[0].id, go, 1)
        with pytest.raises(LookupError):
            await run.result(timeout=LONG)
    assert stage.done == ["book a", "book c", "unbook c", "unbook b1", "unbook b2", "unbook a"]


@workflow
async def four_bookings() -> None:
    for ref in ("a", "b", "c", "d"):
        await book(ref)
    raise LookupError("the reason")


async def test_one_failed_undo_does_not_stop_the_rest_and_is_told(app: Stepwell) -> None:
    broken.update(("b", "c"))
    async with app.worker():
        run = await app.start(four_bookings())
        with pytest.raises(LookupError, match="the reason") as caught:
            await run.result(timeout=LONG)
        info = await run.info()
    assert (info.status, info.rollback) == ("failed", "incomplete")
    notes = caught.value.__notes__
    assert sorted(note.rpartition(" ")[2] for note in notes) == ["b", "c"]
    assert stage.done[4:] == ["unbook d", "unbook c", "unbook b", "unbook a"]


@pytest.mark.parametrize("restart", [False, True])
async def test_a_resumed_rollback_repeats_only_what_failed(
    make_app: Callable[[], Stepwell], restart: bool
) -> None:
    broken.update(("b", "c"))
    async with make_app() as app, app.worker():
        run = await app.start(four_bookings(), id="run")
        with pytest.raises(LookupError):
            await run.result(timeout=LONG)
        stage.done.clear()
        broken.discard("b")
        await run.resume_rollback()
        with pytest.raises(LookupError):
            await run.result(timeout=LONG)
        assert stage.done == ["unbook c", "unbook b"]
        assert (await run.info()).rollback == "incomplete"
        if not restart:
            broken.clear()
            stage.done.clear()
            await run.resume_rollback()
            with pytest.raises(LookupError):
                await run.result(timeout=LONG)
            assert stage.done == ["unbook c"]
            assert (await run.info()).rollback == "complete"
            assert await app.doctor() == []
            return
    broken.clear()
    stage.done.clear()
    async with make_app() as app:
        await app.resume_rollback("run")
        async with app.worker():
            with pytest.raises(LookupError, match="the reason"):
                await app.get("run", four_bookings).result(timeout=LONG)
        info = await app.info("run")
        assert (info.status, info.rollback) == ("failed", "complete")
        assert stage.done == ["unbook c"]
        assert await app.doctor() == []


async def test_a_rollback_that_is_complete_cannot_be_resumed_nor_the_run_retried(
    app: Stepwell,
) -> None:
    async with app.worker():
        run = await app.start(three_steps())
        with pytest.raises(LookupError):
            await run.result(timeout=LONG)
        with pytest.raises(RequestRefused):
            await run.resume_rollback()
        with pytest.raises(RequestRefused):
            await run.retry()


@step(retry=Retry(attempts=3, delay=0.0))
async def flaky_undo() -> None:
    stage.note(current_step().attempt)
    if current_step().attempt < 3:
        raise Refused


@workflow
async def undoes_flakily() -> None:
    compensate(flaky_undo())
    raise LookupError("no")


async def test_an_undo_has_retries_of_its_own(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(undoes_flakily())
        with pytest.raises(LookupError):
            await run.result(timeout=LONG)
        assert (await run.info()).rollback == "complete"
    assert stage.done == [1, 2, 3]


@step(queue="far")
async def far_undo(what: str) -> None:
    stage.note(f"{current_run_id()} {what}")


def current_run_id() -> str:
    return current_step().run_id


@workflow
async def undoes_far_away() -> None:
    compensate(far_undo("a"))
    raise LookupError(current_run().id)


async def test_an_undo_may_run_on_another_queue(app: Stepwell) -> None:
    async with app.worker() as worker:
        run = await app.start(undoes_far_away(), id="run")
        await worker.drain()
        assert await run.status() == "rolling_back"
        async with app.worker(queues=["far"]):
            with pytest.raises(LookupError):
                await run.result(timeout=LONG)
    assert stage.done == ["run a"]


def choose(booking: Booking) -> Call[None]:
    return unbook(booking, "chosen")


@step(compensate=choose)
async def book_with_choice(ref: str) -> Booking:
    return Booking(ref, ())


@workflow
async def completes() -> str:
    await book_with_choice("a")
    await book("b")
    return "done"


async def test_a_run_that_completes_undoes_nothing(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(completes())
        assert await run.result(timeout=LONG) == "done"
        assert (await run.info()).rollback == "none"
    assert stage.done == ["book b"]


@workflow
async def discards() -> None:
    undo = compensate(unbook(Booking("first", ())))
    await book("second")
    await sleep(0.01)
    undo.discard()
    raise LookupError("no")


@pytest.mark.parametrize("cache", [0, 1000])
async def test_an_undo_discarded_after_a_wait_stays_discarded(app: Stepwell, cache: int) -> None:
    async with app.worker(cache=cache):
        run = await app.start(discards())
        with pytest.raises(LookupError):
            await run.result(timeout=LONG)
    assert stage.done == ["book second", "unbook second"]


@workflow
async def rolls_back_on_a_deadline() -> None:
    await book("a")
    await wait_for_signal(go)
    await book("never")


async def test_a_wake_up_that_was_on_its_way_does_not_go_on_with_a_cancelled_run(
    app: Stepwell,
) -> None:
    run = await app.start(rolls_back_on_a_deadline())
    async with app.worker() as worker:
        await worker.drain()
    await run.cancel()
    await run.signal(go, 1)
    async with app.worker():
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)
    assert stage.done == ["book a", "unbook a"]


@workflow
async def in_a_scope() -> str:
    value = 0
    await book("before")
    try:
        async with rollback_scope():
            await book("inside")
            await fail("no")
    except LookupError:
        value = await wait_for_signal(go)
    if value:
        await fail("later")
    return "went on"


async def test_a_block_is_undone_and_the_run_goes_on_after_a_restart(app: Stepwell) -> None:
    run = await app.start(in_a_scope(), id="run")
    async with app.worker() as worker:
        await worker.drain()
    assert stage.done == ["book before", "book inside", "unbook inside"]
    await run.signal(go, 0)
    async with app.worker():
        assert await run.result(timeout=LONG) == "went on"
    assert stage.done == ["book before", "book inside", "unbook inside"]
    assert (await app.history("run")).run.rollback == "none"


async def test_the_run_undoes_what_no_scope_has_undone(app: Stepwell) -> None:
    run = await app.start(in_a_scope())
    await run.signal(go, 1)
    async with app.worker():
        with pytest.raises(LookupError, match="later"):
            await run.result(timeout=LONG)
    assert stage.done == ["book before", "book inside", "unbook inside", "unbook before"]


@workflow(on_failure="hold")
async def fails_by_its_scope() -> None:
    async with rollback_scope():
        await book("inside")
        await fail("no")


async def test_a_run_whose_scope_is_undone_is_not_held_and_cannot_be_retried(
    app: Stepwell,
) -> None:
    run = await app.start(fails_by_its_scope(), id="run")
    async with app.worker():
        with pytest.raises(LookupError):
            await run.result(timeout=LONG)
        assert (await app.history("run")).run.rollback == "complete"
        with pytest.raises(RequestRefused):
            await run.retry()
    assert stage.done == ["book inside", "unbook inside"]

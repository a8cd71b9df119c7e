"""Who starts the runs of ticks, and what becomes of ticks that are late, or meet one another."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from typing import Any

import pytest

from stepwell import Retry, Run, Stepwell, current_job, current_run, step, task, workflow
from stepwell._app.schedules import Schedule, ScheduleTick
from stepwell_queue.contract import DueSchedules, FindDue, Overlap, PutSchedule, ScheduleRow
from stepwell_queue.errors import StepwellError, StoreUnavailable
from stepwell_runtime.schedules.scheduler import Scheduler
from tests.behaviour.stage import until
from tests.store.kit import ManualClock

pytestmark = pytest.mark.anyio

HOUR, MINUTE = 3600.0, 60.0


@task
async def note(text: str = "") -> str:
    return text


@workflow
async def when() -> float:
    return current_run().scheduled_at.timestamp()


def scheduler(app: Stepwell, seed: int = 0) -> Scheduler:
    """One that does what it is told to, when it is told to."""
    return Scheduler(app.engine.store, random.Random(seed))


async def ticks(schedule: Schedule[Any]) -> list[ScheduleTick]:
    """What became of its ticks, the oldest first."""
    return list(reversed(await schedule.history()))


def seconds(found: list[ScheduleTick], clock_began: float) -> list[float]:
    return [tick.tick_at.timestamp() - clock_began for tick in found]


async def end_all(app: Stepwell) -> None:
    async with app.worker() as worker:
        await worker.drain()


# --- one firing ---


async def test_a_tick_starts_one_run_however_many_schedulers_there_are(
    app: Stepwell, clock: ManualClock
) -> None:
    began = clock.now()
    made = await app.schedule("m", note(), every=MINUTE, overlap="allow")
    many = [scheduler(app, seed) for seed in range(4)]
    for _ in range(10):
        clock.move(MINUTE)
        await asyncio.gather(*(one.deal() for one in many))
    found = await ticks(made)
    assert len(found) == 10
    assert len({tick.run_id for tick in found}) == len(await app.runs(limit=100)) == 10
    assert [b - a for a, b in zip(*(seconds(found, began)[n:] for n in (0, 1)), strict=False)] == [
        MINUTE
    ] * 9


async def test_schedulers_that_look_at_odd_moments_start_each_tick_once(
    app: Stepwell, clock: ManualClock
) -> None:
    chance = random.Random(126)
    made = await app.schedule("m", note(), every=MINUTE, overlap="allow")
    many = [scheduler(app, seed) for seed in range(3)]
    spent = 0.0
    while spent < 10 * MINUTE:
        step = chance.uniform(0.0, 9.0)
        clock.move(step)
        spent += step
        await asyncio.gather(*(one.deal() for one in chance.sample(many, chance.randint(1, 3))))
    found = [tick.tick_at for tick in await ticks(made)]
    assert found == sorted(set(found))
    assert len(found) in (10, 11)
    assert len(await app.runs(limit=100)) == len(found)


async def test_a_clock_that_is_ahead_starts_nothing_twice(
    app: Stepwell, clock: ManualClock
) -> None:
    made = await app.schedule("m", note(), every=MINUTE, overlap="allow")
    for _ in range(5):
        clock.move(MINUTE - 2.0)
        clock.move(2.0)
        await scheduler(app).deal()
        clock.move(-2.0)
        await scheduler(app).deal()
        clock.move(2.0)
    assert len(await ticks(made)) == 5


async def test_a_clock_that_jumps_repeats_no_tick_and_loses_none_that_comes(
    app: Stepwell, clock: ManualClock
) -> None:
    made = await app.schedule("m", note(), every=MINUTE)
    clock.move(MINUTE)
    await scheduler(app).deal()
    await end_all(app)
    clock.move(-HOUR)
    for _ in range(3):
        clock.move(MINUTE)
        await scheduler(app).deal()
    assert len(await ticks(made)) == 1
    clock.move(HOUR - 3 * MINUTE)
    clock.move(MINUTE)
    await scheduler(app).deal()
    assert len(await ticks(made)) == 2
    await end_all(app)
    clock.move(HOUR)
    await scheduler(app).deal()
    assert len([tick for tick in await ticks(made) if tick.run_id]) == 3


# --- overlaps ---


async def test_a_tick_while_the_run_before_goes_on_is_skipped_and_says_so(
    app: Stepwell, clock: ManualClock
) -> None:
    made = await app.schedule("m", note(), every=MINUTE)
    for _ in range(3):
        clock.move(MINUTE)
        await scheduler(app).deal()
    first, *rest = await ticks(made)
    assert first.run_id is not None
    assert [(tick.run_id, tick.why) for tick in rest] == [
        (None, f"run {first.run_id} had not ended")
    ] * 2
    await end_all(app)
    clock.move(MINUTE)
    await scheduler(app).deal()
    assert (await ticks(made))[-1].run_id is not None


async def test_a_queued_tick_starts_when_the_run_before_has_ended(
    app: Stepwell, clock: ManualClock
) -> None:
    gate.reset()
    made = await app.schedule("m", through_the_gate(), every=MINUTE, overlap="queue")
    async with app.worker():
        await _tick(app, clock)
        await gate.entered()
        await _tick(app, clock)
        await _tick(app, clock)
        first, second, third = await ticks(made)
        assert first.status == "running"
        assert second.run_id is not None
        assert third.run_id is None
        assert third.why == f"run {second.run_id} was waiting already"
        assert gate.inside == 1
        gate.open()
        await app.get(first.run_id or "").result(timeout=20)
        await gate.entered()
        gate.open()
        await app.get(second.run_id).result(timeout=20)


async def _tick(app: Stepwell, clock: ManualClock) -> None:
    # The scheduler of the worker may be quicker; then there is nothing to do.
    clock.move(MINUTE)
    await scheduler(app).deal()


class Gate:
    def reset(self) -> None:
        self.inside = 0
        self._entered: asyncio.Queue[None] = asyncio.Queue()
        self._open: asyncio.Queue[None] = asyncio.Queue()

    async def entered(self) -> None:
        async with asyncio.timeout(20):
            await self._entered.get()

    def open(self) -> None:
        self._open.put_nowait(None)

    async def go_through(self) -> None:
        self.inside += 1
        self._entered.put_nowait(None)
        await self._open.get()
        self.inside -= 1


gate = Gate()


@task
async def through_the_gate() -> None:
    await gate.go_through()


async def test_overlapping_runs_are_started_where_that_is_allowed(
    app: Stepwell, clock: ManualClock
) -> None:
    made = await app.schedule("m", note(), every=MINUTE, overlap="allow")
    for _ in range(3):
        clock.move(MINUTE)
        await scheduler(app).deal()
    assert all(tick.run_id for tick in await ticks(made))


# --- ticks that nobody was there for ---


async def test_a_run_longer_than_its_period_is_not_started_again_by_a_restart(
    app: Stepwell, clock: ManualClock
) -> None:
    """Its schedule is registered again, unchanged: the next tick stays where it was."""
    made = await app.schedule("m", note(), every=MINUTE)
    clock.move(MINUTE)
    await scheduler(app).deal()
    before = await made.info()
    clock.move(30.0)
    again = await app.schedule("m", note(), every=MINUTE)
    await scheduler(app).deal()
    assert await again.info() == before
    assert len(await ticks(made)) == 1
    clock.move(30.0)
    await scheduler(app).deal()
    assert "had not ended" in (await ticks(made))[-1].why


async def test_after_ten_minutes_without_a_worker_one_run_is_started(
    app: Stepwell, clock: ManualClock
) -> None:
    made = await app.schedule("m", note(), every=1.0, overlap="allow")
    clock.move(10 * MINUTE)
    now = clock.now()
    await asyncio.gather(*(scheduler(app).deal() for _ in range(4)))
    (found,) = await ticks(made)
    assert found.tick_at.timestamp() == now
    assert found.run_id is not None
    assert found.why.startswith("missed from ")
    assert (await made.info()).next_at == datetime.fromtimestamp(now + 1, UTC)


@pytest.mark.parametrize(("missed", "runs"), [("skip", 0), ("once", 1), (3, 3), (100, 4)])
async def test_the_policy_for_missed_ticks_decides_how_many_are_made_up_for(
    app: Stepwell, clock: ManualClock, missed: Any, runs: int
) -> None:
    overlap: Any = "allow" if missed in (3, 100) else "skip"
    began = clock.now()
    made = await app.schedule("m", note(), every=HOUR, missed=missed, overlap=overlap)
    clock.move(4 * HOUR)
    await scheduler(app).deal()
    found = await ticks(made)
    assert [tick.run_id is not None for tick in found] == ([True] * runs or [False])
    assert [tick.why != "" for tick in found] == [runs < 4] + [False] * (len(found) - 1)
    last = found[-1].tick_at.timestamp()
    assert last + HOUR > clock.now() if runs else last < began + HOUR + 1
    assert (await made.info()).next_at > datetime.fromtimestamp(clock.now(), UTC)  # type: ignore[operator]  # there is one


async def test_a_tick_that_was_due_while_all_were_down_runs_once_when_they_are_back(
    app: Stepwell, clock: ManualClock
) -> None:
    made = await app.schedule("noon", when(), cron="0 12 * * *", tz="Europe/Rome")
    noon = (await made.info()).next_at
    assert noon is not None
    clock.move(noon.timestamp() - clock.now() + 30 * MINUTE)
    async with app.worker():
        (run,) = await runs_of(app, made)
        assert await run.result(timeout=20) == noon.timestamp()


async def runs_of(app: Stepwell, made: Schedule[Any]) -> list[Run[Any]]:
    await scheduler(app).deal()
    return [app.get(tick.run_id) for tick in await ticks(made) if tick.run_id]


async def test_a_tick_that_is_a_little_late_is_no_missed_one(
    app: Stepwell, clock: ManualClock
) -> None:
    made = await app.schedule("m", note(), every=1.0, missed="skip", overlap="allow")
    clock.move(5.0)
    await scheduler(app).deal()
    assert [tick.why for tick in await ticks(made)] == [""] * 5


async def test_a_single_tick_in_the_past_is_a_missed_one(app: Stepwell, clock: ManualClock) -> None:
    past = datetime.fromtimestamp(clock.now() - HOUR, UTC)
    made = await app.schedule("once", note(), at=past)
    unwanted = await app.schedule("not", note(), at=past, missed="skip")
    await scheduler(app).deal()
    (tick,) = await ticks(made)
    assert (tick.tick_at, tick.run_id is not None) == (past, True)
    (left_out,) = await ticks(unwanted)
    assert left_out.run_id is None
    assert (await made.info()).next_at is None
    await app.schedule("once", note(), at=past)
    await scheduler(app).deal()
    assert len(await ticks(made)) == 1


# --- what a run of a schedule is ---


async def test_a_run_is_named_after_its_tick_and_knows_when_it_was_due(
    app: Stepwell, clock: ManualClock
) -> None:
    made = await app.schedule("nightly", when(), cron="30 2 * * *", tz="Europe/Rome")
    tick = (await made.info()).next_at
    assert tick is not None
    clock.move(tick.timestamp() - clock.now() + 3.0)
    (run,) = await runs_of(app, made)
    assert run.id.startswith("schedule:nightly@2026-0")
    assert run.id.endswith("T02:30:00+02:00")
    await end_all(app)
    assert await run.result(timeout=20) == tick.timestamp()


async def test_jitter_delays_the_start_and_not_the_tick(app: Stepwell, clock: ManualClock) -> None:
    made = await app.schedule("m", when(), every=HOUR, jitter=10 * MINUTE, overlap="allow")
    delays: list[float] = []
    chosen = scheduler(app, seed=5)
    for _ in range(4):
        next_at = (await made.info()).next_at
        assert next_at is not None
        clock.move(next_at.timestamp() - clock.now())
        await chosen.deal()
        last = (await ticks(made))[-1]
        assert last.tick_at == next_at
        info = await app.info(last.run_id or "")
        assert info.due_at is not None
        delays.append((info.due_at - next_at).total_seconds())
    assert all(0 <= delay <= 10 * MINUTE for delay in delays)
    assert len(set(delays)) == 4


@step(queue="far")
async def step_elsewhere() -> float:
    return current_job().scheduled_at.timestamp()


@step
async def step_here() -> float:
    return current_job().scheduled_at.timestamp()


@workflow
async def told_everywhere() -> list[float]:
    return [current_run().scheduled_at.timestamp(), await step_here(), await step_elsewhere()]


@task(retry=Retry(attempts=2, delay=0.0))
async def told_again() -> list[float]:
    if current_job().attempt == 1:
        raise LookupError
    return [current_job().scheduled_at.timestamp()]


@pytest.mark.parametrize("call", [told_everywhere(), told_again()])
@pytest.mark.parametrize("jitter", [None, 10 * MINUTE])
async def test_code_is_told_its_tick_whatever_delays_it(
    app: Stepwell, clock: ManualClock, call: Any, jitter: float | None
) -> None:
    made = await app.schedule("m", call, every=HOUR, jitter=jitter)
    tick = (await made.info()).next_at
    assert tick is not None
    clock.move(tick.timestamp() - clock.now())
    (run,) = await runs_of(app, made)
    clock.move(10 * MINUTE)
    async with app.worker(), app.worker(queues=["far"]):
        assert set(await run.result(timeout=20)) == {tick.timestamp()}


async def test_deadlines_and_expiries_count_from_the_start_of_each_run(
    app: Stepwell, clock: ManualClock
) -> None:
    options: dict[str, Any] = {"deadline": 90.0, "priority": 7, "expires": 45.0}
    made = await app.schedule("m", note("x").with_options(**options), every=MINUTE)
    before = await made.info()
    clock.move(7.7)
    await app.schedule("m", note("x").with_options(**options), every=MINUTE)
    assert await made.info() == before
    clock.move(MINUTE)
    (run,) = await runs_of(app, made)
    info = await run.info()
    assert info.priority == 7
    assert info.deadline_at == datetime.fromtimestamp(clock.now() + 90.0, UTC)
    clock.move(46.0)
    await end_all(app)
    assert await run.status() == "expired"


# --- the scheduler itself ---


class Faulty:
    """A store that fails at times, and holds back what it knows."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.rows: list[ScheduleRow] = []
        self.asked: asyncio.Queue[None] = asyncio.Queue()
        self.fails = False

    async def read(self, query: FindDue) -> Any:
        self.asked.put_nowait(None)
        if self.fails:
            raise StoreUnavailable("the disk is full")
        return DueSchedules(self.rows, self.clock.now() + 60)

    async def do(self, verb: Any) -> None:
        raise AssertionError("there is nothing to be said")


async def _asked(store: Faulty) -> None:
    async with asyncio.timeout(20):
        await store.asked.get()


async def _is_set(clock: ManualClock) -> bool:
    return clock.next_alarm is not None


async def test_it_looks_again_when_the_next_tick_comes_and_when_it_is_told_to(
    clock: ManualClock,
) -> None:
    store: Any = Faulty(clock)
    one = Scheduler(store, random.Random(0))
    one.start()
    await _asked(store)
    one.poke()
    await _asked(store)
    await until(lambda: _is_set(clock))
    clock.move(60)
    await _asked(store)
    await one.stop()
    assert clock.next_alarm is None


async def test_it_goes_on_after_the_store_was_away(clock: ManualClock) -> None:
    store: Any = Faulty(clock)
    store.fails = True
    one = Scheduler(store, random.Random(0))
    one.start()
    await _asked(store)
    store.fails = False
    one.poke()
    await _asked(store)
    await one.stop()


async def test_a_schedule_that_cannot_be_read_is_named(app: Stepwell, clock: ManualClock) -> None:
    await app.schedule("m", note(), every=MINUTE)
    await app.engine.store.do(PutSchedule("new", b"d", b"\x80", 0, "", clock.now(), clock.now()))
    with pytest.raises(StepwellError, match="schedule 'new': it cannot be read here: .*newer"):
        await app.schedules()
    clock.move(MINUTE)
    await scheduler(app).deal()  # the other one ticks all the same
    assert len(await app.get_schedule("m").history()) == 1


async def test_a_plan_that_cannot_be_read_is_passed_over(clock: ManualClock) -> None:
    store: Any = Faulty(clock)
    fields = ("x", b"d", b"not a plan", int(Overlap.SKIP), "", 1.0, 1.0, 1.0, None, False)
    store.rows = [ScheduleRow(*fields)]
    assert await Scheduler(store, random.Random(0)).deal() == clock.now() + 60

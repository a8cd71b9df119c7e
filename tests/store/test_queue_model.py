"""Random lives of queues, compared with a model that knows the rules and nothing else."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from stepwell_queue import (
    Append,
    CancelRun,
    Finish,
    Hello,
    Hold,
    Identity,
    QueueFull,
    Reschedule,
    RunFilter,
    SendSignal,
    Session,
    Start,
    Status,
    Terms,
)
from stepwell_queue.contract import (
    ListQueues,
    PauseQueue,
    PurgeQueue,
    QueueSettings,
    RateLimit,
    ResumeQueue,
    SetQueue,
)
from tests.conftest import Scale
from tests.serving import serving
from tests.store.kit import TASK, WORKFLOW, Bench, Listener, ManualClock, open_bench
from tests.store.queue_claims import Turns, check_alone, check_claim, is_plain
from tests.store.queue_model import ALONE_FROM, Job, Model, Worker

T = TypeVar("T")
QUEUES = st.sampled_from(["mail", "mail", "report"])
NAMES = st.sampled_from([TASK, WORKFLOW])
KEYS = st.sampled_from(["", "", "x", "y", "z"])
PRIORITIES = st.sampled_from([0, 0, 0, 1, 2])
DELAYS = st.sampled_from([None, None, None, 1.0, 4.0])
UNIQUE = {"once": Hold.UNENDED, "next": Hold.PENDING, "often": Hold.UNTIL}
HELD_FOR = 5.0  # seconds that a unique key is taken for a time
RATES = st.sampled_from([None, RateLimit(1, 1.0, 1), RateLimit(2, 1.0, 3), RateLimit(1, 4.0, 2)])
SETTINGS = st.builds(
    QueueSettings,
    limit=st.sampled_from([None, None, 1, 3]),
    key_limit=st.sampled_from([None, None, 1, 2]),
    rate=RATES,
    key_rate=RATES,
    max_length=st.sampled_from([None, None, None, 4]),
    ageing=st.sampled_from([None, None, 2.0]),
)
WORKERS = st.tuples(
    st.sampled_from([("mail", "report"), ("mail",)]),
    st.sampled_from([(TASK, WORKFLOW), (TASK,)]),
    st.sampled_from([(), (), (("mail", 2),)]),
)


def is_working(lives: QueueLives) -> bool:
    return any(job.holder is not None for job in lives.model.jobs.values())


class QueueLives(RuleBasedStateMachine):
    """On a file."""

    over_tcp = False

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.model = Model(self.clock.now(), ["mail", "report"])
        self.turns = Turns(self.model)
        self.alone: dict[int, Job] = {}
        self.sessions: dict[int, Session] = {}
        self.said = 0
        self.bench: Bench
        self.opened: AsyncExitStack
        self.first: Worker

    # --- the store ---

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def say(self, verb: Any) -> Any:
        return self.do(self.bench.store.do(verb))

    @property
    def path(self) -> Path:
        return Path(self.folder.name) / "runs.db"

    @initialize()
    def open(self) -> None:
        self.do(self._open())
        self.first = self.enter(("mail", "report"), (TASK, WORKFLOW), ())

    async def _open(self) -> None:
        self.opened = AsyncExitStack()
        server = None
        if self.over_tcp:
            server = await self.opened.enter_async_context(serving(self.path, clock=self.clock))
        bench = await open_bench(self.path, clock=self.clock, server=server)
        bench.count = self.said
        self.opened.push_async_callback(bench.store.close)
        self.bench = bench

    def teardown(self) -> None:
        try:
            if hasattr(self, "bench"):
                assert self.do(self.bench.store.doctor()) == []
                self.do(self.opened.aclose())
        finally:
            self.runner.close()
            self.folder.cleanup()

    def enter(
        self,
        queues: tuple[str, ...],
        serves: tuple[Identity, ...],
        limits: tuple[tuple[str, int], ...],
    ) -> Worker:
        hello = Hello("worker", queues, serves, dict(limits))
        session = self.do(self.bench.store.open_session(hello, Listener()))
        worker = Worker(session.worker, queues, serves, limits)
        self.model.workers[worker.number] = worker
        self.sessions[worker.number] = session
        return worker

    def next_id(self) -> str:
        self.said += 1
        return f"job-{self.said}"

    def some(self, data: st.DataObject, which: Callable[[Job], bool]) -> Job | None:
        found = [job for job in self.model.jobs.values() if which(job)]
        return data.draw(st.sampled_from(found)) if found else None

    def held(self, data: st.DataObject) -> Job:
        found = [job for job in self.model.jobs.values() if job.holder is not None]
        return data.draw(st.sampled_from(found))

    # --- what clients do ---

    @rule(queue=QUEUES, identity=NAMES, key=KEYS, priority=PRIORITIES, count=st.integers(1, 3))
    def enqueue(self, queue: str, identity: Identity, key: str, priority: int, count: int) -> None:
        for _ in range(count):
            self.start(self.job(queue, identity, key, priority))

    @rule(
        queue=QUEUES, identity=NAMES, key=KEYS, priority=PRIORITIES, delay=DELAYS, expires=DELAYS,
        unique=st.sampled_from(["", "once", "once", "next", "often"]), replace=st.booleans(),
    )  # fmt: skip
    def enqueue_on_terms(
        self,
        queue: str,
        identity: Identity,
        key: str,
        priority: int,
        delay: float | None,
        expires: float | None,
        unique: str,
        replace: bool,
    ) -> None:
        job = self.job(queue, identity, key, priority, delay, expires)
        if unique:
            job.unique, job.hold = unique, UNIQUE[unique]
            job.held_until = self.clock.now() + HELD_FOR
        self.start(job, replace=replace)

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data(), queue=QUEUES, delay=DELAYS, anyhow=st.booleans())
    def enqueue_after(
        self, data: st.DataObject, queue: str, delay: float | None, anyhow: bool
    ) -> None:
        ids = data.draw(st.lists(st.sampled_from(sorted(self.model.jobs)), min_size=1, max_size=2))
        job = self.job(queue, TASK, "", 0, delay)
        job.needs = dict.fromkeys(ids, anyhow)
        self.start(job)

    def job(
        self,
        queue: str,
        identity: Identity,
        key: str,
        priority: int,
        delay: float | None = None,
        expires: float | None = None,
    ) -> Job:
        now = self.clock.now()
        due = None if delay is None else now + delay
        rank = self.model.rank(queue, priority, due)
        job = Job(0, self.next_id(), queue, identity, key, priority, rank, Status.READY)
        job.scheduled, job.expires = due, None if expires is None else now + expires
        job.args = job.id.encode()
        return job

    def new(self, job: Job, *, replace: bool = False) -> Any:
        terms = Terms(
            key=job.key, expires=job.expires, unique=job.unique, hold=job.hold,
            held_until=job.held_until, replace=replace, after=list(job.needs),
            anyhow=any(job.needs.values()),
        )  # fmt: skip
        return self.bench.new(
            job.id, job.identity, queue=job.queue, priority=job.priority, args=job.args,
            due=job.scheduled, terms=None if terms == Terms() else terms,
        )  # fmt: skip

    def start(self, job: Job, *, replace: bool = False) -> None:
        verb = Start(self.new(job, replace=replace))
        holder = self.model.holder(job.unique, job.identity) if job.unique else None
        if holder is not None and replace and holder.waits:
            started = self.say(verb)
            self.replace(holder, job)
            assert (started.id, started.created) == (holder.id, False)
        elif holder is not None and not (replace and holder.hold == Hold.UNENDED):
            started = self.say(verb)
            assert (started.id, started.created) == (holder.id, False)
        else:
            if holder is not None:
                job.needs[holder.id] = True
            self.start_anew(verb, job)

    def replace(self, holder: Job, job: Job) -> None:
        for name in ("queue", "key", "priority", "rank", "scheduled", "expires", "held_until"):
            setattr(holder, name, getattr(job, name))
        holder.args = job.args
        holder.needs.update(job.needs)
        self.model.place_new(holder)

    def start_anew(self, verb: Start, job: Job) -> None:
        full = self.is_full(job.queue)
        try:
            started = self.say(verb)
        except QueueFull:
            assert full
            return
        assert (started.id, started.created) == (job.id, True)
        job.run = started.run
        self.model.add(job)
        assert not (full and job.status == Status.READY)
        assert started.status == job.status

    def is_full(self, queue: str) -> bool:
        limit = self.model.queues[queue].settings.max_length
        return limit is not None and self.count(queue, Status.READY) >= limit

    def count(self, queue: str, status: Status) -> int:
        jobs = self.model.jobs.values()
        return sum(job.queue == queue and job.status == status for job in jobs)

    @rule(data=st.data(), queue=QUEUES, identity=NAMES)
    def start_for_a_worker(self, data: st.DataObject, queue: str, identity: Identity) -> None:
        worker = data.draw(st.sampled_from(list(self.model.workers.values())))
        job = self.job(queue, identity, "", 0)
        others = self.count(queue, Status.READY)
        full = self.is_full(queue)
        try:
            started = self.say(Start(self.new(job), worker.number))
        except QueueFull:
            assert full
            return
        job.run = started.run
        self.model.add(job)
        if started.claimed is not None:
            assert started.claimed.fence == 1
            assert not others
            assert not self.model.queues[queue].paused
            assert worker.takes(job)
            assert is_plain(self.model, worker, job)
            assert not self.is_alone(worker)
            self.model.start(job, worker.number)

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def cancel_what_waits(self, data: st.DataObject) -> None:
        job = self.some(data, lambda job: job.waits)
        if job is not None:
            self.said += 1
            self.say(CancelRun(job.id, f"cancel-{self.said}", b"", self.clock.now()))
            self.model.end(job, Status.CANCELLED)

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def signal(self, data: st.DataObject) -> None:
        job = self.some(data, lambda job: not job.status.terminal)
        if job is not None:
            self.said += 1
            uid = f"signal-{self.said}"
            self.say(SendSignal(job.id, uid, "go", b"", self.clock.now()))
            job.inbox += 1
            if job.status == Status.PARKED:
                job.status, job.due = Status.READY, None

    # --- what workers do ---

    @precondition(lambda self: len(self.model.workers) < 4)
    @rule(worker=WORKERS)
    def come(self, worker: tuple[Any, Any, Any]) -> None:
        self.enter(*worker)

    @rule(data=st.data(), limit=st.sampled_from([1, 1, 1, 2, 3, 10]), idle=st.booleans())
    def claim(self, data: st.DataObject, limit: int, idle: bool) -> None:
        worker = data.draw(st.sampled_from(list(self.model.workers.values())))
        idle = idle and not self.model.held_by(worker.number)
        found = self.do(self.bench.claim(self.sessions[worker.number], limit, idle=idle))
        claimed = [self.model.jobs[run.id] for run in found.runs]
        if self.is_alone(worker):
            assert claimed == []
            return
        if check_alone(self.model, worker, idle, claimed):
            self.alone[worker.number] = claimed[0]
        else:
            check_claim(self.model, worker, limit, claimed)
        could = list(self.turns.could(worker))
        for job, run in zip(claimed, found.runs, strict=True):
            self.model.start(job, worker.number)
            assert (run.run, run.fence, run.args) == (job.run, job.fence, job.args)
            assert (run.attempts, run.crashes) == (job.attempts, job.crashes)
            assert (len(run.journal), len(run.inbox)) == (job.records, job.inbox)
        if claimed and claimed[0].crashes < ALONE_FROM:
            self.turns.taken(worker, could, claimed)

    def is_alone(self, worker: Worker) -> bool:
        """Whether it has a run that is executed alone, and takes nothing beside it."""
        job = self.alone.get(worker.number)
        return job is not None and job.holder == worker.number

    @precondition(is_working)
    @rule(
        data=st.data(), status=st.sampled_from([Status.COMPLETED, Status.COMPLETED, Status.FAILED])
    )
    def finish(self, data: st.DataObject, status: Status) -> None:
        job = self.held(data)
        self.say(Finish(job.run, job.fence, status, b"", self.clock.now()))
        self.model.end(job, status)

    @precondition(is_working)
    @rule(data=st.data(), delay=DELAYS)
    def fail_and_retry(self, data: st.DataObject, delay: float | None) -> None:
        job = self.held(data)
        job.attempts, job.crashes = job.attempts + 1, 0
        self.reschedule(job, delay, attempts=job.attempts, error=b"error")

    @precondition(is_working)
    @rule(data=st.data(), delay=DELAYS)
    def retry_later(self, data: st.DataObject, delay: float | None) -> None:
        job = self.held(data)
        job.crashes = 0 if job.written == job.fence else job.crashes
        self.reschedule(job, delay)

    @precondition(is_working)
    @rule(data=st.data())
    def hand_back_unstarted(self, data: st.DataObject) -> None:
        job = self.held(data)
        job.crashes = 0 if job.written == job.fence else job.crashes
        self.model.unstarted(job)
        self.reschedule(job, None, unstarted=True)

    def reschedule(self, job: Job, delay: float | None, **more: Any) -> None:
        due = None if delay is None else self.clock.now() + delay
        self.say(Reschedule(job.run, job.fence, due, **more))
        self.model.give_up(job, due)

    @precondition(is_working)
    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        self.write_of(self.held(data))

    def write_of(self, job: Job, absorbed: tuple[int, ...] = ()) -> None:
        record = self.bench.record(job.records, f"{job.records}")
        self.say(Append(job.run, job.fence, [record], absorbed=absorbed))
        job.records, job.written = job.records + 1, job.fence

    @precondition(is_working)
    @rule(data=st.data(), delay=DELAYS)
    def park(self, data: st.DataObject, delay: float | None) -> None:
        job = self.held(data)
        due = None if delay is None else self.clock.now() + delay
        rows = self.do(self.bench.park(job.run, job.fence, due))
        assert len(rows) == job.inbox
        if rows:
            self.write_of(job, tuple(row.id for row in rows))
            job.inbox = 0
        else:
            job.status, job.due, job.holder, job.crashes = Status.PARKED, due, None, 0

    @precondition(lambda self: len(self.model.workers) > 1)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        worker = self.another(data)
        for job in self.model.held_by(worker.number):
            self.model.give_up(job, None)
        self.do(self.sessions.pop(worker.number).close())

    @precondition(lambda self: not self.over_tcp and len(self.model.workers) > 1)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """A worker of another process is dead, which the next one to come finds out."""
        worker = self.another(data)
        self.model.crash(worker.number)
        db = sqlite3.connect(self.path, isolation_level=None)
        row = ("a process that is gone", "another boot", worker.number)
        db.execute("UPDATE workers SET token = ?, boot = ? WHERE worker = ?", row)
        db.close()
        self.enter(worker.queues, worker.serves, worker.limits)
        self.do(self.sessions.pop(worker.number).close())

    def another(self, data: st.DataObject) -> Worker:
        numbers = [number for number in self.model.workers if number != self.first.number]
        return self.model.workers.pop(data.draw(st.sampled_from(numbers)))

    @precondition(lambda self: not self.over_tcp)
    @rule()
    def restart(self) -> None:
        for job in self.model.jobs.values():
            if job.holder is not None:
                self.model.give_up(job, None)
        self.said = max(self.said, self.bench.count)
        self.do(self.opened.aclose())
        self.model.workers.clear()
        self.turns.clear()
        self.alone.clear()
        self.open()

    # --- what operators do ---

    @rule(queue=QUEUES, chosen=SETTINGS)
    def configure(self, queue: str, chosen: QueueSettings) -> None:
        self.say(SetQueue(queue, chosen))
        self.model.configure(queue, chosen)
        self.turns.clear()
        self.move(1 / 64)  # so that nothing else happens at the very same time

    @rule(queue=QUEUES, span=st.sampled_from([None, 3.0]))
    def pause(self, queue: str, span: float | None) -> None:
        one = self.model.queues[queue]
        one.paused, one.until = True, None if span is None else self.clock.now() + span
        self.say(PauseQueue(queue, one.until))

    @rule(queue=QUEUES)
    def resume(self, queue: str) -> None:
        self.say(ResumeQueue(queue))
        self.model.queues[queue].paused, self.model.queues[queue].until = False, None

    @rule(queue=QUEUES, limit=st.sampled_from([1, 3, 100]))
    def purge(self, queue: str, limit: int) -> None:
        waiting = {job.id for job in self.model.jobs.values() if job.queue == queue and job.waits}
        count = self.say(PurgeQueue(queue, limit, b"", self.clock.now()))
        assert count == min(limit, len(waiting))
        found = self.do(self.bench.store.list_runs(RunFilter(["cancelled"], limit=10_000)))
        cancelled = waiting & {info.id for info in found}
        assert len(cancelled) <= count
        self.model.purge(queue, cancelled)

    # --- time ---

    @rule(seconds=st.sampled_from([0.25, 1.0, 1.0, 5.0, 60.0]))
    def move_clock(self, seconds: float) -> None:
        self.move(seconds)

    @rule()
    def set_clock_back(self) -> None:
        back = 0.5
        ends = [one.until for one in self.model.queues.values() if one.until is not None]
        if not any(end - back <= self.clock.now() for end in ends):
            self.move(-back)

    def move(self, seconds: float) -> None:
        self.clock.move(seconds)
        self.do(self.bench.claim(self.sessions[self.first.number], 0))
        self.model.move(self.clock.now())

    # --- what must hold at any time ---

    @invariant()
    def all_runs_are_as_the_model_says(self) -> None:
        if not hasattr(self, "first"):
            return
        self.turns.forget()
        infos = self.do(self.bench.store.list_runs(RunFilter(limit=10_000)))
        found = {info.id: info for info in infos}
        assert found.keys() == self.model.jobs.keys()
        for id, job in self.model.jobs.items():
            info = found[id]
            assert (Status(info.status), info.due) == (job.status, job.due), job
            assert (info.run, info.fence, info.worker) == (job.run, job.fence, job.holder), job
            assert (info.attempts, info.crashes) == (job.attempts, job.crashes), job
            assert (info.priority, info.key or "", info.args) == (
                job.priority,
                job.key,
                job.args,
            ), job

    @invariant()
    def queues_are_counted_right(self) -> None:
        if not hasattr(self, "first"):
            return
        for row in self.do(self.bench.store.read(ListQueues())):
            running = self.count(row.queue, Status.RUNNING)
            assert (row.running, row.ready) == (running, self.count(row.queue, Status.READY))


class RemoteQueueLives(QueueLives):
    """Over TCP."""

    over_tcp = True


@pytest.mark.blocking  # a state machine is synchronous
@pytest.mark.parametrize("lives", [QueueLives, RemoteQueueLives])
def test_random_lives_of_queues_are_as_the_model_says(
    lives: type[QueueLives], scale: Scale
) -> None:
    run_state_machine_as_test(
        lives,
        settings=settings(
            max_examples=scale(25, 400),
            stateful_step_count=scale(40, 80),
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )

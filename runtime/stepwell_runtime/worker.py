"""A worker: claims runs, executes them, and gives them back."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections import OrderedDict, deque
from collections.abc import Sequence

from stepwell_queue.clock import Clock
from stepwell_queue.contract import (
    Claim,
    Claimed,
    ClaimResult,
    Hello,
    Identity,
    InboxRow,
    Record,
    Reschedule,
    SayState,
    Session,
    Store,
    WorkerState,
)
from stepwell_queue.errors import StoreUnavailable
from stepwell_runtime.activation import Activation
from stepwell_runtime.activation._steps import LocalSteps
from stepwell_runtime.activation._work import QUEUED, StepWork
from stepwell_runtime.batch import ALONE_FROM, Batches
from stepwell_runtime.codec import Codec
from stepwell_runtime.core.guard import GuardLoop
from stepwell_runtime.definitions import StepDefinition, TaskDefinition, WorkflowDefinition
from stepwell_runtime.executors import Executors
from stepwell_runtime.job import Job
from stepwell_runtime.lag import clock
from stepwell_runtime.lanes import Lanes
from stepwell_runtime.launch import Launcher
from stepwell_runtime.log import log
from stepwell_runtime.processes import Processes
from stepwell_runtime.queues import Declarations
from stepwell_runtime.recycling import Recycling
from stepwell_runtime.worker_settings import WorkerSettings

_stdlib_log = logging.getLogger("stepwell.worker")  # for when that one raises

LARGEST_CLAIM = 256
HARD_LIMIT = 2.0


class Worker:
    """Serves its queues from `start` to `stop`."""

    def __init__(
        self,
        store: Store,
        settings: WorkerSettings,
        *,
        app: object,
        codec: Codec,
        clock: Clock,
        launcher: Launcher,
    ) -> None:
        self.store, self.settings, self.app = store, settings, app
        self.codec, self.clock, self.launcher = codec, clock, launcher
        self.declarations = Declarations(store)
        self.chance = settings.chance
        self.trusts_clients = settings.trusts_clients
        self.held: dict[int, Activation | Job] = {}
        self.context = contextvars.Context()
        self.executors: Executors
        self.loop: asyncio.AbstractEventLoop
        self.lanes: Lanes
        self.guard = GuardLoop()
        self.batches = Batches(self)
        self.recycling = Recycling(self, settings.max_jobs, settings.max_memory)
        # what is to be delivered; None: the code has not begun
        self.committed: list[tuple[Activation, Sequence[Record] | None]] = []
        self.zombies: list[object] = []
        self._live: OrderedDict[int, Activation] = OrderedDict()
        self._live_fences: dict[int, int] = {}
        self._session: Session | None = None
        self.free_steps = settings.step_concurrency or settings.concurrency
        self.step_queue: deque[tuple[LocalSteps, StepWork]] = deque()
        self._reserved = 0
        self._leaving = 0
        self._claiming = False
        self._scheduled = False
        self._hungry = False
        self._serving = self._stopping = False
        self._alone: int | None = None
        self._alone_waits = False
        self._quiet = asyncio.Event()
        self._life = contextlib.AsyncExitStack()

    # --- life ---

    async def start(self) -> None:
        """Register with the store, enter the lifespan, and begin to claim.

        Raises StepwellError if it may have less memory than it has.
        """
        self.loop = asyncio.get_running_loop()
        self.executors = Executors(
            self.settings.threads,
            Processes(self.settings.child_processes, self.codec),
            tuple(self.settings.middleware),
        )
        self.lanes = Lanes(self.loop, self._flush)
        settings = self.settings
        hello = Hello(
            settings.name, list(settings.queues), sorted(settings.definitions), settings.limits
        )
        self._session = session = await self.store.open_session(hello, self)
        try:
            if settings.lifespan is not None:
                await self._life.enter_async_context(settings.lifespan())
            self.recycling.start()
        except BaseException:
            await self._end()
            raise
        self.context = contextvars.copy_context()
        self._serving = True
        self._say(WorkerState.RUNNING)
        session.offer(settings.concurrency)
        self._hungry = True
        self._claim()

    def _say(self, state: WorkerState) -> None:
        if self._session is not None:
            with contextlib.suppress(StoreUnavailable):  # nothing depends on it
                self.store.submit(SayState(self._session.worker, int(state)), _ignore)

    async def retire(self) -> None:
        """Take nothing more, and leave the store once what is held has ended or parked."""
        self._take_no_more()
        self.batches.begin_all()  # no more can join
        await self._until_empty(None)
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _take_no_more(self) -> None:
        self._stopping = True
        if self._session is not None:
            self._session.offer(0)
        if self.held:  # else it has stopped before anybody could see it
            self._say(WorkerState.STOPPING)

    async def stop(self, grace: float | None = None) -> None:
        """Stop claiming, let running steps end within `grace` seconds (None.

        As set), hand the rest back.
        """
        if self._session is None:
            return
        self.recycling.stop()
        self._take_no_more()
        grace = self.settings.grace if grace is None else grace
        for one in list(self.held.values()):
            one.leave()
        if self.held:
            log.info("worker_stopping", runs=len(self.held), waits_for=self._waits_for())
        await self._until_empty(grace)
        with contextlib.suppress(TimeoutError):  # what a claim brings now is handed back, too
            async with asyncio.timeout(HARD_LIMIT):
                await self._claim_over()
        if self.held:
            names = self._waits_for()
            if names or grace:  # without grace, runs that only wait for the store are as expected
                log.warning("steps_outlived_grace", steps=names, grace=grace, runs=len(self.held))
            for one in list(self.held.values()):
                one.hand_back()
            await self._until_empty(HARD_LIMIT)
        for one in list(self.held.values()):
            one.lost()
        await self._end()

    def _waits_for(self) -> list[str]:
        return sorted({name for one in self.held.values() for name in one.running_names})

    async def abandon(self) -> None:
        """Hand back at once, after a stop that was cut short; after a whole one, do nothing."""
        try:
            for one in list(self.held.values()):
                one.hand_back()
        finally:
            await self._end()

    async def _end(self) -> None:
        session, self._session = self._session, None
        try:
            if session is not None:
                await session.close()
        finally:
            # Whatever happens, no code is left to the garbage collector, which would run it.
            for one in list(self.held.values()):
                one.lost()
            for activation in self._live.values():
                activation.discard()
            self._live.clear()
            self._live_fences.clear()
            self.lanes.close()
            try:
                await self.executors.processes.close()
            finally:
                await self._life.aclose()

    async def _until_empty(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                while self.held or self._claiming:
                    self._quiet.clear()
                    await self._quiet.wait()
        except TimeoutError:
            return

    async def drain(self) -> None:
        """Return once nothing that this worker could do now is left.

        Runs that wait for a time or a signal stay parked.
        """
        while True:
            while self.held or self._claiming or self._scheduled or self._reserved:
                self._quiet.clear()
                await self._quiet.wait()
            self._hungry = True
            self._wake()
            await self._claim_over()
            if not self.held:
                return

    async def _claim_over(self) -> None:
        while self._claiming or self._scheduled:
            self._quiet.clear()
            await self._quiet.wait()

    # --- claims ---

    def on_ready(self) -> None:
        self._hungry = True
        self._wake()

    def _wake(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._claim_later)

    def _claim_later(self) -> None:
        self._scheduled = False
        self._claim()

    def _claim(self) -> None:
        session = self._session
        free = min(self._places, LARGEST_CLAIM)
        if (
            session is None
            or not self._serving
            or self._stopping
            or self._claiming
            or not self._hungry
            or free <= 0
            or self._blocked
        ):
            self._quiet.set()
            return
        self._claiming = True
        self._hungry = False
        idle = not self.held and not self._reserved
        try:
            self.store.submit(Claim(session.worker, free, self._live_fences, idle), self._claimed)
        except StoreUnavailable as closed:
            self._claimed(closed)

    def leaving(self) -> None:
        """A job has ended, and gives its place up when that is stored, which is about to be asked.

        What is claimed for that place is claimed in the same transaction.
        """
        self._leaving += 1
        if self._hungry:
            self._wake()

    def left(self, job: Job) -> None:
        self._leaving -= 1
        self.released(job)

    def _flush(self) -> None:
        if self._leaving and self._hungry:
            self._claim()
        self.store.flush()

    @property
    def _blocked(self) -> bool:
        """A run that killed workers is held alone, or waits for the worker to be empty."""
        return self._alone is not None or (self._alone_waits and bool(self.held))

    def _claimed(self, answer: ClaimResult | Exception) -> None:
        self._claiming = False
        if isinstance(answer, Exception):
            if self._session is not None:
                log.error("claim_failed", error=str(answer))
        else:
            self._take(answer)
        if self._hungry:
            self._wake()
        self._quiet.set()

    def _take(self, result: ClaimResult) -> None:
        self._hungry = self._hungry or result.more
        self._alone_waits = result.alone_waiting
        for claimed in result.runs:
            try:
                self.accept(claimed)
            except Exception:  # noqa: BLE001 - as in `on_answered`
                _stdlib_log.exception("run %s: its log raised", claimed.id)

    @property
    def _places(self) -> int:
        places = self.settings.concurrency - len(self.held) - self._reserved + self._leaving
        return min(places, self.recycling.left - self._reserved)

    @property
    def full(self) -> bool:
        return self._places <= 0

    def places_for(self, queue: str) -> int:
        """Return how many runs of a queue this worker has at once."""
        concurrency = self.settings.concurrency
        return min(concurrency, self.settings.limits.get(queue, concurrency))

    def reserve(self, identity: Identity, queue: str) -> int | None:
        """Reserve a place for a run about to be started here.

        None when it must go through the queue.
        """
        session = self._session
        if session is None or self._stopping or self._blocked or queue not in self.settings.queues:
            return None
        if (
            len(self.held) + self._reserved >= self.settings.concurrency
            or self._reserved >= self.recycling.left
            or identity not in self.settings.definitions
            or queue in self.settings.limits  # which the store keeps to
        ):
            return None
        self._reserved += 1
        return session.worker

    def unreserve(self, claimed: Claimed | None) -> None:
        """Give a reserved place back, to the run that was started for it if there is one."""
        self._reserved -= 1
        if claimed is not None:
            self.accept(claimed)
        self._place_free()

    def _place_free(self) -> None:
        """Claim what had to wait for a place."""
        if self._hungry or (self._alone_waits and not self.held):
            self._hungry = True
            self._wake()
        if not self.held:
            self._quiet.set()

    def accept(self, claimed: Claimed) -> None:
        """Take a claimed run in hand."""
        if self._stopping:
            self._return(claimed)
            return
        self.recycling.took()
        activation = self._live.pop(claimed.run, None)
        self._live_fences.pop(claimed.run, None)
        if claimed.live and activation is None:
            # Its coroutine was evicted while the claim was on its way, and its journal left out.
            self._return(claimed)
            return
        if claimed.crashes >= ALONE_FROM:
            self._alone = claimed.run
        if activation is not None and claimed.live:
            self.held[claimed.run] = activation
            activation.safely(activation.resume, claimed)
            return
        if activation is not None:
            activation.discard()
        definition = self.settings.definitions.get(
            Identity(claimed.kind, claimed.name, claimed.version)
        )
        if isinstance(definition, WorkflowDefinition):
            fresh = self.held[claimed.run] = Activation(self, claimed, definition)
            fresh.start(claimed)
        elif isinstance(definition, (TaskDefinition, StepDefinition)):
            job = self.held[claimed.run] = Job(self, claimed, definition)
            job.start()
        else:
            if self._alone == claimed.run:
                self._alone = None
            log.error("no_code", run=claimed.id, name=claimed.name, version=claimed.version)
            self._return(claimed)

    def _return(self, claimed: Claimed) -> None:
        """Give back what was claimed and not begun."""
        self.store.submit(Reschedule(claimed.run, claimed.fence, None, unstarted=True), _ignore)

    # --- what activations say ---

    def released(self, one: Activation | Job) -> None:
        """A run is no longer held."""
        self.held.pop(one.run, None)
        if self._alone == one.run:
            self._alone = None
            self._hungry = True  # for what had to wait beside it
        self._place_free()

    def parked(self, activation: Activation) -> None:
        """Keep the coroutine of a run that parked, within bounds."""
        run = activation.run
        self.released(activation)
        if self._stopping or not self.settings.cache:
            self._drop(activation)
            return
        self._live[run] = activation
        self._live_fences[run] = activation.fence
        while len(self._live) > self.settings.cache:
            oldest, dropped = self._live.popitem(last=False)
            del self._live_fences[oldest]
            self._drop(dropped)

    def _drop(self, activation: Activation) -> None:
        if self._session is not None:
            self._session.dropped(activation.run)
        activation.discard()

    def bury(self, zombies: list[object], run_id: str) -> None:
        """Keep coroutines that refuse to die, so that the garbage collector does not run them."""
        if zombies:
            self.zombies += zombies
            log.error("coroutine_will_not_die", run=run_id, kept=len(self.zombies))

    def run_queued_step(self) -> None:
        """Give a place that has become free to the first step that still wants one."""
        while self.step_queue and self.free_steps > 0:
            steps, work = self.step_queue.popleft()
            # To look for those that were cancelled as they are would cost the square of their
            # number; so they stay until it is their turn.
            if work.stage is QUEUED:
                steps.run_queued(work)

    # --- what the store says ---

    def on_answered(self) -> None:
        """Deliver what has been committed, and have the runs go on.

        The code of all runs in one go, since to take the loop's place costs more than most turns;
        of each run one write at a time.
        """
        committed = self.committed
        while committed:
            turn: dict[Activation, Sequence[Record] | None] = {}
            later: list[tuple[Activation, Sequence[Record] | None]] = []
            for one in committed:
                activation, records = one
                if activation in turn:
                    later.append(one)
                else:
                    turn[activation] = records
            committed[:] = later
            self.guard.enter()
            try:
                now = clock()
                for activation, records in turn.items():
                    if records is None:
                        now = activation.deliver(None, now)
                    elif records:
                        now = activation.deliver(records[0], now)
            finally:
                self.guard.leave()
            for activation, records in turn.items():
                try:
                    activation.proceed(records)
                except Exception:  # noqa: BLE001 - only a log that raises; the others must go on
                    _stdlib_log.exception("run %s: its log raised", activation.id)

    def on_claimed(self, result: ClaimResult) -> None:
        """Take what was claimed for places that were free; what started meanwhile goes first."""
        places = max(self._places, 0) if not self._blocked else 0
        for claimed in result.runs[places:]:
            self._hungry = True
            self._return(claimed)
        self._take(ClaimResult(result.runs[:places], result.more, result.alone_waiting))
        self._place_free()

    def holds(self) -> dict[int, int]:
        return {run: one.fence for run, one in self.held.items()}

    def keeps(self) -> dict[int, int]:
        return dict(self._live_fences)

    def on_inbox(self, rows: Sequence[InboxRow]) -> None:
        told: dict[int, list[InboxRow]] = {}
        for row in rows:
            told.setdefault(row.run, []).append(row)
        for run, its_rows in told.items():
            one = self.held.get(run)
            if one is not None:
                one.told(its_rows)

    def on_lost(self, runs: Sequence[int]) -> None:
        for run in runs:
            one = self.held.get(run)
            if one is not None:
                one.lost()
            activation = self._live.pop(run, None)
            if activation is not None:
                del self._live_fences[run]
                activation.discard()


def _ignore(answer: object) -> None:
    """The store takes the run back by itself when this cannot be written."""

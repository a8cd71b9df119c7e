"""The app of a test: a store of its own, a worker in this process, and time that jumps."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from stepwell import _options as check
from stepwell._app.app import Stepwell, workflow_or_task_call
from stepwell._app.handles import Run
from stepwell._app.settings import DEFAULT_VALUE_SIZE, Lifespan
from stepwell._app.worker import Worker, worker_options
from stepwell._calls import Call, TaskCall, WorkflowCall, hears_forgotten
from stepwell.testing._clock import VirtualClock
from stepwell.testing._ids import KitIds
from stepwell.testing._probe import Delays, Execution, Probe
from stepwell.testing._store import KitStore, open_kit_store, scratch
from stepwell.testing._stubbing import Stubbing
from stepwell.testing._stubs import Stubs
from stepwell.testing._timing import Timing
from stepwell_queue.contract import Identity, Store
from stepwell_runtime.definitions import Definition, Seconds
from stepwell_runtime.middleware import Middleware

if TYPE_CHECKING:
    from stepwell_runtime import worker as runtime

R = TypeVar("R")
T = TypeVar("T")

START = datetime(2025, 1, 1, tzinfo=UTC)


class CodeIsWrong(AssertionError):
    """What the kit has found to be wrong with the code that it ran."""


class NeverAwaited(CodeIsWrong):
    """A workflow built a call and neither awaited it nor handed it on."""


class TestApp(Stubbing, Timing, Stepwell):
    """A Stepwell with a store of its own, a worker in this process, and virtual time.

    Time stands still, except while the test waits: for a result, or with `advance`. Then, whenever
    nothing runs, it jumps to what is due next. `include`: the modules whose code it serves; None =
    all. `start`: its first moment; None = 2025-01-01 UTC. `queues`: served besides those that its
    code is declared for. `schedules`: whether `@schedule` ticks. `cache`: parked runs whose code
    is kept in memory; 0 = each is replayed whenever it goes on. `seed`: of the jitter of retries.
    `patience`: seconds of real time after which a wait for what cannot come fails with NothingDue.
    The rest is as for Stepwell. Use it with `async with`, once.
    """

    __test__ = False  # pytest shall not take it for a class of tests

    def __init__(
        self,
        *,
        include: Iterable[ModuleType | str] | None = None,
        start: datetime | None = None,
        lifespan: Lifespan | None = None,
        middleware: Sequence[Middleware] = (),
        max_value_size: int = DEFAULT_VALUE_SIZE,
        queues: Sequence[str] = (),
        concurrency: int = 100,
        schedules: bool = False,
        cache: int = 1000,
        seed: int = 0,
        patience: Seconds = 2.0,
    ) -> None:
        self._first_moment = check.wall_time(START if start is None else start, "start=")
        patient = check.span(patience, "patience") or 0.0
        self.virtual = VirtualClock(self._first_moment, patience=patient)
        self._stubs = Stubs()
        self._probe = Probe(self.virtual, self._first_moment, self._stubs, self._complain)
        super().__init__(
            "test.db",
            lifespan=lifespan,
            include=include,
            durability="process",
            max_value_size=max_value_size,
            middleware=[*middleware, self._probe],
            clock=self.virtual,
            ids=KitIds(1, nonces_of_life=False),
        )
        self._file: Path | None = None
        self._life = 1
        self._queues, self._concurrency, self._cache = queues, concurrency, cache
        self._schedules, self._seed = schedules, seed
        self._served: dict[Identity, Definition] = {}
        self._complaints: list[str] = []
        self._doing: set[asyncio.Task[None]] = set()
        self._leave: AsyncExitStack

    def __repr__(self) -> str:
        return "TestApp()"

    # --- its life ---

    async def __aenter__(self) -> Self:
        self._leave = AsyncExitStack()
        async with AsyncExitStack() as stack:
            self.virtual.attach()
            stack.callback(self.virtual.detach)
            hears_forgotten.append(self._forgotten)
            stack.callback(hears_forgotten.remove, self._forgotten)
            if self._file is None:
                folder = await asyncio.to_thread(scratch)
                stack.push_async_callback(asyncio.to_thread, shutil.rmtree, folder)
                self._file = folder / "test.db"
            await super().__aenter__()
            stack.push_async_callback(super().__aexit__, None, None, None)
            self._served = dict(super().definitions())
            self._serve_stubs()
            self._worker = self._make_worker()
            await stack.enter_async_context(self._worker)
            self._running.chance = Random(self._seed)
            self.virtual.busy, self.virtual.hurry = self._busy, self._hurry
            self._leave = stack.pop_all()
        return self

    def _make_worker(self) -> Worker:
        queues = {one.queue or "default" for one in self._served.values()} | {"default"}
        options = worker_options(
            queues=sorted(queues.union(self._queues)),
            concurrency=self._concurrency,
            cache=self._cache,
            grace=0.0,
        )
        return Worker(self, options, None if self._schedules else self._served)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._doing:
            task.cancel()
        await asyncio.gather(*self._doing, return_exceptions=True)
        await self._leave.aclose()
        if error is None:
            self.check()

    async def _open_store(self) -> Store:
        assert self._file is not None
        store = await open_kit_store(
            self._file, self.virtual, KitIds(self._life, nonces_of_life=True)
        )
        store.check = self.check
        self._store = store
        return store

    @property
    def _running(self) -> runtime.Worker:
        worker = self._worker._worker
        assert worker is not None
        return worker

    @property
    def kit_store(self) -> KitStore:
        """The store, while the app is open; its interface may change."""
        return self._store

    def _busy(self) -> bool:
        scheduler = self._worker._scheduler
        return (
            any(not self.virtual.waits(task) for task in self._doing)
            or self._probe.running > 0
            or self._store.busy
            or (scheduler is not None and scheduler._reading.borrowed_tokens > 0)
        )

    def _hurry(self) -> bool:
        """Begin what only waits for more to come in real time; whether there was anything."""
        batches = self._running.batches
        gathered = bool(batches._gathering)
        batches.begin_all()
        return gathered

    def definitions(self) -> dict[Identity, Definition]:
        """Return what its workers serve: the code that is included, or what stands in for it."""
        return self._served or super().definitions()

    # --- how crash tests have several apps, one after another, on one file ---

    def go_on(self, file: Path, life: int, stubs: Stubs, executed: list[Execution]) -> None:
        """Have this app, which is not open yet, be the next process that opens a file."""
        self._file, self._life = file, life
        self._ids = KitIds(life, nonces_of_life=False)
        self._stubs = self._probe.stubs = stubs
        self._probe.executed = executed

    def disturb(self, delays: Delays | None, late: Callable[[], float]) -> None:
        """Have executions take time, and timers be late."""
        self._probe.delays, self.virtual.late = delays, late

    async def die(self) -> None:
        """Stop everything as the death of the process would: nothing more is written."""
        running = self._running
        for one in list(running.held.values()):
            one.lost()
        await self._store.close()
        await running.abandon()

    # --- what is found to be wrong ---

    def _complain(self, problem: str) -> None:
        self._complaints.append(problem)

    def _forgotten(self, call: Call[Any], place: str) -> None:
        self._complain(
            f"{place}: the {call.word} call {call.definition.name}(…) was built in a workflow and "
            "never awaited: put await before it, or hand it to parallel, race, compensate or start"
        )

    def check(self) -> None:
        """Raise AssertionError if code was found to be wrong: calls never awaited, and so on."""
        complaints, self._complaints = self._complaints, []
        if complaints:
            forgotten = any("never awaited" in one for one in complaints)
            raise (NeverAwaited if forgotten else CodeIsWrong)("\n".join(complaints))

    # --- running ---

    async def run(
        self,
        call: WorkflowCall[R] | TaskCall[R],
        /,
        *,
        id: str | None = None,
        timeout: Seconds | None = None,
    ) -> R:
        """Start a call and return its result, in virtual time. Raises what `Run.result` raises.

        `timeout` in seconds of real time, None = no limit.
        """
        given = workflow_or_task_call(call, "run")
        chosen = given if id is None else given.with_options(id=id)
        definition: Definition = chosen.definition
        started = await self.engine.start(definition, chosen.args, chosen.kwargs, chosen.options)
        run: Run[R] = Run(self, started.id, definition.result_type)
        return await run.result(timeout=timeout)

"""A worker as users hold it: around a block, or serving until it is told to stop."""

from __future__ import annotations

import asyncio
import functools
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from stepwell import _options as check
from stepwell._app.log import log
from stepwell._app.retention import keep_pruned
from stepwell._app.shutdown import StopRequests
from stepwell._queues import Queue, names_of
from stepwell_queue.errors import StepwellError
from stepwell_runtime.definitions import Definition, Seconds
from stepwell_runtime.queues import DeclaredQueue, settled
from stepwell_runtime.tuning import worker_process

if TYPE_CHECKING:
    from stepwell._app.app import Stepwell
    from stepwell_queue.contract import Identity
    from stepwell_runtime import worker as runtime
    from stepwell_runtime.engine import Engine
    from stepwell_runtime.schedules.scheduler import Scheduler


Queues = (
    Sequence[str | Queue]
    | Mapping[str, int | None]
    | Mapping[Queue, int | None]
    | Mapping[str | Queue, int | None]
)
"""The queues of a worker; a mapping says of each how many of its runs it takes at once."""


@dataclass(frozen=True)
class WorkerOptions:
    queues: tuple[str, ...]
    declared: tuple[DeclaredQueue, ...]
    limits: dict[str, int]
    concurrency: int
    step_concurrency: int | None
    threads: int
    child_processes: int | None
    cache: int
    grace: float
    max_jobs: int | None
    max_memory: int | None
    name: str | None


def worker_options(
    *,
    queues: Queues = ("default",),
    concurrency: int = 100,
    step_concurrency: int | None = None,
    threads: int = 32,
    child_processes: int | None = None,
    cache: int = 1000,
    grace: Seconds = 10.0,
    max_jobs: int | None = None,
    max_memory: int | None = None,
    name: str | None = None,
) -> WorkerOptions:
    """Check the settings of a worker."""
    if isinstance(queues, (str, Queue)):
        raise TypeError(f"queues= takes a list of names: write queues=[{queues!r}]")
    if not queues:
        raise ValueError("queues= must name at least one queue")
    names, declared = names_of(queues)
    limits = dict(zip(names, queues.values(), strict=True)) if isinstance(queues, Mapping) else {}
    for queue, most in limits.items():
        check.whole(most, f"the limit of {queue!r} in queues", 1, 100_000)
    check.whole(concurrency, "concurrency", 1, 100_000)
    check.whole(step_concurrency, "step_concurrency", 1, 100_000)
    check.whole(threads, "threads", 1, 10_000)
    check.whole(child_processes, "child_processes", 1, 10_000)
    check.whole(cache, "cache", 0)
    check.whole(max_jobs, "max_jobs", 1)
    check.whole(max_memory, "max_memory", 1)
    check.text(name, "name")
    limit = check.span(grace, "grace")
    if limit is None:
        raise TypeError("grace= takes seconds; 0 = do not wait for running steps")
    return WorkerOptions(
        tuple(dict.fromkeys(names)),
        declared,
        {queue: most for queue, most in limits.items() if most and most < concurrency},
        concurrency,
        step_concurrency,
        threads,
        child_processes,
        cache,
        limit,
        max_jobs,
        max_memory,
        name,
    )


class Worker:
    """Executes runs of an app's store."""

    def __init__(
        self,
        app: Stepwell,
        options: WorkerOptions,
        serving: dict[Identity, Definition] | None = None,
    ) -> None:
        self._app, self._options, self._serving = app, options, serving
        self._worker: runtime.Worker | None = None
        self._engine: Engine
        self._pruning: asyncio.Task[None] | None = None
        self._scheduler: Scheduler | None = None

    async def __aenter__(self) -> Self:
        if self._worker is not None:
            raise StepwellError("this worker is running already: make another with app.worker()")
        app, options = self._app, self._options
        lifespan = app.settings.lifespan
        from stepwell_runtime.worker_settings import WorkerSettings

        settings = WorkerSettings(
            definitions=app.definitions() if self._serving is None else self._serving,
            queues=options.queues,
            limits=options.limits,
            concurrency=options.concurrency,
            step_concurrency=options.step_concurrency,
            threads=options.threads,
            child_processes=options.child_processes,
            middleware=app.settings.middleware,
            lifespan=None if lifespan is None else functools.partial(lifespan, app),
            cache=options.cache,
            grace=options.grace,
            max_jobs=options.max_jobs,
            max_memory=options.max_memory,
            name=options.name or f"{platform.node()}:{os.getpid()}",
        )
        engine = app.engine
        worker = engine.worker(settings)
        for_all = self._serving is None  # and not for the runs of one `app.run`
        declared = settled(
            (
                *(one.declared for one in settings.definitions.values()),
                *(s.options.declared for d in settings.definitions.values() for s in d.schedules),
                *options.declared,
            )
        )
        for queue in options.queues:
            if queue in declared:
                await engine.declarations.say(declared[queue])
        if for_all:
            await engine.schedules.declare(settings.definitions, options.queues)
        await worker.start()
        engine.attach(worker)
        self._worker, self._engine = worker, engine
        if for_all:
            self._scheduler = engine.schedules.scheduler(worker.chance)
        if for_all or app.settings.retention is not None:
            served = list(settings.definitions.values())
            self._pruning = asyncio.create_task(keep_pruned(app, app.settings.retention, served))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        worker = self._running
        self._engine.detach(worker)  # not the app's, which may be closed by now
        try:
            if self._scheduler is not None:
                await self._engine.schedules.stop(self._scheduler)
                self._scheduler = None
            if self._pruning is not None:
                self._pruning.cancel()
                await asyncio.wait([self._pruning])
                self._pruning = None
            await worker.stop()
        finally:
            self._worker = None
            await worker.abandon()

    @property
    def _running(self) -> runtime.Worker:
        if self._worker is None:
            raise StepwellError("the worker is not running: use it inside `async with worker:`")
        return self._worker

    async def drain(self) -> None:
        """Wait until no work of its queues is ready or running; what waits stays parked."""
        await self._running.drain()

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then stop within `grace`; a second signal stops at once.

        Returns also once the worker has had its `max_jobs` or `max_memory`. Opens the app if it is
        not open.
        """
        await self._serve(lambda _: None)

    async def _serve(self, serves: Callable[[StopRequests], None]) -> None:
        """Do as `run()`, and call `serves` once work can be claimed."""
        async with AsyncExitStack() as stack:
            if not self._app.opened:
                await stack.enter_async_context(self._app)
            stack.enter_context(worker_process())
            requests = stack.enter_context(StopRequests())
            async with self:
                serves(requests)
                await self._until_asked(requests)
                await self._stop(requests)

    async def _until_asked(self, requests: StopRequests) -> None:
        """Wait for a request to stop, or until the worker has stopped by itself."""
        reasons = [
            asyncio.create_task(event.wait())
            for event in (requests.first, self._running.recycling.over)
        ]
        try:
            await asyncio.wait(reasons, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for reason in reasons:
                reason.cancel()

    async def _stop(self, requests: StopRequests) -> None:
        # In this task, as the start was: a lifespan may hold a task group, which needs that.
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as patience:
                requests.on_second(lambda: patience.reschedule(loop.time()))
                await self._running.stop()
        except TimeoutError:
            log().warning("stopped_at_once", hint="steps that were running will be repeated")
            await self._running.stop(0.0)

"""The app that owns its loop thread, and the function that runs one call."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self, TypeVar

from stepwell._app.app import Stepwell
from stepwell._app.settings import DEFAULT_VALUE_SIZE, Durability, Lifespan
from stepwell._app.worker import Queues, Worker
from stepwell._blocking.calls import BlockingCalls
from stepwell._blocking.loop_thread import Held, LoopThread
from stepwell._blocking.waiting import Work, outcome, running_loop, submit, wait_for
from stepwell._calls import TaskCall, WorkflowCall
from stepwell._retention import Retention
from stepwell_queue.clock import Clock, Ids
from stepwell_queue.errors import StepwellError
from stepwell_queue.tcp.access import Access
from stepwell_runtime.core.guard import refuse_in_workflow
from stepwell_runtime.definitions import Seconds
from stepwell_runtime.middleware import Middleware
from stepwell_runtime.retention import Archive

R = TypeVar("R")
T = TypeVar("T")


class BlockingWorker:
    """A worker that runs in the loop's thread."""

    def __init__(self, calls: BlockingCalls, worker: Worker) -> None:
        self._calls, self._worker = calls, worker

    def drain(self) -> None:
        """Wait until no work of its queues is ready, running or due; raise if the worker dies."""
        self._calls.do(lambda app: self._worker.drain())


class BlockingStepwell(BlockingCalls):
    """Stepwell for scripts, threads, Django and Flask: the same methods, and they block.

    The settings are those of Stepwell. It opens its own event loop in a thread on first use, may
    be used from any thread, and opens anew in a forked child. `close` it, or use `with`.
    """

    def __init__(
        self,
        store: str | Path,
        *,
        lifespan: Lifespan | None = None,
        include: Iterable[ModuleType | str] | None = None,
        durability: Durability | None = None,
        max_value_size: int = DEFAULT_VALUE_SIZE,
        retention: Retention | None = None,
        middleware: Sequence[Middleware] = (),
        access: Access | None = None,
        timeout: Seconds = 30.0,
        code: str | None = None,
        archive: Archive | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        modules = None if include is None else list(include)

        def make() -> Stepwell:
            return Stepwell(
                store,
                lifespan=lifespan,
                include=modules,
                durability=durability,
                max_value_size=max_value_size,
                retention=retention,
                middleware=middleware,
                access=access,
                timeout=timeout,
                code=code,
                archive=archive,
                clock=clock,
                ids=ids,
            )

        self._make: Callable[[], Stepwell] = make
        self._app = make()
        self._thread: LoopThread | None = None
        self._closed = False
        self._lock = threading.Lock()
        _instances.add(self)

    def __repr__(self) -> str:
        return f"BlockingStepwell({str(self._app.settings.store)!r})"

    def __enter__(self) -> Self:
        with self._lock:
            self._closed = False
        self._open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the store and end the thread. Closing twice changes nothing."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._closed = True
        if thread is not None:
            thread.close()

    def _open(self) -> LoopThread:
        thread = self._thread
        if thread is None:
            with self._lock:
                if self._closed:
                    raise StepwellError(f"{self!r} is closed: use it inside `with`")
                thread = self._thread
                if thread is None:
                    thread = self._thread = LoopThread(self._app)
        return thread

    def do(self, work: Work[T]) -> T:
        """Run a coroutine function of the app in the loop's thread, and wait for its outcome."""
        thread = self._open()
        return wait_for(thread.app, thread.loop, work)

    @contextmanager
    def worker(
        self,
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
    ) -> Generator[BlockingWorker, None, None]:
        """Run a worker in the loop's thread while the block runs; see Stepwell.worker."""
        worker = self._app.worker(
            queues=queues,
            concurrency=concurrency,
            step_concurrency=step_concurrency,
            threads=threads,
            child_processes=child_processes,
            cache=cache,
            grace=grace,
            max_jobs=max_jobs,
            max_memory=max_memory,
            name=name,
        )
        thread = self._open()
        held = Held(worker)
        done = submit(thread.app, thread.loop, held.hold())
        outcome(thread.app, thread.loop, held.entered)
        try:
            yield BlockingWorker(self, worker)
        finally:
            held.leave()
            outcome(thread.app, thread.loop, done)

    def abandon(self) -> None:
        """Forget what a parent process opened: a child that closed it would damage it."""
        if self._thread is not None:
            _abandoned.append(self._thread)
        self._thread = None
        self._lock = threading.Lock()
        self._app = self._make()


_instances: weakref.WeakSet[BlockingStepwell] = weakref.WeakSet()
_abandoned: list[Any] = []


def _abandon_all() -> None:
    for instance in list(_instances):
        instance.abandon()


if hasattr(os, "register_at_fork"):  # not on Windows, which is refused when a store is opened
    os.register_at_fork(after_in_child=_abandon_all)


def run(
    call: WorkflowCall[R] | TaskCall[R],
    /,
    *,
    store: str | Path,
    id: str | None = None,
    timeout: Seconds | None = None,
    durability: Durability | None = None,
) -> R:
    """Start a call in `store`, execute it here with its children, and return its result.

    `id`: None = a new one; with the id of an earlier run it goes on, or returns what it returned.
    `timeout` in seconds, None = no limit. Raises what `Run.result` raises.
    """
    refuse_in_workflow("stepwell.run", "await the call itself")
    if running_loop() is not None:
        raise StepwellError("stepwell.run() blocks, and an event loop is running: use app.run()")

    async def main() -> R:
        async with Stepwell(store, durability=durability) as app:
            return await app.run(call, id=id, timeout=timeout)

    return asyncio.run(main())

"""The app: starts runs in a store, finds them there, and makes workers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from stepwell import _options as check
from stepwell._app.dead_letters import DeadLetterMethods
from stepwell._app.handles import Run
from stepwell._app.inner import InnerWorkers
from stepwell._app.journals import JournalMethods
from stepwell._app.operations import Operations
from stepwell._app.replays import ReplayMethods
from stepwell._app.reports import ReportMethods
from stepwell._app.schedules import ScheduleMethods
from stepwell._app.settings import (
    DEFAULT_VALUE_SIZE,
    Durability,
    Lifespan,
    Settings,
    checked_middleware,
    module_names,
    refuse_place,
)
from stepwell._app.starts import StartMethods, refused
from stepwell._app.steering import SteeringMethods
from stepwell._app.worker import Queues, Worker, worker_options
from stepwell._arguments import described
from stepwell._calls import TaskCall, WorkflowCall
from stepwell._decorated import Task, Workflow
from stepwell._retention import Retention
from stepwell_queue.clock import Clock, Ids, RandomIds, SystemClock
from stepwell_queue.errors import StepwellError
from stepwell_queue.tcp.access import Access
from stepwell_runtime.codec import Codec
from stepwell_runtime.core.guard import refuse_in_workflow
from stepwell_runtime.definitions import Definition, Seconds, registry
from stepwell_runtime.middleware import Middleware
from stepwell_runtime.retention import Archive

if TYPE_CHECKING:
    from stepwell._blocking.calls import BlockingCalls
    from stepwell_queue.contract import Identity, Store
    from stepwell_runtime.engine import Engine

R = TypeVar("R")


class Stepwell(
    StartMethods,
    Operations,
    ScheduleMethods,
    DeadLetterMethods,
    ReportMethods,
    JournalMethods,
    ReplayMethods,
    SteeringMethods,
):
    """Durable workflows and tasks in one store.

    `store`: a path or "sqlite:///…", or a server as "tcp://host:port" or "tls://host:port".
    `lifespan`: a function of the app that returns an async context manager around each worker's
    life; None = none. `include`: the modules whose code its workers serve; None = all that is
    registered. `durability`: "full" survives power loss, "process" survives `kill -9`; None =
    "full" for a file, and for a server what that was told. `max_value_size`: bytes of one encoded
    value. `retention`: of ended runs whose name and queue have none of their own; None = they are
    kept. `middleware`: what surrounds every attempt of its tasks and steps, outermost first.
    `access`: what lets this app in to a server; None = as the environment says. `timeout`: seconds
    that a server may take to answer. `code`: the name of this build, noted with each workflow run
    that is started; None = a fingerprint of its function. `archive`: called with ended runs before
    they are deleted; None = nothing is. `clock` and `ids`: None = the system's.
    Constructing does no I/O; `async with` opens it, and may do so again after closing.
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
        self.settings = Settings(
            store,
            lifespan,
            module_names(include),
            durability,
            max_value_size,
            retention,
            checked_middleware(middleware),
            access,
            timeout,
            code,
            archive,
        )
        self._clock = SystemClock() if clock is None else clock
        self._ids = RandomIds(self._clock) if ids is None else ids
        self._codec = Codec(max_value_size)
        self._engine: Engine | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._exit: AsyncExitStack | None = None
        self._was_open = False
        self._inner = InnerWorkers()

    def __repr__(self) -> str:
        return f"Stepwell({str(self.settings.store)!r})"

    async def __aenter__(self) -> Self:
        if self._exit is not None:
            raise StepwellError(f"{self!r} is open already: use the one that is open")
        refuse_place()
        # Imported here: `import stepwell` is cheap for programs that only define.
        from stepwell_runtime.engine import Engine

        self._exit = AsyncExitStack()
        try:
            store = await self._open_store()
        except BaseException:
            self._exit = None
            raise
        self._exit.push_async_callback(store.close)
        self._exit.push_async_callback(self._inner.close)
        self._engine = Engine(
            store,
            app=self,
            codec=self._codec,
            clock=store.clock,
            ids=self._ids,
            code=self.settings.code,
            archive=self.settings.archive,
        )
        self._loop = asyncio.get_running_loop()
        self._was_open = True
        return self

    async def _open_store(self) -> Store:
        from stepwell_queue import open_store

        return await open_store(
            self.settings.store,
            durability=self.settings.durability,
            clock=self._clock,
            ids=self._ids,
            access=self.settings.access,
            timeout=self.settings.timeout_seconds,
        )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        leaving = self._exit
        try:
            if leaving is not None:
                await leaving.aclose()
        finally:
            self._exit = self._engine = None

    @property
    def opened(self) -> bool:
        """Whether the app is open."""
        return self._engine is not None

    @property
    def engine(self) -> Engine:
        """The runtime behind this app; its interface may change. Raises unless the app is open."""
        engine = self._engine
        if engine is None:
            state = "closed" if self._was_open else "not open"
            raise StepwellError(f"{self!r} is {state}: use it inside `async with app:`")
        if asyncio.get_running_loop() is not self._loop:
            refuse_in_workflow("the app", "await the call itself, or start(call)")
            raise StepwellError(
                f"{self!r} was opened in another event loop: open one app per loop, or use "
                "BlockingStepwell from threads"
            )
        return engine

    @property
    def codec(self) -> Codec:
        """What encodes the values of this app; its interface may change."""
        return self._codec

    @property
    def blocking(self) -> BlockingCalls:
        """The methods of this open app, for other threads: of plain-function steps, say."""
        from stepwell._blocking.calls import BlockingCalls

        if self._loop is None or self._engine is None:
            raise StepwellError(f"{self!r} is not open: use it inside `async with app:`")
        return BlockingCalls(self, self._loop)

    async def run(
        self,
        call: WorkflowCall[R] | TaskCall[R],
        /,
        *,
        id: str | None = None,
        timeout: Seconds | None = None,
    ) -> R:
        """Start a call and execute it here, with its children; no other worker is needed.

        `timeout` in seconds, None = no limit; then TimeoutError, and the run stays in the store.
        Raises what `Run.result` raises.
        """
        given = workflow_or_task_call(call, "run")
        chosen = given if id is None else given.with_options(id=id)
        definition: Definition = chosen.definition
        serving = {**self.definitions(), definition.identity: definition}
        queues = {one.queue or "default" for one in serving.values()}
        queues.add(chosen.options.queue or "default")
        key = frozenset(queues), frozenset(serving.values())
        options = worker_options(queues=sorted(queues))
        async with self._inner.serving(key, lambda: Worker(self, options, serving)):
            started = await self.engine.start(
                definition, chosen.args, chosen.kwargs, chosen.options
            )
            run: Run[R] = Run(self, started.id, definition.result_type)
            return await run.result(timeout=timeout)

    def definitions(self) -> dict[Identity, Definition]:
        """Return what a worker of this app serves; raise DefinitionError when names clash."""
        return registry.select(self.settings.include)

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
    ) -> Worker:
        """Return a worker: use it with `async with`, or serve with `await worker.run()`.

        `queues`: their names, or a mapping from each to how many of its runs it takes at once,
        None = `concurrency`. `concurrency`: runs and tasks at once; `step_concurrency`: steps at
        once, None = the same;
        `threads`: plain functions at once; `child_processes`: those with executor="process" at
        once, None = one for each CPU; `cache`: parked runs whose code is kept in memory;
        `grace`: seconds that running steps get to end when it stops, 0 = none; `max_jobs`: it stops
        by itself after so many runs, `max_memory`: once the process has so many MiB; None = never;
        `name`: None = made of host and process. Raises DefinitionError when it starts and two
        definitions, or declared queues, clash.
        """
        options = worker_options(
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
        return Worker(self, options)

    @overload
    def get(self, id: str, definition: Workflow[..., R] | Task[..., R], /) -> Run[R]: ...
    @overload
    def get(self, id: str, /) -> Run[Any]: ...
    def get(self, id: str, definition: Any = None, /) -> Run[Any]:
        """Return the handle of a run; does no I/O, so it does not say whether the run exists."""
        if check.text(id, "id") is None:
            raise TypeError("get() takes the id of a run, not None")
        if definition is not None and not isinstance(definition, (Workflow, Task)):
            raise TypeError(f"get() takes a workflow or task, not {described(definition)}")
        result_type = Any if definition is None else definition.definition.result_type
        return Run(self, id, result_type)


def workflow_or_task_call(
    call: WorkflowCall[R] | TaskCall[R], method: str
) -> WorkflowCall[R] | TaskCall[R]:
    given: Any = call
    if not isinstance(given, (WorkflowCall, TaskCall)):
        raise TypeError(f"{method}() takes a workflow or task call, not {refused(given)}")
    return call

"""How an app starts runs: one, many at once, or more than that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

from typing_extensions import Unpack

from stepwell import _options as check
from stepwell._app.handles import Run
from stepwell._app.operations import word
from stepwell._arguments import described
from stepwell._calls import Call, TaskCall, WorkflowCall, is_call
from stepwell._terms import StartOptions
from stepwell_queue.contract import Status
from stepwell_queue.errors import StepwellError
from stepwell_runtime.definitions import Definition, Seconds

if TYPE_CHECKING:
    from stepwell._app.bulk import Bulk, Sink
    from stepwell_queue.contract import NewRun, Started
    from stepwell_runtime.engine import Engine
    from stepwell_runtime.queues import DeclaredQueue

WhenFull: TypeAlias = Literal["raise", "wait"]

R = TypeVar("R")
T = TypeVar("T")
C = TypeVar("C", bound=Call[Any])
_IN_ONE_TURN = 500


class StartMethods:
    """Starting workflows and enqueueing tasks."""

    @property
    def engine(self) -> Engine:
        raise NotImplementedError

    async def start(
        self,
        call: WorkflowCall[R],
        /,
        *,
        when_full: WhenFull = "raise",
        wait_timeout: Seconds | None = None,
        **options: Unpack[StartOptions],
    ) -> Run[R]:
        """Start a workflow; returns once that is durable. For the options see StartOptions.

        An existing run with the `id` and equal arguments is found again, as is that which has the
        `unique` key: then `created` is False and `found` its status. `when_full`: where its queue
        has as many runs ready as it may, "raise" QueueFull, or "wait" for room: for `wait_timeout`
        seconds at most, None = for ever. Raises IdConflict, RunNotFound.
        """
        chosen = workflow_call(call, "start")
        return await self._start(chosen, options, when_full, wait_timeout)

    async def enqueue(
        self,
        call: TaskCall[R],
        /,
        *,
        when_full: WhenFull = "raise",
        wait_timeout: Seconds | None = None,
        **options: Unpack[StartOptions],
    ) -> Run[R]:
        """Enqueue a task; returns once that is durable. For the options see StartOptions.

        An existing run with the `id` and equal arguments is found again, as is that which has the
        `unique` key: then `created` is False and `found` its status. `when_full`: where its queue
        has as many runs ready as it may, "raise" QueueFull, or "wait" for room: for `wait_timeout`
        seconds at most, None = for ever. Raises IdConflict, RunNotFound.
        """
        chosen = task_call(call, "enqueue")
        return await self._start(chosen, options, when_full, wait_timeout)

    async def _start(
        self,
        call: WorkflowCall[R] | TaskCall[R],
        options: StartOptions,
        when_full: WhenFull,
        wait_timeout: Seconds | None,
    ) -> Run[R]:
        chosen = call.with_options(**options) if options else call
        definition: Definition = chosen.definition
        engine = self.engine
        start = partial(engine.start, definition, chosen.args, chosen.kwargs, chosen.options)
        if when_full == "raise" and wait_timeout is None:
            started = await start()
        else:
            started = await in_room(start, when_full, wait_timeout)
        return self._handle(started, definition)

    def _handle(self, started: Started, definition: Definition) -> Run[Any]:
        found = None if started.created else word(Status(started.status))
        app: Any = self
        return Run(app, started.id, definition.result_type, started.created, found)

    @overload
    async def start_many(
        self,
        calls: Iterable[WorkflowCall[R]],
        /,
        *,
        when_full: WhenFull = "raise",
        wait_timeout: Seconds | None = None,
    ) -> list[Run[R]]: ...
    @overload
    async def start_many(
        self,
        calls: Iterable[WorkflowCall[Any]] | AsyncIterable[WorkflowCall[Any]],
        /,
        *,
        id: str,
        when_full: WhenFull = "raise",
        wait_timeout: Seconds | None = None,
    ) -> Bulk: ...
    async def start_many(
        self,
        calls: Any,
        /,
        *,
        id: str | None = None,
        when_full: WhenFull = "raise",
        wait_timeout: Seconds | None = None,
    ) -> Any:
        """Start workflows in one transaction, all or none; their options by `with_options`.

        At most 100,000 and 64 MiB. With an `id` there may be any number, and an async iterable:
        see `enqueue_many`.
        """
        return await self._start_many(
            calls, workflow_call, "start_many", id, when_full, wait_timeout
        )

    @overload
    async def enqueue_many(
        self,
        calls: Iterable[TaskCall[R]],
        /,
        *,
        when_full: WhenFull = "raise",
        wait_timeout: Seconds | None = None,
    ) -> list[Run[R]]: ...
    @overload
    async def enqueue_many(
        self,
        calls: Iterable[TaskCall[Any]] | AsyncIterable[TaskCall[Any]],
        /,
        *,
        id: str,
        when_full: WhenFull = "raise",
        wait_timeout: Seconds | None = None,
    ) -> Bulk: ...
    async def enqueue_many(
        self,
        calls: Any,
        /,
        *,
        id: str | None = None,
        when_full: WhenFull = "raise",
        wait_timeout: Seconds | None = None,
    ) -> Any:
        """Enqueue tasks in one transaction, all or none; their options by `with_options`.

        At most 100,000 and 64 MiB. With an `id` there may be any number, and an async iterable:
        they are taken as they come and enqueued in chunks of 10,000, each all or none, and run ids
        are made of the `id` and their places; so after an interruption the same again goes on where
        it stopped. `when_full` is as in `enqueue`, of each chunk.
        """
        return await self._start_many(calls, task_call, "enqueue_many", id, when_full, wait_timeout)

    async def _start_many(
        self,
        calls: Iterable[C] | AsyncIterable[C],
        checked: Callable[[C, str], C],
        method: str,
        id: str | None,
        when_full: WhenFull,
        wait_timeout: Seconds | None,
    ) -> list[Run[Any]] | Bulk:
        if id is not None:
            from stepwell._app.bulk import pour

            sink = sink_of(self.engine, id, when_full, wait_timeout)
            return await pour(calls, sink, partial(_checked, checked, method))
        if not isinstance(calls, Iterable):
            raise TypeError(
                "an async iterable is taken in chunks, whose runs need ids: give id=…, of which "
                "they are made"
            )
        try:
            engine = self.engine
        except StepwellError:
            for call in calls:  # so that they do not warn in addition
                checked(call, method)
            raise
        rows, definitions, declared = await _rows(engine, calls, checked, method)
        for queue in declared:
            await engine.declarations.say(queue)
        started = await in_room(partial(engine.start_many, rows), when_full, wait_timeout)
        app: Any = self
        return [
            Run(app, one.id, definition.result_type, True)
            if one.created
            else self._handle(one, definition)
            for definition, one in zip(definitions, started, strict=True)
        ]


def _checked(checked: Callable[[C, str], C], method: str, call: C) -> C:
    return checked(call, method)


def sink_of(engine: Engine, id: str, when_full: WhenFull, wait_timeout: Seconds | None) -> Sink:
    """Return what takes calls one by one; see `enqueue_many`."""
    from stepwell._app.bulk import Sink

    async def store(rows: list[NewRun]) -> list[Started]:
        return await in_room(partial(engine.start_many, rows), when_full, wait_timeout)

    return Sink(engine, id, store)


async def _rows(
    engine: Engine, calls: Iterable[C], checked: Callable[[C, str], C], method: str
) -> tuple[list[NewRun], list[Definition], list[DeclaredQueue]]:
    from stepwell_queue.contract.check import MAX_RUNS

    rows: list[NewRun] = []
    definitions: list[Definition] = []
    declared: dict[str, DeclaredQueue] = {}
    # One by one: what a generator yields needs not be kept, as there may be many.
    new_run = engine.launcher.new_run
    for number, call in enumerate(calls, 1):
        checked(call, method)
        if number > MAX_RUNS:
            raise ValueError(
                f"there are more than {MAX_RUNS} calls, which is the most for one transaction: "
                "give id=…, and they are enqueued in chunks, or make parts of them yourself"
            )
        definition: Definition = call.definition
        options = call.options
        rows.append(new_run(definition, call.args, call.kwargs, options))
        definitions.append(definition)
        if (queue := options.declared or definition.declared) is not None:
            declared[queue.name] = queue
        if number % _IN_ONE_TURN == 0:
            await asyncio.sleep(0)
    return rows, definitions, list(declared.values())


async def in_room(
    work: Callable[[], Awaitable[T]], when_full: WhenFull, wait_timeout: Seconds | None
) -> T:
    """Do what a full queue may refuse; wait for room if that is asked for."""
    check.one_of(when_full, "when_full", ("raise", "wait"))
    patience = check.span(wait_timeout, "wait_timeout")
    if when_full == "raise":
        if patience is not None:
            raise ValueError('wait_timeout= says more about when_full="wait": give that, too')
        return await work()
    from stepwell_runtime.room import when_there_is_room

    return await when_there_is_room(work, patience)


def workflow_call(call: WorkflowCall[R], method: str) -> WorkflowCall[R]:
    given: Any = call
    if isinstance(given, WorkflowCall):
        return call.hand_on()
    if isinstance(given, TaskCall):
        other = method.replace("start", "enqueue")
        raise TypeError(f"{method}() takes workflow calls; for a task use {other}()")
    raise TypeError(f"{method}() takes a workflow call, not {refused(given)}")


def task_call(call: TaskCall[R], method: str) -> TaskCall[R]:
    given: Any = call
    if isinstance(given, TaskCall):
        return call.hand_on()
    if isinstance(given, WorkflowCall):
        other = method.replace("enqueue", "start")
        raise TypeError(f"{method}() takes task calls; for a workflow use {other}()")
    raise TypeError(f"{method}() takes a task call, not {refused(given)}")


def refused(value: Any) -> str:
    if is_call(value):
        name = value.definition.name
        return f"the step call {name}(…): a step runs in a workflow; make it a task to enqueue it"
    return described(value)

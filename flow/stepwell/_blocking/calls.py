"""The methods of an app, for code that blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, TypeVar, overload

from typing_extensions import Unpack

from stepwell._app.app import Stepwell
from stepwell._app.bulk import Bulk, Sink
from stepwell._app.queues import QueueInfo
from stepwell._app.starts import WhenFull, sink_of, task_call, workflow_call
from stepwell._app.views import History, RunInfo, RunStatus
from stepwell._blocking.dead_letters import BlockingDeadLetters, BlockingReports
from stepwell._blocking.handles import BlockingRun
from stepwell._blocking.journals import BlockingJournals
from stepwell._blocking.queues import BlockingQueueHandle
from stepwell._blocking.schedules import BlockingSchedules
from stepwell._blocking.steering import BlockingSteering
from stepwell._blocking.waiting import Work, wait_for
from stepwell._calls import Call, TaskCall, WorkflowCall
from stepwell._decorated import Task, Workflow
from stepwell._queues import Queue
from stepwell._retention import EndStatus
from stepwell._signals import Signal
from stepwell._terms import StartOptions
from stepwell_queue.contract import Finding, WorkerInfo
from stepwell_runtime.definitions import Seconds

R = TypeVar("R")
T = TypeVar("T")
_AT_ONCE = 100


class BlockingCalls(
    BlockingSchedules,
    BlockingDeadLetters,
    BlockingReports,
    BlockingJournals,
    BlockingSteering,
):
    """The methods of an app whose event loop runs in another thread; they block, in any thread."""

    def __init__(self, app: Stepwell, loop: asyncio.AbstractEventLoop) -> None:
        self._app, self._loop = app, loop

    def do(self, work: Work[T]) -> T:
        """Run a coroutine function of the app in the loop's thread, and wait for its outcome."""
        return wait_for(self._app, self._loop, work)

    def start(
        self,
        call: WorkflowCall[R],
        /,
        *,
        when_full: WhenFull = "raise",
        wait_timeout: Seconds | None = None,
        **options: Unpack[StartOptions],
    ) -> BlockingRun[R]:
        """Start a workflow; see Stepwell.start."""
        run = self.do(
            lambda app: app.start(call, when_full=when_full, wait_timeout=wait_timeout, **options)
        )
        return BlockingRun(self, run)

    def enqueue(
        self,
        call: TaskCall[R],
        /,
        *,
        when_full: WhenFull = "raise",
        wait_timeout: Seconds | None = None,
        **options: Unpack[StartOptions],
    ) -> BlockingRun[R]:
        """Enqueue a task; see Stepwell.enqueue."""
        run = self.do(
            lambda app: app.enqueue(call, when_full=when_full, wait_timeout=wait_timeout, **options)
        )
        return BlockingRun(self, run)

    @overload
    def start_many(
        self,
        calls: Iterable[WorkflowCall[R]],
        /,
        *,
        when_full: WhenFull = "raise",
        wait_timeout: Seconds | None = None,
    ) -> list[BlockingRun[R]]: ...
    @overload
    def start_many(
        self,
        calls: Iterable[WorkflowCall[Any]],
        /,
        *,
        id: str,
        when_full: WhenFull = "raise",
        wait_timeout: Seconds | None = None,
    ) -> Bulk: ...
    def start_many(
        self,
        calls: Iterable[WorkflowCall[Any]],
        /,
        *,
        id: str | None = None,
        when_full: WhenFull = "raise",
        wait_timeout: Seconds | None = None,
    ) -> list[BlockingRun[Any]] | Bulk:
        """Start workflows in one transaction, or in chunks; see Stepwell.start_many."""
        if id is not None:
            checked = partial(workflow_call, method="start_many")
            return self._pour(map(checked, calls), id, when_full, wait_timeout)
        given = list(calls)
        runs = self.do(
            lambda app: app.start_many(given, when_full=when_full, wait_timeout=wait_timeout)
        )
        return [BlockingRun(self, run) for run in runs]

    @overload
    def enqueue_many(
        self,
        calls: Iterable[TaskCall[R]],
        /,
        *,
        when_full: WhenFull = "raise",
        wait_timeout: Seconds | None = None,
    ) -> list[BlockingRun[R]]: ...
    @overload
    def enqueue_many(
        self,
        calls: Iterable[TaskCall[Any]],
        /,
        *,
        id: str,
        when_full: WhenFull = "raise",
        wait_timeout: Seconds | None = None,
    ) -> Bulk: ...
    def enqueue_many(
        self,
        calls: Iterable[TaskCall[Any]],
        /,
        *,
        id: str | None = None,
        when_full: WhenFull = "raise",
        wait_timeout: Seconds | None = None,
    ) -> list[BlockingRun[Any]] | Bulk:
        """Enqueue tasks in one transaction, or in chunks; see Stepwell.enqueue_many.

        With an `id` they are taken in the calling thread.
        """
        if id is not None:
            checked = partial(task_call, method="enqueue_many")
            return self._pour(map(checked, calls), id, when_full, wait_timeout)
        given = list(calls)
        runs = self.do(
            lambda app: app.enqueue_many(given, when_full=when_full, wait_timeout=wait_timeout)
        )
        return [BlockingRun(self, run) for run in runs]

    def _pour(
        self,
        calls: Iterator[Call[Any]],
        id: str,
        when_full: WhenFull,
        wait_timeout: Seconds | None,
    ) -> Bulk:
        """Take calls here, and a few at a time to the loop."""

        async def begin(app: Stepwell) -> Sink:
            return sink_of(app.engine, id, when_full, wait_timeout)

        async def add(app: Stepwell) -> None:
            for call in some:
                await sink.add(call)

        sink = self.do(begin)
        while some := list(islice(calls, _AT_ONCE)):
            self.do(add)
        return self.do(lambda app: sink.finish())

    def run(
        self,
        call: WorkflowCall[R] | TaskCall[R],
        /,
        *,
        id: str | None = None,
        timeout: Seconds | None = None,
    ) -> R:
        """Start a call and execute it here, in the loop's thread; see Stepwell.run."""
        return self.do(lambda app: app.run(call, id=id, timeout=timeout))

    @overload
    def get(self, id: str, definition: Workflow[..., R] | Task[..., R], /) -> BlockingRun[R]: ...
    @overload
    def get(self, id: str, /) -> BlockingRun[Any]: ...
    def get(self, id: str, definition: Any = None, /) -> BlockingRun[Any]:
        """Return the handle of a run; does no I/O, so it does not say whether the run exists."""
        return BlockingRun(self, self._app.get(id, definition))

    def runs(
        self,
        *,
        status: str | Sequence[str] | None = None,
        name: str | None = None,
        queue: str | Queue | None = None,
        parent: str | None = None,
        key: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        ended_after: datetime | None = None,
        ended_before: datetime | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[RunInfo]:
        """Return runs, newest first; see Stepwell.runs."""
        return self.do(
            lambda app: app.runs(
                status=status,
                name=name,
                queue=queue,
                parent=parent,
                key=key,
                created_after=created_after,
                created_before=created_before,
                ended_after=ended_after,
                ended_before=ended_before,
                after=after,
                limit=limit,
            )
        )

    def info(self, id: str, /) -> RunInfo:
        """Return a run as it stands. Raises RunNotFound."""
        return self.do(lambda app: app.info(id))

    def history(self, id: str, /) -> History:
        """Return everything that is known of a run. Raises RunNotFound."""
        return self.do(lambda app: app.history(id))

    @overload
    def signal(self, id: str, signal: Signal[T], value: T, /) -> None: ...
    @overload
    def signal(self, id: str, signal: str, value: object = None, /) -> None: ...
    def signal(self, id: str, signal: Signal[Any] | str, value: object = None, /) -> None:
        """Store a signal for a run; returns once it is durable. Raises RunNotFound, RunEnded."""
        self.do(lambda app: app.send(id, signal, value))

    def fork(
        self,
        run_id: str,
        /,
        *,
        from_step: str,
        id: str | None = None,
        changes: Mapping[str, Any] | None = None,
        reason: str = "",
        actor: str = "",
    ) -> BlockingRun[Any]:
        """Start a run with what another one has recorded before a step; see Stepwell.fork."""
        run = self.do(
            lambda app: app.fork(
                run_id, from_step=from_step, id=id, changes=changes, reason=reason, actor=actor
            )
        )
        return BlockingRun(self, run)

    def cancel(self, id: str, /, *, reason: str = "", actor: str = "") -> RunStatus:
        """Ask a run to cancel; return its status afterwards. Raises RunNotFound."""
        return self.do(lambda app: app.cancel(id, reason=reason, actor=actor))

    def retry(self, id: str, /, *, reason: str = "", actor: str = "") -> RunStatus:
        """Go on from the failed step of a held or failed run. Raises RequestRefused."""
        return self.do(lambda app: app.retry(id, reason=reason, actor=actor))

    def roll_back(self, id: str, /, *, reason: str = "", actor: str = "") -> RunStatus:
        """Let a held run roll back. Raises RequestRefused."""
        return self.do(lambda app: app.roll_back(id, reason=reason, actor=actor))

    def resume_rollback(self, id: str, /, *, reason: str = "", actor: str = "") -> RunStatus:
        """Try the failed undos of an incomplete rollback again. Raises RequestRefused."""
        return self.do(lambda app: app.resume_rollback(id, reason=reason, actor=actor))

    def resume(self, id: str, /, *, reason: str = "", actor: str = "") -> RunStatus:
        """Try a stuck run again, with the code that is there now. Raises RequestRefused."""
        return self.do(lambda app: app.resume(id, reason=reason, actor=actor))

    def queue(self, queue: str | Queue, /) -> BlockingQueueHandle:
        """Return the handle of a queue; does no I/O."""
        return BlockingQueueHandle(self, self._app.queue(queue).name)

    def queues(self) -> list[QueueInfo]:
        """Return all queues that are set or were used, by name; see Stepwell.queues."""
        return self.do(lambda app: app.queues())

    def prune(
        self,
        *,
        older_than: Seconds | None = None,
        keep: int | None = None,
        queue: str | Queue | None = None,
        name: str | None = None,
        status: EndStatus | Sequence[EndStatus] | None = None,
    ) -> int:
        """Delete ended runs and return how many are gone; see Stepwell.prune."""
        return self.do(
            lambda app: app.prune(
                older_than=older_than, keep=keep, queue=queue, name=name, status=status
            )
        )

    def workers(self) -> list[WorkerInfo]:
        """Return the workers that are registered, and which are alive."""
        return self.do(lambda app: app.workers())

    def doctor(self) -> list[Finding]:
        """Check the store for broken invariants; empty = sound."""
        return self.do(lambda app: app.doctor())

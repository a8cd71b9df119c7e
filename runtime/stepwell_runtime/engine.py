"""The runtime as the SDK sees it: start runs, talk to them, wait for them, and make workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from stepwell_queue.clock import Clock, Ids
from stepwell_queue.contract import (
    Ask,
    CancelRun,
    ImportRuns,
    NewRun,
    RunCopy,
    SendSignal,
    Start,
    Started,
    StartMany,
    Status,
    Store,
)
from stepwell_queue.errors import RunEnded
from stepwell_runtime.codec import Codec
from stepwell_runtime.dead_letters import DeadLetters
from stepwell_runtime.definitions import CallOptions, Definition
from stepwell_runtime.errors import (
    RunCancelled,
    RunExpired,
    RunFailed,
    RunHeld,
    RunStuck,
    RunTerminated,
    StepFailed,
)
from stepwell_runtime.forks import Forks
from stepwell_runtime.launch import Launcher
from stepwell_runtime.queues import Declarations
from stepwell_runtime.retention import Archive, Pruning
from stepwell_runtime.schedules.service import Schedules
from stepwell_runtime.steering import Steering, reason_of
from stepwell_runtime.talking import Talking
from stepwell_runtime.unserved import Unserved
from stepwell_runtime.worker import Worker
from stepwell_runtime.worker_settings import WorkerSettings

_COMPLETED = int(Status.COMPLETED)  # to read a member of an enum is slow


@asynccontextmanager
async def _patience(id: str, timeout: float) -> AsyncGenerator[None]:
    """Raise TimeoutError, saying of which run, if the end of it is not there in time."""
    try:
        async with asyncio.timeout(timeout):
            yield
    except TimeoutError:
        raise TimeoutError(
            f"run {id!r} has not ended within {timeout:g} s; that ends this wait alone, and the "
            f"run goes on: get({id!r}).result() waits for it again, cancel({id!r}) ends it"
        ) from None


class Engine:
    """Everything that happens to runs from outside."""

    def __init__(
        self,
        store: Store,
        *,
        app: object,
        codec: Codec,
        clock: Clock,
        ids: Ids,
        code: str | None = None,
        archive: Archive | None = None,
    ) -> None:
        self.store, self._app, self.codec, self._clock, self._ids = store, app, codec, clock, ids
        self.launcher = Launcher(codec, clock, ids, code)
        self.schedules = Schedules(store, codec, ids)
        self.talking = Talking(store, codec, clock, ids)
        self._workers: list[Worker] = []
        self._unserved = Unserved(store)
        self.declarations = Declarations(store)
        self.forks = Forks(store, codec, clock, ids)
        self.steering = Steering(store, codec, clock, ids)
        self.dead_letters = DeadLetters(store, codec, ids)
        self.pruning = Pruning(store, codec, clock, ids, archive)

    # --- starting ---

    async def start(
        self,
        definition: Definition,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: CallOptions,
    ) -> Started:
        """Start a run, or find the same one, or that which has its unique key.

        Raises IdConflict, RunNotFound, QueueFull, SerializationError, StoreUnavailable.
        """
        row = self.launcher.new_run(definition, args, kwargs, options)
        declared = options.declared or definition.declared
        if declared is not None:
            await self.declarations.say(declared)
        if row.due is None and row.terms is None:
            for worker in self._workers:
                session = worker.reserve(definition.identity, row.queue)
                if session is not None:
                    return await self._start_here(worker, Start(row, session))
        return await self.store.do(Start(row))

    def _start_here(self, worker: Worker, verb: Start) -> asyncio.Future[Started]:
        """Start a run that this process' worker takes in hand in the same transaction."""
        waiter: asyncio.Future[Started] = worker.loop.create_future()

        def done(answer: Started | Exception) -> None:
            # The place goes to the run even if nobody waits for the answer any more.
            if isinstance(answer, Exception):
                worker.unreserve(None)
                if not waiter.done():
                    waiter.set_exception(answer)
            else:
                if not waiter.done():
                    waiter.set_result(answer)
                worker.unreserve(answer.claimed)

        try:
            self.store.submit(verb, done)
        except BaseException:
            worker.unreserve(None)
            raise
        return waiter

    async def start_many(self, rows: list[NewRun]) -> list[Started]:
        """Start all or none, in one transaction; the rows are the launcher's.

        Raises IdConflict, RunNotFound, QueueFull, StoreUnavailable.
        """
        return await self.store.do(StartMany(rows))

    def uid(self) -> str:
        """Make a name for a change, by which the store knows it when it is said again."""
        return self._ids.run_id()

    # --- talking to a run ---

    async def signal(self, id: str, name: str, value: object) -> None:
        """Store a signal for a run. Raises RunNotFound, RunEnded, SerializationError."""
        data = self.codec.encode(value, f"signal {name!r}")
        await self.store.do(SendSignal(id, self._ids.run_id(), name, data, self._clock.now()))

    async def cancel(self, id: str, *, reason: str = "", actor: str = "") -> Status:
        """Ask a run to cancel; return its status afterwards. Raises RunNotFound, RunEnded."""
        data = self.codec.encode(reason, "the reason of a cancel")
        verb = CancelRun(id, self._ids.run_id(), data, self._clock.now(), actor, reason)
        status = Status(await self.store.do(verb))
        if status.terminal and status is not Status.CANCELLED:
            raise RunEnded(id, status.name.lower(), "cancel")
        return status

    async def ask(self, id: str, action: str, *, actor: str = "", reason: str = "") -> Status:
        """Retry, roll_back, resume_rollback, resume or requeue.

        Raises RunNotFound, RequestRefused.
        """
        verb = Ask(id, self._ids.run_id(), action, actor, reason, self._clock.now())
        return Status(await self.store.do(verb))

    async def result(
        self, id: str, result_type: object = Any, *, timeout: float | None = None
    ) -> Any:
        """Wait for the end of a run and return its result, or raise its error.

        `timeout` None: wait for ever; else raises TimeoutError after so many seconds.
        """
        waiter = self._unserved.watch(id)
        try:
            if timeout is None:
                ended = await self.store.wait_ended(id)
            else:
                async with _patience(id, timeout):
                    ended = await self.store.wait_ended(id)
        finally:
            self._unserved.awaited.pop(waiter, None)
        if ended.status != _COMPLETED:
            raise self._error(id, Status(ended.status), ended.value)
        return self.codec.decode(ended.value, result_type, where=f"the result of run {id!r}")

    def _error(self, id: str, status: Status, value: bytes) -> BaseException:
        if status is Status.STUCK:
            return RunStuck(id, str(self.codec.decode_error(value)))
        if status is Status.HELD:
            return RunHeld(id, str(self.codec.decode_error(value)))
        if status is Status.FAILED:
            return self._failure(id, value)
        if status is Status.EXPIRED:
            return RunExpired(id)
        if status is Status.TERMINATED:
            return RunTerminated(id, reason_of(self.codec, value))
        return RunCancelled(id, reason_of(self.codec, value))

    def _failure(self, id: str, value: bytes) -> BaseException:
        error = self.codec.decode_error(value)
        if isinstance(error, StepFailed):
            failure = RunFailed(id, error.type_name, error.message)
            for note in getattr(error, "__notes__", ()):
                failure.add_note(note)
            return failure
        if not isinstance(error, Exception):
            return RunFailed(id, type(error).__name__, str(error))
        return error

    async def import_runs(self, copies: Sequence[RunCopy], *, actor: str, reason: str) -> None:
        """Store copies of runs of another store, all or none.

        Raises IdConflict, and ValueError if they are too many or too large.
        """
        now = self._clock.now()
        await self.store.do(ImportRuns(copies, self._ids.run_id(), actor, reason, now))

    # --- workers ---

    def worker(self, settings: WorkerSettings) -> Worker:
        """Return a worker of this process; it does nothing until started.

        Runs started here go to it directly.
        """
        return Worker(
            self.store,
            settings,
            app=self._app,
            codec=self.codec,
            clock=self._clock,
            launcher=self.launcher,
        )

    def attach(self, worker: Worker) -> None:
        """Hand runs that are started here to this (started) worker when it has a place for them."""
        self._workers.append(worker)

    def detach(self, worker: Worker) -> None:
        self._workers.remove(worker)

"""Lives of a worker on one file, in virtual time, each of which any commit may have cut short.

Every commit of a life is copied before anybody hears of it; a copy is where another life starts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

from stepwell_queue.contract import Ask, CancelRun, Finding, History, Kind, RunFilter, SendSignal
from stepwell_queue.errors import RequestRefused, RunEnded
from stepwell_queue.sqlite.store import SqliteStore, open_sqlite
from stepwell_runtime.activation import _activation
from stepwell_runtime.codec import Codec
from stepwell_runtime.definitions import CallOptions, registry
from stepwell_runtime.engine import Engine
from stepwell_runtime.worker import Worker
from stepwell_runtime.worker_settings import WorkerSettings
from tests.property import clock as virtual
from tests.property.clock import VirtualClock
from tests.property.commits import (
    copy_database,
    leave_lock_of_the_dead,
    remove_traces,
    watching,
)
from tests.property.logs import errors_noted
from tests.property.shapes import START, Execution, Node, clock_of_worker, executions, held, shaped
from tests.replay.asked import Events, Watched

MAIN = "main"
MOST_COMMITS = 1000
REQUESTS = frozenset(("retry", "roll_back", "resume_rollback"))
KINDS = (Kind.TASK, Kind.WORKFLOW, Kind.STEP)
codec = Codec()


@dataclass(frozen=True)
class Send:
    """What somebody outside says to the main run, `after` seconds from its start."""

    after: float
    what: str  # the name of a signal, "cancel", or what an operator asks for
    value: int


@dataclass(frozen=True)
class Scenario:
    """A shape, what happens to it from outside, and the worker that it has."""

    node: Node
    sends: tuple[Send, ...] = ()
    deadline: float | None = None
    cache: int = 1000
    step_concurrency: int | None = None
    hold: bool = False


@dataclass(frozen=True)
class Remains:
    """What is left when the process is killed after a commit."""

    database: Path
    token: str
    now: float
    executed: tuple[Execution, ...]
    lives: int


@dataclass(frozen=True)
class Life:
    """What came of a life that reached its rest."""

    histories: dict[str, History]
    findings: list[Finding]
    remains: list[Remains]
    executed: list[Execution]  # in all lives so far
    asked: list[tuple[str, Events]]  # by run id, for each time that its code was begun
    complaints: list[object]  # what was logged as an error
    lives: int


class _Ids:
    def __init__(self, life: int) -> None:
        self._life, self._count = life, 0

    def run_id(self) -> str:
        self._count += 1
        return f"run-{self._life}-{self._count}"

    def nonce(self) -> int:
        self._count += 1
        return self._life * 1000 + self._count


class _World:
    """One life, while it lasts."""

    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        before: Remains | None,
        *,
        down: float,
        keep: bool,
    ) -> None:
        self.scenario, self.folder, self.keep = scenario, folder, keep
        self.lives = 1 if before is None else before.lives + 1
        self.clock = VirtualClock(START if before is None else before.now + down)
        self.database = folder / f"life-{self.lives}.db"
        self.executed = [] if before is None else list(before.executed)
        self.remains: list[Remains] = []
        self.complaints: list[object] = []
        self.token = ""
        self.commits = 0
        self.loop: asyncio.AbstractEventLoop

    def committed(self) -> None:
        self.commits += 1
        if self.commits == MOST_COMMITS:
            reason = f"no rest after {MOST_COMMITS} commits"
            self.loop.call_soon_threadsafe(self.clock.give_up, reason)
        if self.keep and self.token and self.commits < MOST_COMMITS:
            copy = self.folder / f"life-{self.lives}-{len(self.remains)}.db"
            copy_database(self.database, copy)
            now, executed = self.clock.now(), tuple(self.executed)
            self.remains.append(Remains(copy, self.token, now, executed, self.lives))

    async def live(self) -> Life:
        self.loop = asyncio.get_running_loop()
        store = await open_sqlite(
            self.database,
            durability="process",
            clock=self.clock,
            ids=_Ids(self.lives),
            lease=1000.0,
            factory=watching(self.committed),
        )
        self.token = store._context.token
        try:
            # A start has the same nonce whenever it is tried, so that chance is the same too.
            engine = Engine(store, app=None, codec=codec, clock=self.clock, ids=_Ids(0))
            worker = self._worker(engine)
            await worker.start()
            engine.attach(worker)

            def busy() -> bool:
                group = store._group
                writing = group._busy or group._scheduled or group._retry is not None
                return writing or worker.executors.threads.borrowed_tokens > 0

            self.clock.busy = busy
            sending = self._send(store, engine)
            await self.clock.rest()
            await asyncio.gather(*sending)
            self.keep = False
            await worker.stop()
            return await self._result(store)
        finally:
            await store.close()

    def _worker(self, engine: Engine) -> Worker:
        @contextlib.asynccontextmanager
        async def lifespan() -> AsyncGenerator[None, None]:
            clock_of_worker.set(self.clock)
            executions.set(self.executed)
            yield

        return engine.worker(
            WorkerSettings(
                registry.select(frozenset((shaped.definition.module,))),
                queues=("default", "elsewhere"),
                lifespan=lifespan,
                cache=self.scenario.cache,
                step_concurrency=self.scenario.step_concurrency,
                grace=0.0,
            )
        )

    def _send(self, store: SqliteStore, engine: Engine) -> list[asyncio.Task[None]]:
        """Say all that is ever said: whoever is not sure to have been heard says it again."""
        tasks: list[asyncio.Task[None]] = []

        async def begin() -> None:
            options = CallOptions(id=MAIN, deadline=self.scenario.deadline)
            code = held if self.scenario.hold else shaped
            await engine.start(code.definition, (self.scenario.node,), {}, options)

        async def say(send: Send, index: int) -> None:
            now, value = self.clock.now(), codec.encode(send.value, "what is sent")
            uid = f"send-{index}"
            with contextlib.suppress(RunEnded, RequestRefused):
                if send.what == "cancel":
                    await store.do(CancelRun(MAIN, uid, value, now))
                elif send.what in REQUESTS:
                    await store.do(Ask(MAIN, uid, send.what, "", "", now))
                else:
                    await store.do(SendSignal(MAIN, uid, send.what, value, now))

        def at(when: float, action: Callable[[], Coroutine[object, object, None]]) -> None:
            loop = asyncio.get_running_loop()
            self.clock.call_at(when, lambda: tasks.append(loop.create_task(action())))

        at(START, begin)
        for index, send in enumerate(self.scenario.sends):
            at(START + send.after, partial(say, send, index))
        return tasks

    async def _result(self, store: SqliteStore) -> Life:
        histories: dict[str, History] = {}
        for run in await store.list_runs(RunFilter(kinds=KINDS, limit=1000)):
            history = await store.history(run.id)
            assert history is not None
            histories[run.id] = history
        findings = await store.doctor()
        return Life(
            histories,
            findings,
            self.remains,
            self.executed,
            Watched.everything,
            self.complaints,
            self.lives,
        )


def live(
    scenario: Scenario,
    folder: Path,
    before: Remains | None = None,
    *,
    down: float = 0.0,
    keep: bool = False,
) -> Life:
    """Live from nothing, or from what is left of another life, until nothing moves any more.

    `down`: seconds between the kill and this life. `keep`: keep what each commit would have left.
    """
    folder.mkdir(parents=True, exist_ok=True)
    world = _World(scenario, folder, before, down=down, keep=keep)
    if before is not None:
        copy_database(before.database, world.database)
        leave_lock_of_the_dead(before.token)
    with (
        patch.object(_activation, "Execution", Watched),
        patch.object(Watched, "everything", []),
        errors_noted(world.complaints),
    ):
        life = virtual.run(world.clock, world.live)
    remove_traces(world.token)
    if before is not None:
        remove_traces(before.token)
    return life

"""One execution of a run through any number of crashes: lives of an app, one after another."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import shutil
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from stepwell import _options as check
from stepwell._app.settings import Lifespan
from stepwell._calls import TaskCall, WorkflowCall
from stepwell._signals import named
from stepwell.testing._app import START, CodeIsWrong, TestApp
from stepwell.testing._clock import NothingDue
from stepwell.testing._outcome import CancelAt, RunOutcome, Send, SignalAt
from stepwell.testing._probe import Delays, Execution
from stepwell.testing._store import scratch
from stepwell.testing._stubs import Stubs
from stepwell_queue.contract import CancelRun, SendSignal
from stepwell_queue.errors import RunEnded, StoreUnavailable
from stepwell_queue.sqlite.schema import prepare
from stepwell_runtime.definitions import Definition
from stepwell_runtime.fitting import refuse_unfit
from stepwell_runtime.log import log
from stepwell_runtime.middleware import Middleware

AnyCall = WorkflowCall[Any] | TaskCall[Any]
Setup = Callable[[TestApp], Awaitable[object] | object]
Ended = tuple[RunOutcome, Counter[str]]
"""How a run ended, and how often each undo was recorded as done, by path."""
RUN = "tested"


@dataclass(frozen=True)
class Plan:
    """What happens to a run from outside."""

    sends: tuple[float, ...]
    """After how many seconds each of what is sent comes."""
    crashes: tuple[int, ...] = ()
    """After how many commits of each life its process dies; the life after the last one goes on."""
    delays: Delays | None = None
    late: Callable[[], float] = field(default=lambda: 0.0)


@dataclass(frozen=True)
class Lived:
    """What came of a run."""

    outcome: RunOutcome
    executed: list[Execution]
    """In all lives."""
    commits: int
    """Of the last life."""
    begun: list[int]
    """How many executions each life that died had begun, with those before it."""
    undos: Counter[str]
    """How often each undo was recorded as done, by path."""


@dataclass(frozen=True)
class Subject:
    """The call that is tested, and what it needs."""

    call: AnyCall
    sends: tuple[Send, ...]
    afters: tuple[float | None, ...]
    """After how many seconds each of what is sent comes; None = at a time that is chosen."""
    setup: Setup | None
    include: Iterable[ModuleType | str] | None
    lifespan: Lifespan | None
    middleware: Sequence[Middleware]
    queues: Sequence[str]
    start: datetime

    folder: Path
    """Has a file that is new, of which each run gets a copy."""

    async def live(self, plan: Plan) -> Lived:
        """Run it from its start to its end, with the crashes of a plan."""
        file = self.folder / "test.db"
        await asyncio.to_thread(fresh, self.folder, file)
        with quiet():
            return await self._live(file, plan)

    async def _live(self, file: Path, plan: Plan) -> Lived:
        now, stubs, executed, begun = self.start, Stubs(), list[Execution](), list[int]()
        for life, dies_after in enumerate((*plan.crashes, None), 1):
            app = TestApp(
                include=self.include,
                start=now,
                lifespan=self.lifespan,
                middleware=self.middleware,
                queues=self.queues,
                patience=0.0,
            )
            app.go_on(file, life, stubs, executed)
            app.disturb(plan.delays, plan.late)
            if life == 1 and self.setup is not None:
                ready = self.setup(app)
                if inspect.isawaitable(ready):
                    await ready
            async with app:
                ended = await self._one_life(app, plan, dies_after)
                if ended is not None:
                    commits = app.kit_store.writer.commits
                    return Lived(ended[0], executed, commits, begun, ended[1])
                begun.append(len(executed))
            now = datetime.fromtimestamp(app.virtual.now(), UTC)
        raise AssertionError("the last life has no end of its own")

    async def _one_life(self, app: TestApp, plan: Plan, dies_after: int | None) -> Ended | None:
        """Return how the run ended; None if the process died before."""
        loop = asyncio.get_running_loop()
        death = asyncio.Event()

        def died() -> None:
            loop.call_soon_threadsafe(death.set)

        app.kit_store.dies_after(dies_after, died)
        for number, after in enumerate(plan.sends):
            self._send_at(app, number, self.start.timestamp() + after)
        running = asyncio.create_task(self._run(app))
        dying = asyncio.create_task(death.wait())
        await asyncio.wait({running, dying}, return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        writer = app.kit_store.writer
        if not writer.dead:
            writer.dies_after = None  # its orderly end is no part of the test
            return await running
        running.cancel()
        await app.die()
        await asyncio.gather(running, return_exceptions=True)
        return None

    async def _run(self, app: TestApp) -> Ended:
        call, engine = self.call.with_options(id=RUN), app.engine
        definition: Definition = call.definition
        await engine.start(definition, call.args, call.kwargs, call.options)
        result: object = None
        error: BaseException | None = None
        try:
            result = await engine.result(RUN, definition.result_type)
        except (NothingDue, CodeIsWrong):
            raise
        except Exception as raised:  # noqa: BLE001 - whatever it is, it is the outcome
            error = raised
        history = await app.history(RUN)
        undos = [
            event
            for event in history.events
            if event.path.startswith("~") and event.kind in ("step", "child") and not event.voided
        ]
        undone = tuple(event.name for event in undos)
        outcome = RunOutcome(history.run.status, result, error, history.run.rollback, undone)
        return outcome, Counter(event.path for event in undos if event.outcome == "ok")

    def _send_at(self, app: TestApp, number: int, when: float) -> None:
        """Say it at its time; who is not sure to have been heard says it again, with the same uid.

        As a rule that is what a crash leaves, and it must not count twice.
        """
        send, uid, codec = self.sends[number], f"send-{number}", app.codec

        async def say() -> None:
            now = app.virtual.now()
            with contextlib.suppress(RunEnded, StoreUnavailable):
                if isinstance(send, CancelAt):
                    reason = codec.encode(send.reason, "the reason of a cancel")
                    await app.engine.store.do(CancelRun(RUN, uid, reason, now))
                else:
                    name, _ = named(send.signal)
                    value = codec.encode(send.value, f"signal {name!r}")
                    await app.engine.store.do(SendSignal(RUN, uid, name, value, now))

        app.at(datetime.fromtimestamp(max(when, app.virtual.now()), UTC), say)


def new_folder() -> Path:
    folder = scratch()
    prepare(folder / "new.db", "process").close()
    return folder


def fresh(folder: Path, file: Path) -> None:
    """Copying a new file takes less time than making one."""
    for suffix in ("-wal", "-shm"):
        Path(f"{file}{suffix}").unlink(missing_ok=True)
    shutil.copyfile(folder / "new.db", file)


@contextlib.asynccontextmanager
async def subject(
    call: AnyCall,
    signals: Sequence[Send],
    setup: Setup | None,
    include: Iterable[ModuleType | str] | None,
    lifespan: Lifespan | None,
    middleware: Sequence[Middleware],
    queues: Sequence[str],
    start: datetime | None,
) -> AsyncGenerator[Subject, None]:
    """Yield what is tested; refuse what cannot be."""
    given: Any = call
    if not isinstance(given, (WorkflowCall, TaskCall)):
        raise TypeError(f"this tests the call of a workflow or task, not {given!r}")
    for one in signals:
        wrong: Any = one
        if not isinstance(wrong, (SignalAt, CancelAt)):
            raise TypeError(f"signals= takes SignalAt(…) and CancelAt(…), not {wrong!r}")
        if isinstance(one, SignalAt):
            name, wanted = named(one.signal)
            refuse_unfit(one.value, wanted, f"signal {name!r}")
    afters = tuple(check.span(one.after, "after") for one in signals)
    modules = None if include is None else list(include)
    call.hand_on()
    folder = await asyncio.to_thread(new_folder)
    try:
        yield Subject(
            call,
            tuple(signals),
            afters,
            setup,
            modules,
            lifespan,
            middleware,
            queues,
            start or START,
            folder,
        )
    finally:
        await asyncio.to_thread(shutil.rmtree, folder)


@contextlib.contextmanager
def quiet() -> Generator[None, None, None]:
    """Have the engine not log what a crash, which is meant, makes it say."""
    kept = vars(log)
    kept["_say"] = _say_nothing
    try:
        yield
    finally:
        kept.pop("_say", None)


def _say_nothing(level: str, event: str, values: dict[str, object]) -> None:
    return None

"""The app of a plain test, which has no event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from stepwell._app.settings import DEFAULT_VALUE_SIZE, Lifespan
from stepwell._blocking.app import BlockingStepwell
from stepwell._blocking.handles import BlockingRun
from stepwell._decorated import Step, Task, Workflow
from stepwell._signals import Signal
from stepwell.testing._app import TestApp
from stepwell.testing._stubs import Stub, StubCall
from stepwell_runtime.definitions import Seconds
from stepwell_runtime.middleware import Middleware

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class BlockingTestApp(BlockingStepwell):
    """A TestApp for tests that are plain functions: the same settings and methods, and they block.

    Use it with `with`.
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
        super().__init__("test.db")

        def make() -> TestApp:
            return TestApp(
                include=include,
                start=start,
                lifespan=lifespan,
                middleware=middleware,
                max_value_size=max_value_size,
                queues=queues,
                concurrency=concurrency,
                schedules=schedules,
                cache=cache,
                seed=seed,
                patience=patience,
            )

        self._make: Callable[[], TestApp] = make
        self._app: TestApp = make()

    def __repr__(self) -> str:
        return "BlockingTestApp()"

    @property
    def time(self) -> datetime:
        """The time that it is, aware and in UTC."""
        return self._app.time

    def advance(self, seconds: Seconds) -> None:
        """Let that much time pass, and all be done that is due by then; 0 = what is due now."""
        self.do(lambda _: self._app.advance(seconds))

    def advance_to(self, when: datetime) -> None:
        """Let time pass until then (an aware datetime), and all be done that is due by then."""
        self.do(lambda _: self._app.advance_to(when))

    def at(self, when: Seconds | datetime, do: Callable[[], Awaitable[object] | object]) -> None:
        """Call a function, in the thread of the loop, when its time has come; see TestApp.at."""
        self._there(lambda: self._app.at(when, do))

    def signal_at(
        self,
        when: Seconds | datetime,
        run: BlockingRun[Any] | str,
        signal: Signal[T] | str,
        value: T,
    ) -> None:
        """Send a signal when its time has come. `when`: seconds from now, or an aware datetime."""
        id = run if isinstance(run, str) else run.id
        self._there(lambda: self._app.signal_at(when, id, signal, value))

    def cancel_at(
        self, when: Seconds | datetime, run: BlockingRun[Any] | str, reason: str = ""
    ) -> None:
        """Cancel a run when its time has come. `when`: seconds from now, or an aware datetime."""
        id = run if isinstance(run, str) else run.id
        self._there(lambda: self._app.cancel_at(when, id, reason))

    def stub(
        self,
        target: Step[P, R, Any] | Task[P, R, Any] | Workflow[P, R],
        /,
        *,
        returns: R | None = None,
        raises: BaseException | type[BaseException] | None = None,
        outcomes: Sequence[R | BaseException | type[BaseException]] | None = None,
        does: Callable[P, object] | None = None,
        takes: Seconds = 0.0,
    ) -> Stub:
        """Execute something else in place of a step, task or child workflow; see TestApp.stub."""
        return self._there(
            lambda: self._app.stub(
                target, returns=returns, raises=raises, outcomes=outcomes, does=does, takes=takes
            )
        )

    def calls(
        self, target: Step[..., Any, Any] | Task[..., Any, Any] | Workflow[..., Any], /
    ) -> list[StubCall]:
        """Return the executions of a step or task, stubbed or not, or of a stubbed workflow."""
        return self._there(lambda: self._app.calls(target))

    def unused_stubs(self) -> list[Stub]:
        """Return the stubs that nothing has called."""
        return self._there(self._app.unused_stubs)

    def check(self) -> None:
        """Raise AssertionError if code was found to be wrong: calls never awaited, and so on."""
        self._there(self._app.check)

    def _there(self, what: Callable[[], T]) -> T:
        """Do it in the thread of the loop, which nothing else may disturb."""

        async def do(_: object) -> T:
            return what()

        return self.do(do)

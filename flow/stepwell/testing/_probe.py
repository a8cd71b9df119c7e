"""The middleware of the test kit, nearest to the function: notes, stubs and delays executions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepwell.testing._stubs import StubCall, Stubs, bound_arguments, refuse_arguments
from stepwell_runtime.attempt import Attempt
from stepwell_runtime.middleware import CallNext, Middleware
from stepwell_runtime.scope import JobScope

if TYPE_CHECKING:
    from stepwell.testing._clock import VirtualClock


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of the function of a step or task."""

    run_id: str
    path: str
    attempt: int
    name: str

    @property
    def place(self) -> tuple[str, str, int]:
        return self.run_id, self.path, self.attempt


Delays = Callable[[Execution], tuple[float, float]]
"""Says how many seconds of virtual time an execution takes before and after its function."""


class Probe(Middleware):
    """Sees every attempt of one app."""

    def __init__(
        self, clock: VirtualClock, start: float, stubs: Stubs, refused: Callable[[str], None]
    ) -> None:
        self._clock, self._start, self.stubs, self._refused = clock, start, stubs, refused
        self.running = 0
        """Attempts that are not waiting for virtual time."""
        self.executed: list[Execution] = []
        self.delays: Delays | None = None

    async def around(self, job: JobScope, call_next: CallNext) -> object:
        assert isinstance(job, Attempt)
        execution = Execution(job.run_id, job.path, job.attempt, job.name)
        self.running += 1
        try:
            before, after = (0.0, 0.0) if self.delays is None else self.delays(execution)
            began = self._clock.now()
            await self._wait(job, before, began)
            self.executed.append(execution)
            value = await self._execute(job, execution, call_next)
            await self._wait(job, after, began)
            return value
        finally:
            self.running -= 1

    async def _execute(self, job: Attempt, execution: Execution, call_next: CallNext) -> object:
        definition, arguments = job._definition, bound_arguments(job)
        at = self._clock.now() - self._start
        self.stubs.note(
            definition,
            StubCall(
                job.name, dict(arguments.arguments), job.run_id, job.path, job.attempt, job.key, at
            ),
        )
        stub = self.stubs.find(definition)
        if stub is None:
            return await call_next()
        try:
            refuse_arguments(definition, arguments)
        except TypeError as misfit:
            self._refused(f"run {job.run_id!r}, path {job.path or '-'}: {misfit}")
            raise
        await self._wait(job, stub.takes, self._clock.now())
        return await stub.run(execution.place, arguments)

    async def _wait(self, job: Attempt, seconds: float, began: float) -> None:
        """Let an attempt take so long, in virtual time, and time out when it would have."""
        if not seconds:
            return
        limit = None if job._timeout is None else began + job._timeout - self._clock.now()
        with self._waiting():
            if limit is None or seconds < limit:
                await self._clock.sleep(seconds)
                return
            await self._clock.sleep(limit)
        job._why = "timeout"
        raise job._too_long()

    @contextlib.contextmanager
    def _waiting(self) -> Generator[None, None, None]:
        self.running -= 1
        try:
            yield
        finally:
            self.running += 1

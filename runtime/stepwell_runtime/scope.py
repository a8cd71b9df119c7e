"""Which durable code, if any, is running here: workflow code (a branch) or a step."""

from __future__ import annotations

import hashlib
import threading
from contextvars import ContextVar
from datetime import datetime
from random import Random
from typing import Any, Protocol
from uuid import UUID

import msgspec


class UndoEntry(Protocol):
    """A registered undo."""

    def discard(self) -> None: ...


class RunFacts(Protocol):
    """What a workflow may know of its own run; the same at every replay."""

    @property
    def id(self) -> str: ...
    @property
    def workflow(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def queue(self) -> str: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def scheduled_at(self) -> datetime: ...
    @property
    def deadline(self) -> datetime | None: ...
    @property
    def parent_id(self) -> str | None: ...
    @property
    def attempt(self) -> int:
        """1, and one more for each retry of the whole run."""
        ...


class WorkflowScope(Protocol):
    """The branch of a workflow whose code is running right now."""

    @property
    def facts(self) -> RunFacts: ...
    @property
    def replaying(self) -> bool: ...
    @property
    def closing(self) -> bool:
        """The coroutine is being discarded.

        Whatever durable is asked for now is refused with GeneratorExit.
        """
        ...

    def refuse(self) -> None:
        """Count one refusal while closing; raises GeneratorExit."""
        ...

    def now(self) -> float: ...
    def random(self) -> Random: ...
    def uuid4(self) -> UUID: ...
    def compensate(self, call: Any) -> UndoEntry: ...


class StepScope(msgspec.Struct, eq=False):
    """The execution of one attempt of a step or task."""

    run_id: str
    path: str
    name: str
    attempt: int
    _seed: str
    app: Any
    cancel_event: threading.Event | None

    def __repr__(self) -> str:
        where = f" at path {self.path}" if self.path else ""
        return f"<attempt {self.attempt} of {self.name!r}{where} of run {self.run_id!r}>"

    @property
    def key(self) -> str:
        """32 hex digits, the same at every attempt of this step and after every crash."""
        return hashlib.blake2b(
            f"{self._seed}/{self.path}".encode("utf-8", "surrogatepass"), digest_size=16
        ).hexdigest()

    @property
    def cancelled(self) -> bool:
        """Whether this attempt was asked to stop; what it returns no longer counts."""
        event = self.cancel_event
        return event is not None and event.is_set()


current: ContextVar[WorkflowScope | StepScope | None] = ContextVar("stepwell_scope", default=None)
scope_here = current.get


def workflow_scope() -> WorkflowScope | None:
    scope = scope_here()
    return None if scope is None or isinstance(scope, StepScope) else scope


def step_scope() -> StepScope | None:
    scope = scope_here()
    return scope if isinstance(scope, StepScope) else None

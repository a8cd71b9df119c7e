"""Which durable code, if any, is running here: workflow code (a branch) or a step."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Mapping
from contextvars import ContextVar
from datetime import datetime
from random import Random
from typing import Any, Literal, NoReturn, Protocol
from uuid import UUID

import msgspec

from stepwell_queue.clock import utc
from stepwell_runtime.reports import Voice, checked_line, checked_name, checked_progress


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
    def say(self, kind: int, name: str, value: object) -> None:
        """Note a NoteKind; raises SerializationError, StreamFull, ValueError."""
        ...

    def patched(self, id: str, *, retired: bool) -> bool: ...
    def continue_as_new(self, call: Any) -> NoReturn: ...
    def enter_undo_scope(self) -> Any: ...
    def leave_undo_scope(self, scope: Any, *, failed: bool) -> Awaitable[Any] | None:
        """Return what has to be awaited before the scope is over, if anything has."""
        ...


class JobScope(msgspec.Struct, eq=False):
    """One attempt of a task or step, as its function and the middleware around it see it."""

    kind: Literal["task", "step"]
    name: str
    run_id: str
    path: str
    """Where in the code of its workflow a step stands; empty for a task."""
    queue: str
    """The queue that it was taken from: of a task or step with a queue its own, else the run's."""
    attempt: int
    """1, and one more for each failure so far."""
    _seed: str
    app: Any
    _signature: inspect.Signature
    _args: list[Any]
    _kwargs: dict[str, Any]

    def __repr__(self) -> str:
        where = f" at path {self.path}" if self.path else ""
        return f"<attempt {self.attempt} of {self.name!r}{where} of run {self.run_id!r}>"

    @property
    def arguments(self) -> Mapping[str, object]:
        """The arguments, by the names of their parameters; gone once the attempt is over."""
        bound = self._signature.bind_partial(*self._args, **self._kwargs)
        bound.apply_defaults()
        return bound.arguments

    @property
    def key(self) -> str:
        """32 hex digits, the same at every attempt of this step and after every crash."""
        return hashlib.blake2b(
            f"{self._seed}/{self.path}".encode("utf-8", "surrogatepass"), digest_size=16
        ).hexdigest()

    @property
    def scheduled_at(self) -> datetime:
        """When its run was to start (UTC), the same at every attempt.

        The tick of a schedule, else `at` or the end of `delay`, else when the run was made. Of a
        batch: the earliest of its jobs.
        """
        return utc(self._scheduled())

    def _scheduled(self) -> float:
        raise NotImplementedError

    @property
    def cancelled(self) -> bool:
        """Whether this attempt was asked to stop; what it returns no longer counts."""
        return False

    def report(self, fraction: float, note: str = "") -> None:
        """Say how far this attempt is: from 0 to 1, with a note for people.

        Any thread may; it returns at once, and `Run.progress()` reads it a moment later. The newest
        counts, with the first 1,000 characters of its note. Raises TypeError, ValueError.
        """
        given = checked_progress(fraction, note)
        voice = self._voice()
        if voice is not None:
            voice.progress(*given)

    def log(self, text: str, /, **fields: object) -> None:
        """Add a line to the log of the run, with values by name, which JSON can show.

        Any thread may; it returns at once, and `Run.logs()` reads it a moment later. Of a run the
        last 1,000 lines are kept, or 256 KiB; of a line the first 8,192 characters. Raises
        TypeError, and ValueError if the fields take more than that.
        """
        given = checked_line(text, fields)
        voice = self._voice()
        if voice is not None:
            voice.line(*given, self.path, self.attempt)

    def emit(self, name: str, item: object, /) -> None:
        """Add an item to a stream of the run.

        Any thread may; it returns at once, and `Run.stream(name)` reads it a moment later. What an
        attempt has emitted stays, also if it fails. Once the attempt is over, nothing is added.
        Raises SerializationError; PayloadTooLarge over 256 KiB; StreamFull once the steps of the
        run have emitted 100,000 items or 16 MiB.
        """
        checked_name(name, "emit()")
        voice = self._voice()
        if voice is not None:
            voice.item(name, item, self.path, self.attempt)

    def _voice(self) -> Voice | None:
        """Return what takes what this attempt says of itself; None = it is over."""
        return None


current: ContextVar[WorkflowScope | JobScope | None] = ContextVar("stepwell_scope", default=None)
scope_here = current.get


def workflow_scope() -> WorkflowScope | None:
    scope = scope_here()
    return None if scope is None or isinstance(scope, JobScope) else scope


def job_scope() -> JobScope | None:
    scope = scope_here()
    return scope if isinstance(scope, JobScope) else None

"""What a tested run gets from outside, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stepwell._app.views import RunStatus
from stepwell._signals import Signal
from stepwell_runtime.definitions import Seconds

T = TypeVar("T")


@dataclass(frozen=True)
class SignalAt(Generic[T]):
    """A signal that the run gets `after` so many seconds; None = at a time that is chosen."""

    signal: Signal[T] | str
    value: T
    after: Seconds | None = None


@dataclass(frozen=True)
class CancelAt:
    """A cancel that the run gets `after` so many seconds; None = at a time that is chosen."""

    after: Seconds | None = None
    reason: str = ""


Send = SignalAt[Any] | CancelAt


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended."""

    status: RunStatus
    result: object
    """What it returned; None if it did not."""
    error: BaseException | None
    """What `Run.result` raised."""
    rollback: str
    undone: tuple[str, ...]
    """The names of its undos that were executed, in their order."""

    def __str__(self) -> str:
        how = repr(self.result) if self.error is None else repr(self.error)
        rollback = "" if self.rollback == "none" else f", rollback {self.rollback}"
        undone = f", undone: {', '.join(self.undone)}" if self.undone else ""
        return f"{self.status}: {how}{rollback}{undone}"

"""What an activation knows of one open operation of its run."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Generic, TypeVar

import msgspec

from stepwell_queue.contract import OpenOp
from stepwell_runtime.attempt import Attempt
from stepwell_runtime.core.branch import CallOp, Op
from stepwell_runtime.core.commands import DeadlineCommand, SleepCommand, WaitCommand
from stepwell_runtime.definitions import Retry, StepDefinition

ROW_KIND = {
    "step": "retry",
    "sleep": "sleep",
    "wait": "wait",
    "ask": "ask",
    "deadline": "deadline",
    "child": "child",
    "remote": "remote",
}
MOST_NAMED = 4

LARGE_WRITE = 16 * 1024 * 1024
"""Bytes after which what is still to be written goes into a write of its own."""


class Stage(Enum):
    WAITING = "waiting"  # for a time, a signal, a child, or its next attempt
    QUEUED = "queued"  # for a free place among the running steps
    RUNNING = "running"
    RECORDED = "recorded"  # its outcome is on its way into the journal


WAITING, QUEUED, RUNNING, RECORDED = Stage
"""The members, for code that runs at every step: to find one through its class costs much more."""


OpT = TypeVar("OpT", bound=Op)


class Work(msgspec.Struct, Generic[OpT], eq=False):
    """One open operation and how far it has come."""

    op: OpT
    due: float | None = None
    stage: Stage = WAITING
    row: bool = False  # an open operation is stored for it
    failures: int = 0
    error: bytes = b""
    begun: bool = False  # an attempt has begun, here or in an earlier claim, and has not ended
    attempt: Attempt | None = None
    child_id: str = ""

    @property
    def retry(self) -> Retry:
        """How a step is retried."""
        op: Op = self.op
        assert isinstance(op, CallOp)
        assert isinstance(op.definition, StepDefinition)
        return op.options.retry or op.definition.retry

    def open_row(self) -> OpenOp:
        """Return what must be stored of it."""
        self.row = True
        op = self.op
        value = self.child_id.encode() if self.child_id else self.error
        return OpenOp(op.path, ROW_KIND[op.kind], op.name, self.due, self.failures, value)


AnyWork = Work[Any]
StepWork = Work[CallOp]


def due_from(op: Op, now: float) -> float | None:
    """Return when a sleep or wait that begins now is over; None = never by itself."""
    command = op.command
    if isinstance(command, SleepCommand):
        return command.until if command.delay is None else now + command.delay
    if isinstance(command, DeadlineCommand):
        return now + command.seconds
    if isinstance(command, WaitCommand) and command.timeout is not None:
        return now + command.timeout
    return None


def waiting(ops: Sequence[Op]) -> str:
    """Say for people what a run waits for; a few operations stand for many."""
    words = {
        "step": "retry of step ",
        "sleep": "",
        "wait": "signal ",
        "ask": "question ",
        "join": "run ",
    }
    return ", ".join(f"{words.get(op.kind, op.kind + ' ')}{op.name}" for op in ops[:MOST_NAMED])

"""What an activation knows of one open operation of its run."""

from __future__ import annotations

from enum import Enum

from stepwell_runtime.attempt import Attempt
from stepwell_runtime.core.branch import Op
from stepwell_runtime.policy import Policy


class Stage(Enum):
    WAITING = "waiting"  # for a time, a signal, a child, or its next attempt
    QUEUED = "queued"  # for a free place among the running steps
    RUNNING = "running"
    RECORDED = "recorded"  # its outcome is on its way into the journal


class Work:
    __slots__ = ("attempt", "begun", "child_id", "due", "error", "failures", "op", "policy", "row", "stage")

    def __init__(self, op: Op, policy: Policy | None = None) -> None:
        self.op = op
        self.stage = Stage.WAITING
        self.due = op.due
        self.row = False  # an open operation is stored for it
        self.failures = 0
        self.error = b""
        self.begun = False  # an attempt has begun, in this claim or an earlier one
        self.attempt: Attempt | None = None
        self.policy = policy
        self.child_id = ""

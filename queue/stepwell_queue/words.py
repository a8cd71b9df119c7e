"""The words of the store, as numbers: what a run is, where it stands, what its journal holds."""

from __future__ import annotations

import enum


class Kind(enum.IntEnum):
    """What a run is."""

    TASK = 0
    WORKFLOW = 1
    STEP = (
        2  # a step with `queue=`: a node job that belongs to its parent run; hidden from listings
    )


class Status(enum.IntEnum):
    """Where a run stands. From COMPLETED on it is terminal."""

    SCHEDULED = 0
    READY = 1
    RUNNING = 2
    PARKED = 3
    PAUSED = 4
    HELD = 5
    STUCK = 6
    COMPLETED = 10
    FAILED = 11
    CANCELLED = 12
    TERMINATED = 13
    EXPIRED = 14

    @property
    def terminal(self) -> bool:
        return self >= Status.COMPLETED


class Phase(enum.IntEnum):
    """Forward, or running its undos (shown as `rolling_back` while not terminal)."""

    FORWARD = 0
    ROLLING_BACK = 1


class Rollback(enum.IntEnum):
    """How the rollback of an ended run went."""

    NONE = 0  # nothing was registered
    COMPLETE = 1
    INCOMPLETE = 2


class RecordKind(enum.IntEnum):
    """What a journal record delivers."""

    STEP_OK = 0
    STEP_FAILED = 1
    TIMER = 2  # a sleep is over, or the timeout of a wait has passed
    SIGNAL = 3  # name, value, uid
    CHILD_OK = 4
    CHILD_FAILED = 5
    CHILD_CANCELLED = 6
    STARTED = 7  # a detached child exists
    CANCEL = 8  # value: encoded reason; name: "cancel" or "deadline"
    FAILURE = 9  # the failure that began the rollback
    REOPEN = 10  # value: msgpack list of voided seqs; name: "retry" or "resume_rollback"
    ROLL_BACK = 11  # an operator let a held run roll back
    MARK = 12  # a patched() marker; name: its id
    STEP_CUT = 13  # a step cancelled before or between attempts; value: its last error or empty
    QUESTION = 14  # name, value: msgpack list of uid and payload


class InboxKind(enum.IntEnum):
    """What others tell a run."""

    SIGNAL = 0
    CANCEL = 1
    CHILD_ENDED = 2  # path: where; status: Status of the child; value: its result or error
    RETRY = 3
    RESUME_ROLLBACK = 4
    ROLL_BACK = 5
    QUESTION = 6  # name, value; the answer is written by the run under its uid
    PAUSE = 7  # what runs is to reach an outcome, and nothing else is to begin


class NoteKind(enum.IntEnum):
    """What the code of a run has said."""

    VALUE = 0  # it has set a value
    ITEM = 1  # it has emitted to a stream
    ANSWER = 2  # to a question
    REFUSAL = 3  # of a question; value: why


class Hold(enum.IntEnum):
    """For how long a run has its unique key."""

    UNENDED = 0  # until it has ended
    PENDING = 1  # until it is claimed for the first time
    UNTIL = 2  # until a time, even if it ends before


class Overlap(enum.IntEnum):
    """What becomes of a tick of a schedule while an earlier run of it has not ended."""

    SKIP = 0
    QUEUE = 1  # it starts when those have ended; if one waits already, the tick is left out
    ALLOW = 2


class WorkerState(enum.IntEnum):
    """What a worker is about."""

    STARTING = 0  # registered, and preparing what its steps share
    RUNNING = 1
    STOPPING = 2  # takes nothing more, and waits for what it holds

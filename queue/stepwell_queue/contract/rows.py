"""What rows of the store look like to those who use it: runs, records, operations, messages."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

# Checked where a verb comes in over the network; nowhere else can anything else be said.
Time = Annotated[float, Meta(ge=-sys.float_info.max)]  # any but NaN, which SQLite takes for NULL


class Terms(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What few runs ask for: how they stand to other runs, and until when they may start."""

    key: str = ""  # whose limits, rates and turns in the queue it shares; "" = nobody's
    expires: Time | None = None  # it ends EXPIRED unless it has been started by then
    unique: str = ""  # while another run of this kind and name has the key, that one is answered
    hold: int = 0  # a Hold: for how long this run has the key
    held_until: Time | None = None  # for Hold.UNTIL
    replace: bool = False  # a run that has the key and was never claimed gets this one's arguments
    after: Sequence[str] = ()  # ids of runs that must have ended before it starts
    anyhow: bool = False  # however they end; else it fails when one of them ends badly,
    failures: Sequence[bytes] = ()  # with the error that stands here for that one


class NewRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A run to be inserted.

    `digest` = 4 bytes of signature hash + 12 bytes of canonical argument hash.
    """

    id: str
    kind: int
    name: str
    version: int
    queue: str
    args: bytes
    digest: bytes
    nonce: int
    at: float
    priority: int = 0
    due: Time | None = None  # not before this time; None = at once
    deadline: Time | None = None
    options: bytes = b""  # opaque to the store: per-call retry, timeout, ...
    terms: Terms | None = None


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One journal record.

    `seq` is gapless from 0 within a run. `digest`: crc32 of the arguments of a step, else 0.
    """

    seq: int
    kind: int
    path: str
    name: str
    value: bytes
    at: float
    attempt: int = 1
    started: float = 0.0  # when the attempt that ended began; 0 = does not apply
    digest: int = 0


class Note(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Something that the code of a run has said, a NoteKind, at a time of the run.

    `name`: of the value or stream; of an answer, the uid of its question. `number`: higher than of
    all that this generation of the run has said before, and the same when a replay says it again.
    """

    kind: int
    name: str
    number: int
    value: bytes
    at: Time


class OpenOp(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A begun operation that has not ended.

    `due` = wall time at which it wants attention, None = none.
    """

    path: str
    kind: str  # "sleep", "wait", "ask", "deadline", "retry", "child", "remote"
    name: str
    due: Time | None
    attempt: int = 0  # failures so far
    value: bytes = b""  # retry: the last error; child, remote: the id (utf-8)


class InboxRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message to a run, waiting to be absorbed."""

    id: int
    run: int
    kind: int
    uid: str  # made by the sender: the same uid twice is stored once
    name: str  # signal: its name; cancel: "cancel"; child ended: the child's id
    path: str
    status: int  # child ended: Status
    value: bytes
    at: float


class Claimed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A run handed to a worker, with all that is needed to go on."""

    run: int
    id: str
    kind: int
    name: str
    version: int
    queue: str
    fence: int
    attempts: int  # failures so far (tasks and node jobs)
    crashes: int  # claims in a row whose worker died before any progress
    phase: int
    priority: int
    nonce: int
    generation: int
    created: float
    due: float | None  # when it was to start (scheduled_at), else None
    deadline: float | None
    parent: int | None
    parent_id: str | None
    parent_path: str | None
    args: bytes
    error: bytes  # the last error of a retried task, of a held or of a reopened run
    options: bytes
    # The fence follows that in `Claim.live`: args, counts, parent, error, journal, ops not read.
    live: bool
    journal: Sequence[Record]
    open_ops: Sequence[OpenOp]
    inbox: Sequence[InboxRow]


def born(run: int, new: NewRun) -> Claimed:
    """Return a new run as the worker gets it for which it was started."""
    return Claimed(
        run, new.id, new.kind, new.name, new.version, new.queue, 1, 0, 0, 0, new.priority,
        new.nonce, 0, new.at, new.due, new.deadline, None, None, None, new.args, b"",
        new.options, False, (), (), (),
    )  # fmt: skip

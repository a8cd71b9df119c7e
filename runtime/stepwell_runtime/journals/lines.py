"""The lines of an exported file, as docs/reference/export-format.md describes them."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from stepwell_queue.contract import (
    AnswerCopy,
    AuditRow,
    FailedAttempt,
    InboxKind,
    InboxRow,
    Item,
    Kind,
    OpenOp,
    Phase,
    Record,
    RecordKind,
    Rollback,
    RunCopy,
    Status,
    ValueRow,
)

FORMAT: Final = 1
MOST_BYTES: Final = 96 * 1024 * 1024
"""Bytes of one line."""
MOST_OF_RUN: Final = 4 * MOST_BYTES
"""Bytes of all lines of one run."""

Text = Annotated[str, Meta(max_length=10_000)]
Id = Annotated[str, Meta(min_length=1, max_length=1000, pattern=r"^[^\x00]+\Z")]
Number = Annotated[int, Meta(ge=0, le=2**31)]
Wide = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Time = Annotated[float, Meta(ge=-1e15, le=1e15)]
Word = Annotated[str, Meta(max_length=100)]


class Heading(msgspec.Struct, frozen=True, tag_field="line", tag="stepwell-runs"):
    version: int
    release: Text = ""
    exported_at: Text = ""


class RunLine(msgspec.Struct, frozen=True, tag_field="line", tag="run", omit_defaults=True):
    id: Id
    kind: Word
    name: Id
    version: Wide
    queue: Id
    status: Word
    created: Time
    nonce: Wide
    args: bytes
    records: Number
    open: Number
    messages: Number
    audit: Number
    phase: Word = "forward"
    rollback: Word = "none"
    priority: Wide = 0
    attempts: Number = 0
    crashes: Number = 0
    fence: Number = 0
    generation: Number = 0
    started: Time | None = None
    ended: Time | None = None
    scheduled: Time | None = None
    deadline: Time | None = None
    waiting: Text = ""
    parent_id: Id | None = None
    parent_path: Text | None = None
    digest: Annotated[bytes, Meta(max_length=1000)] = b""
    options: Annotated[bytes, Meta(max_length=1_000_000)] = b""
    value: bytes = b""
    failures: Number = 0
    values: Number = 0
    items: Number = 0
    answers: Number = 0
    key: Text = ""
    again: Word = ""
    due: Time | None = None
    said: tuple[Number, Annotated[int, Meta(ge=0, le=2**63 - 1)]] | None = None
    shown: Any = None


class RecordLine(msgspec.Struct, frozen=True, tag_field="line", tag="record", omit_defaults=True):
    seq: Number
    kind: Word
    path: Text
    name: Text
    value: bytes
    at: Time
    attempt: Number = 1
    started: Time = 0.0
    digest: Wide = 0
    shown: Any = None


class OpenLine(msgspec.Struct, frozen=True, tag_field="line", tag="open", omit_defaults=True):
    path: Text
    kind: Word
    name: Text
    due: Time | None = None
    attempt: Number = 0
    value: bytes = b""
    shown: Any = None


class MessageLine(msgspec.Struct, frozen=True, tag_field="line", tag="message", omit_defaults=True):
    kind: Word
    uid: Id
    name: Text
    at: Time
    path: Text = ""
    status: Word = ""
    value: bytes = b""
    shown: Any = None


class AuditLine(msgspec.Struct, frozen=True, tag_field="line", tag="audit"):
    at: Time
    action: Text
    actor: Annotated[str, Meta(max_length=100_000)]
    reason: Annotated[str, Meta(max_length=100_000)]


class FailureLine(msgspec.Struct, frozen=True, tag_field="line", tag="failure", omit_defaults=True):
    number: Number
    started: Time
    ended: Time
    worker: Text
    crashed: bool = False
    error: bytes = b""
    shown: Any = None


class ValueLine(msgspec.Struct, frozen=True, tag_field="line", tag="value", omit_defaults=True):
    name: Text
    value: bytes
    at: Time
    shown: Any = None


class ItemLine(msgspec.Struct, frozen=True, tag_field="line", tag="item", omit_defaults=True):
    stream: Text
    value: bytes
    at: Time
    path: Text = ""
    attempt: Number = 1
    shown: Any = None


class AnswerLine(msgspec.Struct, frozen=True, tag_field="line", tag="answer", omit_defaults=True):
    uid: Id
    value: bytes
    at: Time
    refused: bool = False
    shown: Any = None


class End(msgspec.Struct, frozen=True, tag_field="line", tag="end"):
    runs: Number


Part: TypeAlias = (
    RecordLine
    | OpenLine
    | MessageLine
    | AuditLine
    | FailureLine
    | ValueLine
    | ItemLine
    | AnswerLine
)
Line: TypeAlias = Heading | RunLine | Part | End
encode: Final = msgspec.json.Encoder().encode
decode: Final = msgspec.json.Decoder(Line).decode

E = TypeVar("E", bound=enum.IntEnum)


def word(member: enum.IntEnum) -> str:
    return member.name.lower()


def number(words: type[E], given: str) -> int:
    """Return what a word stands for. Raises ValueError."""
    for member in words:
        if word(member) == given:
            return int(member)
    raise ValueError(f"{given!r} is no {words.__name__} that this release knows")


def run_line(copy: RunCopy, shown: Any) -> RunLine:
    run = copy.run
    return RunLine(
        id=run.id,
        kind=word(Kind(run.kind)),
        name=run.name,
        version=run.version,
        queue=run.queue,
        status=word(Status(copy.status)),
        created=run.at,
        nonce=run.nonce,
        args=run.args,
        records=len(copy.journal),
        open=len(copy.open_ops),
        messages=len(copy.inbox),
        audit=len(copy.audit),
        phase=word(Phase(copy.phase)),
        rollback=word(Rollback(copy.rollback)),
        priority=run.priority,
        attempts=copy.attempts,
        crashes=copy.crashes,
        fence=copy.fence,
        generation=copy.generation,
        started=copy.started,
        ended=copy.ended,
        scheduled=run.due,
        deadline=run.deadline,
        waiting=copy.waiting,
        parent_id=copy.parent_id,
        parent_path=copy.parent_path,
        digest=run.digest,
        options=run.options,
        value=copy.value,
        failures=len(copy.failures),
        values=len(copy.values),
        items=len(copy.items),
        answers=len(copy.answers),
        key=run.terms.key if run.terms is not None else "",
        again=word(Status(copy.again)) if copy.again is not None else "",
        due=copy.due,
        said=copy.said,
        shown=shown,
    )


def record_line(one: Record, shown: Any) -> RecordLine:
    kind = word(RecordKind(one.kind))
    return RecordLine(
        one.seq, kind, one.path, one.name, one.value, one.at, one.attempt, one.started, one.digest,
        shown,
    )  # fmt: skip


def record_of(line: RecordLine) -> Record:
    return Record(
        line.seq, number(RecordKind, line.kind), line.path, line.name, line.value, line.at,
        line.attempt, line.started, line.digest,
    )  # fmt: skip


def open_line(op: OpenOp, shown: Any) -> OpenLine:
    return OpenLine(op.path, op.kind, op.name, op.due, op.attempt, op.value, shown)


def open_of(line: OpenLine) -> OpenOp:
    return OpenOp(line.path, line.kind, line.name, line.due, line.attempt, line.value)


def message_line(row: InboxRow, shown: Any) -> MessageLine:
    kind = word(InboxKind(row.kind))
    status = word(Status(row.status)) if row.kind == InboxKind.CHILD_ENDED else ""
    return MessageLine(kind, row.uid, row.name, row.at, row.path, status, row.value, shown)


def message_of(line: MessageLine) -> InboxRow:
    status = number(Status, line.status) if line.status else 0
    kind = number(InboxKind, line.kind)
    return InboxRow(0, 0, kind, line.uid, line.name, line.path, status, line.value, line.at)


def audit_line(row: AuditRow) -> AuditLine:
    return AuditLine(row.at, row.action, row.actor, row.reason)


def audit_of(line: AuditLine) -> AuditRow:
    return AuditRow(line.at, line.action, line.actor, line.reason)


def failure_line(one: FailedAttempt, shown: Any) -> FailureLine:
    return FailureLine(
        one.number, one.started, one.ended, one.worker, one.crashed, one.error, shown
    )


def failure_of(line: FailureLine) -> FailedAttempt:
    return FailedAttempt(
        "", line.number, line.started, line.ended, line.worker, line.crashed, line.error
    )


def value_line(row: ValueRow, shown: Any) -> ValueLine:
    return ValueLine(row.name, row.value, row.at, shown)


def value_of(line: ValueLine) -> ValueRow:
    return ValueRow(line.name, line.value, line.at)


def item_line(item: Item, shown: Any) -> ItemLine:
    return ItemLine(item.stream, item.value, item.at, item.path, item.attempt, shown)


def item_of(line: ItemLine) -> Item:
    return Item(line.stream, line.value, line.at, line.path, line.attempt)


def answer_line(one: AnswerCopy, shown: Any) -> AnswerLine:
    return AnswerLine(one.uid, one.value, one.at, one.refused, shown)


def answer_of(line: AnswerLine) -> AnswerCopy:
    return AnswerCopy(line.uid, line.refused, line.value, line.at)

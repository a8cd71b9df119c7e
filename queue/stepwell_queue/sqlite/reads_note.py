"""What is read of what runs say, and of their histories as they grow."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from stepwell_queue.contract import (
    AnswerRow,
    AuditEntry,
    EventPage,
    ItemRow,
    ListStreams,
    ReadAnswer,
    ReadEvents,
    ReadState,
    ReadStream,
    ReadValues,
    Record,
    RecordKind,
    RemoteStep,
    RunState,
    StreamRow,
    ValueRow,
)
from stepwell_queue.contract.notes import ITEMS_AT_ONCE
from stepwell_queue.errors import RunNotFound
from stepwell_queue.sqlite.reads import Reads
from stepwell_queue.sqlite.statements import SQL

_PAGE: Final = 256 * 1024
_RECORDS: Final = 200
_CHILDREN: Final = frozenset(
    (RecordKind.CHILD_OK, RecordKind.CHILD_FAILED, RecordKind.CHILD_CANCELLED)
)
_seqs: Final = msgspec.msgpack.Decoder(list[int]).decode


async def read_state(reads: Reads, query: ReadState) -> RunState:
    found = await reads.rows(SQL["state_of"], (query.id,))
    if not found:
        raise RunNotFound(query.id)
    return RunState(*found[0])


async def _number(reads: Reads, id: str) -> int:
    return (await read_state(reads, ReadState(id))).run


async def read_values(reads: Reads, query: ReadValues) -> list[ValueRow]:
    run = await _number(reads, query.id)
    return [ValueRow(*row) for row in await reads.rows(SQL["values_of"], (run, query.name))]


async def read_answer(reads: Reads, query: ReadAnswer) -> AnswerRow | None:
    run = await _number(reads, query.id)
    for refused, value, at in await reads.rows(SQL["answer_to"], (run, query.uid)):
        return AnswerRow(bool(refused), value, at)
    return None


async def read_stream(reads: Reads, query: ReadStream) -> list[ItemRow]:
    run, limit = await _number(reads, query.id), min(query.limit, ITEMS_AT_ONCE)
    if limit < 1 or query.after >= 2**62:
        return []
    where = (run, query.stream, query.after + 1)
    rows = await reads.rows(SQL["stream_page"], (*where, *where, limit, _PAGE))
    return [ItemRow(*row) for row in rows]


async def list_streams(reads: Reads, query: ListStreams) -> list[StreamRow]:
    run = await _number(reads, query.id)
    return [StreamRow(*row) for row in await reads.rows(SQL["streams_of"], (run,))]


async def read_events(reads: Reads, query: ReadEvents) -> EventPage:
    run = await _number(reads, query.id)
    audit = await reads.rows(SQL["audit_after"], (run, query.entry))
    where = (run, query.seq + 1)
    rows: list[Any] = await reads.rows(SQL["journal_page"], (*where, *where, _RECORDS, _PAGE))
    records = [Record(*row) for row in rows]
    voided: list[int] = []
    remote: list[RemoteStep] = []
    if records:
        for (value,) in await reads.rows(SQL["reopened_of"], (run,)):
            voided += [seq for seq in _seqs(value) if seq >= records[0].seq]
        paths = [record.path for record in records if record.kind in _CHILDREN]
        if paths:
            found = await reads.rows(SQL["remote_at"], (run, json.dumps(paths)))
            remote = [RemoteStep(*row) for row in found]
    return EventPage(records, voided, remote, [AuditEntry(*row) for row in audit])

"""Runs of a store as the lines of a file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from importlib import metadata
from typing import Any

import msgspec

from stepwell_queue.clock import utc
from stepwell_queue.contract import InboxKind, RecordKind, RunCopy, Status, Store
from stepwell_runtime.codec import Codec
from stepwell_runtime.journals import lines
from stepwell_runtime.journals.reading import standing_copy
from stepwell_runtime.launch import Arguments

_arguments = msgspec.msgpack.Decoder(Arguments).decode
_seqs = msgspec.msgpack.Decoder(list[int]).decode


async def written(
    store: Store, codec: Codec, ids: AsyncIterable[str], *, children: bool
) -> AsyncGenerator[bytes]:
    """Yield the lines of a file of these runs, each with its children if wanted.

    Raises RunNotFound.
    """
    release = await asyncio.to_thread(metadata.version, "stepwell")
    at = utc(store.clock.now())
    yield _line(lines.Heading(lines.FORMAT, release, at.isoformat(timespec="microseconds")))
    done: set[str] = set()
    async for wanted in ids:
        pending = [wanted]
        while pending:
            id = pending.pop()
            if id in done:
                continue
            copy, below = await standing_copy(store, id)
            done.add(id)
            for line in copy_lines(copy, codec):
                yield line
            if children:
                pending += reversed(below)
    yield _line(lines.End(len(done)))


def copy_lines(copy: RunCopy, codec: Codec) -> Iterator[bytes]:
    yield _line(lines.run_line(copy, _of_run(copy, codec)))
    for record in copy.journal:
        yield _line(lines.record_line(record, _of_record(record.kind, record.value, codec)))
    for op in copy.open_ops:
        shown = op.value.decode() if op.kind in ("child", "remote") else _of(op.value, codec)
        yield _line(lines.open_line(op, shown))
    for row in copy.inbox:
        shown = _of(row.value, codec) if row.kind != InboxKind.QUESTION else None
        yield _line(lines.message_line(row, shown))
    for audit in copy.audit:
        yield _line(lines.audit_line(audit))
    for failed in copy.failures:
        yield _line(lines.failure_line(failed, _of(failed.error, codec)))
    for value in copy.values:
        yield _line(lines.value_line(value, _of(value.value, codec)))
    for item in copy.items:
        yield _line(lines.item_line(item, _of(item.value, codec)))
    for answer in copy.answers:
        yield _line(lines.answer_line(answer, _of(answer.value, codec)))


def _line(line: lines.Line) -> bytes:
    return lines.encode(line) + b"\n"


def _of_run(copy: RunCopy, codec: Codec) -> Any:
    positional, named = _arguments(copy.run.args)
    ended = copy.status == Status.COMPLETED
    return {
        "arguments": [codec.to_json(one) for one in positional],
        "named": {name: codec.to_json(one) for name, one in named.items()},
        "result" if ended else "error": _of(copy.value, codec),
        "created_at": utc(copy.run.at).isoformat(),
    }


def _of_record(kind: int, value: bytes, codec: Codec) -> Any:
    if kind == RecordKind.STARTED:
        return value.decode()
    if kind == RecordKind.REOPEN:
        return _seqs(value) if value else None
    return _of(value, codec)


def _of(value: bytes, codec: Codec) -> Any:
    return codec.to_json(value) if value else None

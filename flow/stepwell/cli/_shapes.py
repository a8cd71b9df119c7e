"""The documented JSON shapes; docs/reference/cli.md lists them, and a test compares."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

import msgspec

from stepwell._app.reports import Progress
from stepwell._app.views import RECORD_KINDS, RunInfo, moment, run_info, value_of, voided_by
from stepwell_queue import contract
from stepwell_queue.contract import InboxKind, RecordKind, Status
from stepwell_runtime.codec import Codec, DecodingError, ErrorInfo

Shape = dict[str, Any]
_FAILURES = frozenset(
    (RecordKind.STEP_FAILED, RecordKind.STEP_CUT, RecordKind.CHILD_FAILED, RecordKind.FAILURE)
)
RESTING = ("parked", "rolling_back")  # statuses in which `waiting` says something
_arguments = msgspec.msgpack.Decoder(tuple[list[bytes], dict[str, bytes]])


def iso(found: datetime | None) -> str | None:
    return None if found is None else found.isoformat(timespec="microseconds")


def iso_of(seconds: float | None) -> str | None:
    return iso(moment(seconds))


def run_shape(run: RunInfo) -> Shape:
    return {
        key: iso(value) if isinstance(value, datetime) else value
        for key, value in asdict(run).items()
    }


def worker_shape(worker: contract.WorkerInfo) -> Shape:
    return {
        "worker": worker.worker,
        "name": worker.name,
        "host": worker.host,
        "pid": worker.pid,
        "started_at": iso_of(worker.started),
        "queues": list(worker.queues),
        "serves": list(worker.names),
        "alive": worker.alive,
        "state": worker.state,
        "held": worker.held,
        "holding": dict(worker.holding),
    }


def finding_shape(finding: contract.Finding) -> Shape:
    return {"rule": finding.rule, "run_id": finding.run_id, "detail": finding.detail}


def history_shape(found: contract.History, codec: Codec) -> Shape:
    run = found.run
    voided = {
        seq
        for record in found.journal
        if record.kind == RecordKind.REOPEN
        for seq in voided_by(record)
    }
    return {
        **run_shape(run_info(run, codec)),
        "parent_path": run.parent_path,
        "worker": run.worker,
        "arguments": arguments_shape(run.args, codec),
        "result": codec.to_json(run.value) if run.status == Status.COMPLETED else None,
        "failure": None if run.status == Status.COMPLETED else failure_in(run.value, codec),
        "failures": [failed_attempt_shape(one, codec) for one in found.failures],
        "journal": [record_shape(record, codec, record.seq in voided) for record in found.journal],
        "open": [open_shape(op, codec) for op in found.open_ops],
        "unread": [unread_shape(row, codec) for row in found.inbox],
        "children": [
            {**run_shape(run_info(child, codec)), "parent_path": child.parent_path}
            for child in found.children
        ],
        "audit": [
            {"at": iso_of(row.at), "action": row.action, "actor": row.actor, "reason": row.reason}
            for row in found.audit
        ],
    }


def failed_attempt_shape(one: contract.FailedAttempt, codec: Codec) -> Shape:
    return {
        "path": one.path,
        "number": one.number,
        "started_at": iso_of(one.started),
        "ended_at": iso_of(one.ended),
        "worker": one.worker,
        "crashed": one.crashed,
        "failure": failure_in(one.error, codec),
    }


def progress_shape(progress: Progress | None) -> Shape | None:
    if progress is None:
        return None
    return {"fraction": progress.fraction, "note": progress.note, "at": iso(progress.at)}


def arguments_shape(data: bytes, codec: Codec) -> Shape:
    try:
        positional, named = _arguments.decode(data)
    except msgspec.MsgspecError:  # damaged: the rest of the run is worth showing
        return {"positional": [codec.to_json(data)], "named": {}}
    return {
        "positional": [codec.to_json(one) for one in positional],
        "named": {name: codec.to_json(one) for name, one in named.items()},
    }


def record_shape(record: contract.Record, codec: Codec, voided: bool) -> Shape:
    kind, outcome = RECORD_KINDS[record.kind]
    failed = record.kind in _FAILURES
    value: object = None
    if record.kind == RecordKind.REOPEN:
        value = voided_by(record)
    elif record.kind == RecordKind.STARTED:
        value = record.value.decode()  # the child's id
    elif record.value and not failed:
        value = codec.to_json(value_of(record))
    return {
        "seq": record.seq,
        "path": record.path,
        "kind": kind,
        "name": record.name,
        "outcome": outcome,
        "undo": record.path.startswith("~"),
        "attempt": record.attempt,
        "started_at": iso_of(record.started),
        "at": iso_of(record.at),
        "value": value,
        "failure": failure_in(record.value, codec) if failed else None,
        "voided": voided,
    }


def open_shape(op: contract.OpenOp, codec: Codec) -> Shape:
    return {
        "path": op.path,
        "kind": op.kind,
        "name": op.name,
        "undo": op.path.startswith("~"),
        "failures": op.attempt,
        "due_at": iso_of(op.due),
        "run_id": op.value.decode() if op.kind in ("child", "remote") else None,
        "failure": failure_in(op.value, codec) if op.kind == "retry" else None,
    }


def unread_shape(row: contract.InboxRow, codec: Codec) -> Shape:
    return {
        "kind": InboxKind(row.kind).name.lower(),
        "name": row.name,
        "at": iso_of(row.at),
        "value": codec.to_json(row.value) if row.value else None,
    }


def failure_in(data: bytes, codec: Codec) -> Shape | None:
    """Return the stored exception; None where there is none, as for the reason of a cancel."""
    if not data:
        return None
    try:
        return failure_shape(codec.error_info(data))
    except DecodingError:
        return None


def failure_shape(info: ErrorInfo) -> Shape:
    return {
        "type": info.type,
        "module": info.module,
        "message": info.message,
        "notes": list(info.notes),
        "frames": [
            {"file": file, "line": line, "function": function}
            for file, line, function in info.frames
        ],
        "cause": None if info.cause is None else failure_shape(info.cause),
        "members": [failure_shape(member) for member in info.members],
    }

"""What a copy from outside has to be, so that nobody who looks at it fails."""

from __future__ import annotations

from typing import Final

import msgspec

from stepwell_queue.contract import InboxKind, RecordKind, RunCopy, Status
from stepwell_runtime.codec import Codec
from stepwell_runtime.launch import Arguments
from stepwell_runtime.policy import StoredOptions

_arguments: Final = msgspec.msgpack.Decoder(Arguments).decode
_options: Final = msgspec.msgpack.Decoder(StoredOptions).decode
_seqs: Final = msgspec.msgpack.Decoder(list[int]).decode
_ERRORS: Final = frozenset((RecordKind.STEP_FAILED, RecordKind.CHILD_FAILED, RecordKind.FAILURE))
_FAILED: Final = frozenset((Status.FAILED, Status.HELD, Status.STUCK))


def check(copy: RunCopy, codec: Codec) -> None:
    """Refuse what cannot be shown. Raises ValueError, DecodingError, MsgspecError."""
    _arguments(copy.run.args)
    if copy.run.options:
        _options(copy.run.options)
    if copy.value and copy.status != Status.COMPLETED:
        failed = copy.status in _FAILED
        if failed or not isinstance(codec.to_json(copy.value), str):
            codec.error_info(copy.value)
    _check_journal(copy, codec)
    _check_open(copy, codec)
    for one in copy.failures:
        if one.error:
            codec.error_info(one.error)
    for row in copy.inbox:
        if row.kind == InboxKind.CHILD_ENDED and row.status < Status.COMPLETED:
            raise ValueError(f"the end of {row.name!r}, which had not ended")


def _check_journal(copy: RunCopy, codec: Codec) -> None:
    for place, record in enumerate(copy.journal):
        if record.seq != place:
            raise ValueError(
                f"record {record.seq} of run {copy.run.id!r}, where {place} is to come"
            )
        if record.kind in _ERRORS or (record.kind == RecordKind.STEP_CUT and record.value):
            codec.error_info(record.value)
        elif record.kind == RecordKind.STARTED:
            record.value.decode()
        elif record.kind == RecordKind.REOPEN and record.value:
            _seqs(record.value)


def _check_open(copy: RunCopy, codec: Codec) -> None:
    if len({op.path for op in copy.open_ops}) < len(copy.open_ops):
        raise ValueError(f"two open operations of run {copy.run.id!r} at one path")
    for op in copy.open_ops:
        if op.kind in ("child", "remote"):
            op.value.decode()
        elif op.kind == "retry" and op.value:
            codec.error_info(op.value)

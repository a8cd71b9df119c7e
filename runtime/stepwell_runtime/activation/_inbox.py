"""What others have told a run, on its way into the journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from stepwell_queue.contract import InboxKind, InboxRow, Phase, Record, RecordKind, Status
from stepwell_runtime.activation._work import LARGE_WRITE, RECORDED
from stepwell_runtime.core.talking import pack_question
from stepwell_runtime.errors import RunExpired, RunTerminated
from stepwell_runtime.steering import reason_of

if TYPE_CHECKING:
    from stepwell_runtime.activation._activation import Activation

_SIGNAL, _RETRY = int(InboxKind.SIGNAL), int(InboxKind.RETRY)
_PAUSE: Final = int(InboxKind.PAUSE)
_RESUME_ROLLBACK = int(InboxKind.RESUME_ROLLBACK)
_CHILD_RECORD = {
    Status.COMPLETED: RecordKind.CHILD_OK,
    Status.FAILED: RecordKind.CHILD_FAILED,
    Status.EXPIRED: RecordKind.CHILD_FAILED,
    Status.TERMINATED: RecordKind.CHILD_FAILED,
}


class Inbox:
    """Turns inbox rows into journal records, which are delivered once committed."""

    __slots__ = ("_activation", "_seen")

    def __init__(self, activation: Activation) -> None:
        self._activation = activation
        self._seen: set[int] = set()  # a row may be told twice

    def absorb(self, rows: Sequence[InboxRow]) -> None:
        records: list[Record] = []
        absorbed: list[int] = []
        phase: int | None = None
        size = 0
        for row in rows:
            if row.id in self._seen:
                continue
            self._seen.add(row.id)
            if row.kind == _PAUSE:  # the store pauses the run as soon as it is handed back
                self._activation.pause()
                continue
            if row.kind == _RETRY:
                self._activation.retry = row
                continue
            if row.kind == _RESUME_ROLLBACK:
                phase = Phase.ROLLING_BACK
            if size > LARGE_WRITE:
                self._append(records, absorbed, phase)
                records, absorbed, size = [], [], 0
            records.append(self._record(row))
            absorbed.append(row.id)
            size += len(row.value)
        if records:
            self._append(records, absorbed, phase)

    def _append(self, records: list[Record], absorbed: list[int], phase: int | None) -> None:
        closed = [record.path for record in records if record.path]
        self._activation.journal.append(records, closed=closed, absorbed=absorbed, phase=phase)

    def _record(self, row: InboxRow) -> Record:
        activation, kind = self._activation, row.kind
        record = activation.journal.record
        if kind == _SIGNAL:
            return record(RecordKind.SIGNAL, "", row.name, row.value)
        if kind == InboxKind.QUESTION:
            asked = pack_question((row.uid, row.value))
            return record(RecordKind.QUESTION, "", row.name, asked)
        if kind == InboxKind.CANCEL:
            activation.never_hold = True
            return record(RecordKind.CANCEL, "", "cancel", row.value)
        if kind == InboxKind.CHILD_ENDED:
            word = _CHILD_RECORD.get(Status(row.status), RecordKind.CHILD_CANCELLED)
            value = row.value
            codec = activation.worker.codec
            error: Exception | None = None  # to the code that waits these are failures
            if row.status == Status.EXPIRED:
                error = RunExpired(row.name)
            elif row.status == Status.TERMINATED:
                error = RunTerminated(row.name, reason_of(codec, value))
            if error is not None:
                value = codec.encode_error(error, f"run {activation.id!r}")
            work = activation.works.get(row.path)
            if work is None or work.child_id != row.name:
                # Detached, or nobody waits for it any more: at its path another one may run since.
                return record(word, "", row.name, value)
            work.stage = RECORDED
            return record(word, row.path, work.op.name, value)
        if kind == InboxKind.ROLL_BACK:
            activation.never_hold = True
            return record(RecordKind.ROLL_BACK, "", row.name, row.value)
        assert kind == _RESUME_ROLLBACK
        return record(RecordKind.REOPEN, "", "resume_rollback")

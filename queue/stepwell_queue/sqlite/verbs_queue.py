"""What is said to a queue as a whole."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from stepwell_queue.contract import PauseQueue, PurgeQueue, QueueSettings, ResumeQueue, SetQueue
from stepwell_queue.errors import RequestRefused
from stepwell_queue.sqlite.ageing import drop as drop_ageing
from stepwell_queue.sqlite.heard import uids_in, with_uid
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tell import cancel
from stepwell_queue.sqlite.tx import Tx

_ROW, _PUT, _PAUSE, _RESUME = (
    SQL["queue_row"], SQL["put_queue"], SQL["pause_queue"], SQL["resume_queue"],
)  # fmt: skip
_HEARD, _NOTE_HEARD = SQL["heard_of_queue"], SQL["note_heard"]
_OPEN, _DROP_BUCKETS = SQL["open_targets"], SQL["drop_buckets"]
_UNCLAIMED: Final = SQL["unclaimed_in_queue"]
MOST_PURGED: Final = 10_000
_LARGEST: Final = 2**63 - 1

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(QueueSettings).decode


def set_queue(tx: Tx, verb: SetQueue) -> None:
    _refuse_absurd(verb)
    if _is_heard(tx, verb):
        return
    row = tx.one(_ROW, (verb.queue,))
    paused, stored, declared, since = row or (0, "{}", "", None)
    if verb.declared is not None and verb.declared == declared:
        return
    before = _decode(stored)
    settings = verb.settings if verb.only is None else _changed(before, verb)
    if before.ageing != settings.ageing:
        if before.ageing is not None:
            drop_ageing(tx, verb.queue)
        since = None if settings.ageing is None else tx.now
    if (before.rate, before.key_rate) != (settings.rate, settings.key_rate):
        tx.execute(_DROP_BUCKETS, (verb.queue,))
    name = declared if verb.declared is None else verb.declared
    tx.execute(_PUT, (verb.queue, _encode(settings).decode(), settings.gated, name, since))
    _set_targets(tx, verb.queue, is_open=not (paused or settings.gated))


def _is_heard(tx: Tx, verb: SetQueue | PauseQueue | ResumeQueue) -> bool:
    """Whether this change was made before: it must not undo what others have said since."""
    if not verb.uid:
        return False
    row = tx.one(_HEARD, (verb.queue,))
    heard = [] if row is None else uids_in(row[0])
    if verb.uid in heard:
        return True
    tx.execute(_NOTE_HEARD, (verb.queue, with_uid(heard, verb.uid)))
    return False


def _changed(before: QueueSettings, verb: SetQueue) -> QueueSettings:
    changes = {name: getattr(verb.settings, name) for name in verb.only or ()}
    return replace(before, **changes)


def pause_queue(tx: Tx, verb: PauseQueue) -> None:
    if not _is_heard(tx, verb):
        tx.execute(_PAUSE, (verb.queue, verb.until, verb.reason))
        _set_targets(tx, verb.queue, is_open=False)


def resume_queue(tx: Tx, verb: ResumeQueue) -> None:
    if not _is_heard(tx, verb):
        resume(tx, verb.queue)


def resume(tx: Tx, queue: str) -> None:
    tx.execute(_RESUME, (queue,))
    if tx.cursor.rowcount:
        settings = _decode(tx.one(_ROW, (queue,))[1])
        _set_targets(tx, queue, is_open=not settings.gated)


def _set_targets(tx: Tx, queue: str, *, is_open: bool) -> None:
    tx.execute(_OPEN, (is_open, queue))
    tx.gates_changed()


def purge_queue(tx: Tx, verb: PurgeQueue) -> int:
    queue, limit = verb.queue, max(0, min(verb.limit, MOST_PURGED))  # SQLite takes -1 for all
    runs = tx.execute(_UNCLAIMED, (queue, queue, queue, queue, limit)).fetchall()
    for (run,) in runs:
        cancel(tx, run, f"purge-{verb.at!r}", verb.reason, verb.at)
    return len(runs)


def _refuse_absurd(verb: SetQueue) -> None:
    settings = verb.settings
    unknown = set(verb.only or ()).difference(QueueSettings.__struct_fields__)
    if unknown:
        raise RequestRefused(f"queue {verb.queue!r} has no setting {', '.join(sorted(unknown))}")
    for name in ("limit", "key_limit", "max_length", "keep_count"):
        value = getattr(settings, name)
        least = 0 if name == "keep_count" else 1
        if value is not None and not least <= value <= _LARGEST:
            raise RequestRefused(
                f"queue {verb.queue!r}: {name} must be from {least} to {_LARGEST}, not {value}"
            )
    for name in ("rate", "key_rate"):
        rate = getattr(settings, name)
        if rate is not None and not (
            0 < rate.count <= _LARGEST and 0 < rate.burst <= _LARGEST and 0 < rate.per < 1e9
        ):
            raise RequestRefused(
                f"queue {verb.queue!r}: {name} must allow at least 1 start in a span over 0 seconds"
            )
    if settings.keep_age is not None and not 0 <= settings.keep_age < 1e12:
        raise RequestRefused(
            f"queue {verb.queue!r}: keep_age is a span in seconds, not {settings.keep_age!r}"
        )
    if settings.ageing is not None and not 0 < settings.ageing < 1e9:
        raise RequestRefused(
            f"queue {verb.queue!r}: ageing is a span over 0 seconds, not {settings.ageing!r}"
        )

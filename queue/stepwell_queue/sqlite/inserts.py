"""What every way of inserting a run has in common."""

from __future__ import annotations

from typing import Any, Final

from stepwell_queue.contract import NewRun, Started, Status, born
from stepwell_queue.errors import IdConflict
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import INLINE, Tx

_FIND, _WHERE, _RECORD_AT = SQL["find_run"], SQL["where_held"], SQL["record_at"]
_RUNNING: Final = int(Status.RUNNING)
ARGS, VALUE = 0, 1
"""Roles of blobs."""


def row_of(new: NewRun, target: int, now: float) -> tuple[Any, ...]:
    """What every run has; a bytearray is bound several times faster than bytes."""
    args = new.args
    return (
        new.id, target, new.priority, new.nonce, new.at, now, bytearray(new.digest),
        bytearray(new.options), bytearray(args) if len(args) <= INLINE else None,
    )  # fmt: skip


def future(new: NewRun, now: float) -> float | None:
    """When a run is due, unless that has passed."""
    return new.due if new.due is not None and new.due > now else None


def existing(tx: Tx, new: NewRun, worker: int | None = None) -> Started | None:
    """Answer a start whose run is there already; None: it is not. Raises IdConflict."""
    found = tx.one(_FIND, (new.id,))
    if found is None:
        return None
    run, kind, name, version, digest, nonce, status, _, _ = found
    created = nonce == new.nonce  # then this is said again, and its answer may have got lost
    same_signature = digest[:4] == new.digest[:4]
    if (kind, name, version) != (new.kind, new.name, new.version) and not created:
        raise IdConflict(
            new.id, f"{name} (version {version})", f"{new.name} (version {new.version})"
        )
    if same_signature and digest != new.digest and not created:
        raise IdConflict(new.id, f"{name} with other arguments", f"{new.name} with these arguments")
    claimed = None
    if created and worker is not None and tx.one(_WHERE, (run,))[:3] == (_RUNNING, worker, 1):
        claimed = born(run, new) if tx.one(_RECORD_AT, (run, 0)) is None else None
    return Started(run, new.id, created, status, claimed)

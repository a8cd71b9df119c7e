"""A run as it stands in a store, all of it from one moment."""

from __future__ import annotations

from typing import Final

from stepwell_queue.contract import History, NewRun, RunCopy, RunInfo, Status, Store
from stepwell_queue.errors import StepwellError

_TRIES: Final = 50
_MOVING: Final = frozenset((Status.READY, Status.RUNNING))


async def standing_history(store: Store, id: str) -> History | None:
    """Return everything that is known of a run; None = there is no such run.

    A store reads the rows of a run one table after the other, and a run that is executed moves on
    meanwhile: so it is read until it stood still. Raises StepwellError if it never does.
    """
    for _ in range(_TRIES):
        found = await store.history(id)
        if found is None:
            return None
        after = await store.info(id)
        if after is None:
            return None
        if _mark(found.run) != _mark(after):
            continue
        if found.run.status not in _MOVING:
            return found
        again = await store.history(id)
        if again is not None and _same(found, again):
            return again
    raise StepwellError(f"run {id!r} moves on faster than it can be read: try again, or pause it")


def _mark(run: RunInfo) -> tuple[int, int, int, float]:
    return run.status, run.phase, run.fence, run.updated


def _same(one: History, other: History) -> bool:
    return (
        _mark(one.run) == _mark(other.run)
        and len(one.journal) == len(other.journal)
        and one.open_ops == other.open_ops
        and one.inbox == other.inbox
    )


def copy_of(found: History) -> RunCopy:
    """Return a run as a copy of it is stored elsewhere."""
    run = found.run
    return RunCopy(
        NewRun(
            run.id, run.kind, run.name, run.version, run.queue, run.args, run.digest, run.nonce,
            run.created, run.priority, run.scheduled, run.deadline, run.options,
        ),
        run.status, run.phase, run.rollback, run.attempts, run.crashes, run.fence, run.generation,
        run.started, run.ended, run.waiting, run.parent_id, run.parent_path, run.value,
        found.journal, found.open_ops, found.inbox, found.audit,
    )  # fmt: skip

"""How many runs are ready in queues that have a longest length.

They are counted once, and from then on by what is done: by this connection, as long as no other
has written. What is seldom done to them has them counted anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import Tx

_COUNT, _VERSION = SQL["count_ready"], SQL["data_version"]
_OVER: Final = 1000
"""Children and runs that come due are not refused: so many more are counted than there may be."""
_LARGEST: Final = 2**63 - 1
_MANY: Final = 2**62
"""More than were counted."""


def ready_in(tx: Tx, queue: str, limit: int) -> int:
    """How many runs are ready in a queue; if far more than `limit`, any number above that."""
    if not tx.lengths_read:
        tx.lengths_read = True
        version: int = tx.one(_VERSION)[0]
        if version != tx.context.version:  # another connection has written
            tx.lengths.clear()
            tx.context.version = version
    ready = tx.lengths.get(queue)
    if ready is None:
        most = min(limit + _OVER, _LARGEST)
        ready = int(tx.one(_COUNT, (queue, queue, queue, most))[0])
        tx.lengths[queue] = ready = ready if ready < most else _MANY
    return ready


def came_ready(tx: Tx, queue: str) -> None:
    """A new run of the queue is ready."""
    if queue in tx.lengths:
        tx.lengths[queue] += 1


def left_ready(tx: Tx, queues: Iterable[str]) -> None:
    """Runs of these queues, each of which is named for each, have been claimed."""
    for queue in queues:
        ready = tx.lengths.get(queue)
        if ready is not None and ready < _MANY:
            tx.lengths[queue] = ready - 1
        elif ready is not None:
            del tx.lengths[queue]

"""Retention: whole trees of ended runs go, oldest first, in bounded passes."""

from __future__ import annotations

import json
from collections.abc import Sequence

from stepwell_queue.contract import Prune
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import Tx

_TABLES = (
    "journal", "open_ops", "inbox", "blobs", "audit", "terms", "failures", "reports", "log_lines",
    "pauses", "said", "run_values", "stream_items", "answers", "runs",
)  # fmt: skip


def prune(tx: Tx, verb: Prune) -> int:
    bound = _bound(tx, verb)
    if bound is None or verb.limit <= 0:
        return 0
    # What stays since its tree has not ended is passed over once, not by each pass.
    kind, since = tx.context.pruned
    gone = 0
    if kind == (*_queues(verb), bound):
        gone = _pass(tx, verb, bound, since)
    return gone or _pass(tx, verb, bound, 0.0)


def _pass(tx: Tx, verb: Prune, bound: float, since: float) -> int:
    gone: list[int] = []
    which = (*_queues(verb), since, bound, tx.now, verb.limit, verb.limit)
    for root, ended in tx.execute(SQL["prunable"], which).fetchall():
        tree = [run for (run,) in tx.execute(SQL["tree"], (root,)).fetchall()]
        # a tree over the limit goes alone: leaving it would stop retention for ever
        if gone and len(gone) + len(tree) > verb.limit:
            break
        gone += tree
        tx.context.pruned = ((*_queues(verb), bound), ended)
    delete(tx, gone)
    return len(gone)


def delete(tx: Tx, runs: Sequence[int]) -> None:
    """Delete runs with all that belongs to them."""
    key = (json.dumps(runs),)
    for table in _TABLES:
        tx.execute(SQL[f"prune_{table}"], key)


def _queues(verb: Prune) -> tuple[str | None, str]:
    return verb.queue, json.dumps(list(verb.but))


def _bound(tx: Tx, verb: Prune) -> float | None:
    """Runs that ended before this time go; None = none does."""
    bounds = [] if verb.before is None else [verb.before]
    if verb.keep is not None:
        if verb.keep == 0:
            bounds.append(float("inf"))
        else:
            oldest_kept = tx.one(SQL["kept_since"], (*_queues(verb), verb.keep - 1))
            if oldest_kept is not None:
                bounds.append(oldest_kept[0])
    return max(bounds, default=None)

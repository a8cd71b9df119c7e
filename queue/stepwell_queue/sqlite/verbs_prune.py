"""Retention: trees of ended runs that a read has found go, if they still may."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import msgspec

from stepwell_queue.contract import EndedTree, KeepNames, LeaseUpkeep, Prune
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import Tx

TABLES: Final = (
    "journal", "open_ops", "inbox", "blobs", "audit", "terms", "failures", "reports", "log_lines",
    "pauses", "said", "run_values", "stream_items", "answers", "runs",
)  # fmt: skip
"""Those with rows of ended runs. A dependency is a row of a run that waits, so it has not ended."""
_TREE: Final = SQL["tree"].format(must_stay=SQL["must_stay"])
_encode: Final = msgspec.json.Encoder().encode


def prune(tx: Tx, verb: Prune) -> int:
    gone: list[int] = []
    for tree in verb.trees:
        gone += _still(tx, tree)
    delete(tx, gone)
    # Not how many were deleted just now: said again, this is answered as before.
    roots = json.dumps([tree.run for tree in verb.trees])
    left = {run for (run,) in tx.execute(SQL["any_of_trees"], (roots,)).fetchall()}
    return sum([tree.size for tree in verb.trees if tree.run not in left])


def _still(tx: Tx, tree: EndedTree) -> list[int]:
    """Return the runs of a tree that may go, and is as it was found: it was archived like that."""
    rows = tx.execute(_TREE, (tree.run, tx.now)).fetchall()
    if len(rows) != tree.size or sum([fence for _, fence, _ in rows]) != tree.fences:
        return []
    return [] if any(stays for _, _, stays in rows) else [run for run, _, _ in rows]


def delete(tx: Tx, runs: Sequence[int]) -> None:
    """Delete runs with all that belongs to them."""
    if not runs:
        return
    key = (json.dumps(runs),)
    for table in TABLES:
        tx.execute(SQL[f"prune_{table}"], key)


def keep_names(tx: Tx, verb: KeepNames) -> None:
    for one in verb.names:
        if one.keep is None:
            tx.execute(SQL["drop_kept_name"], (one.name,))
        else:
            tx.execute(SQL["put_kept_name"], (one.name, _encode(one).decode()))


def lease_upkeep(tx: Tx, verb: LeaseUpkeep) -> bool:
    tx.execute(SQL["lease_upkeep"], (verb.holder, verb.until, tx.now))
    return tx.cursor.rowcount > 0

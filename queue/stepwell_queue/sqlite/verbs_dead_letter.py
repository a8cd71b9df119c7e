"""Tasks that have failed: taken up again with a fresh budget, or deleted."""

from __future__ import annotations

import json

from stepwell_queue.contract import Ask, PurgeDeadLetters, Requeue
from stepwell_queue.errors import RequestRefused, RunNotFound
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import Tx
from stepwell_queue.sqlite.verbs_client import ask
from stepwell_queue.sqlite.verbs_prune import delete


def requeue(tx: Tx, verb: Requeue) -> int:
    requeued = 0
    for id in dict.fromkeys(verb.ids):
        try:
            ask(tx, Ask(id, verb.uid, "requeue", verb.actor, verb.reason, verb.at))
        except (RequestRefused, RunNotFound):
            continue
        requeued += 1
    return requeued


def purge(tx: Tx, verb: PurgeDeadLetters) -> int:
    ids = list(dict.fromkeys(verb.ids))
    key = (json.dumps(ids),)
    delete(tx, [run for (run,) in tx.execute(SQL["dead_among"], (*key, tx.now)).fetchall()])
    existing: int = tx.one(SQL["count_existing"], key)[0]
    return len(ids) - existing

"""A run begins anew, under its id."""

from __future__ import annotations

from stepwell_queue.contract import Continue
from stepwell_queue.errors import StaleFence
from stepwell_queue.sqlite.inserts import ARGS
from stepwell_queue.sqlite.pauses import pause_now
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import INLINE, Tx
from stepwell_queue.sqlite.verbs_run import gave_up

_CONTINUE, _DROP, _CLOSE_ALL = SQL["continue_run"], SQL["drop_journal"], SQL["close_all_ops"]
_PUT_BACK, _FORGET = SQL["put_back"], SQL["forget_absorbed"]
_BLOB, _DROP_BLOB = SQL["put_blob"], SQL["drop_blob"]


def continue_run(tx: Tx, verb: Continue) -> None:
    run, fence, args = verb.run, verb.fence, verb.args
    large = len(args) > INLINE
    row = (None if large else bytearray(args), verb.at, tx.now, run, fence)
    found = tx.execute(_CONTINUE, row).fetchall()
    if not found:
        if not gave_up(tx, run, fence):
            raise StaleFence(run, fence)
        return
    if large:
        tx.execute(_BLOB, (run, ARGS, args))
    else:
        tx.execute(_DROP_BLOB, (run, ARGS))
    tx.execute(_DROP, (run,))
    tx.execute(_CLOSE_ALL, (run,))
    for kind, name, count in verb.unread:
        tx.execute(_PUT_BACK, (run, kind, name, count))
    tx.execute(_FORGET, (run, run))
    tx.gave_up(run)
    target, to_pause = found[0]
    if to_pause:
        pause_now(tx, run)
    else:
        tx.made_ready(target)

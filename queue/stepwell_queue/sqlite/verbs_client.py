"""What clients and operators say to a run."""

from __future__ import annotations

from stepwell_queue.contract import CancelRun, InboxKind, SendSignal, Status
from stepwell_queue.errors import RunEnded, RunNotFound
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tell import cancel, tell
from stepwell_queue.sqlite.tx import Tx

_ADDRESS, _TOLD, _AUDIT = SQL["address"], SQL["told_already"], SQL["audit"]


def send_signal(tx: Tx, verb: SendSignal) -> None:
    found = tx.one(_ADDRESS, (verb.id,))
    if found is None:
        raise RunNotFound(verb.id)
    run, status = found[:2]
    if status >= Status.COMPLETED:
        if tx.one(_TOLD, (run, verb.uid)) is not None:
            return
        raise RunEnded(verb.id, Status(status).name.lower(), f"the signal {verb.name!r}")
    tell(tx, run, InboxKind.SIGNAL, verb.uid, verb.name, "", 0, verb.value, verb.at)


def cancel_run(tx: Tx, verb: CancelRun) -> int:
    found = tx.one(_ADDRESS, (verb.id,))
    if found is None:
        raise RunNotFound(verb.id)
    if found[1] >= Status.COMPLETED:
        return int(found[1])
    status = cancel(tx, verb.id, verb.uid, verb.reason, verb.at)
    assert status is not None
    tx.execute(_AUDIT, (found[0], verb.uid, verb.at, "cancel", verb.actor, ""))
    return status

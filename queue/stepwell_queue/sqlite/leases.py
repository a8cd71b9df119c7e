"""Leases: one row per worker, in monotonic time of this boot."""

from __future__ import annotations

from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import SessionState, Tx

_RENEW, _REGISTER = SQL["renew"], SQL["register"]


def renew(tx: Tx, session: SessionState) -> None:
    """Extend a lease that is about to be needed: an idle worker does not beat."""
    until = session.lease_end(tx.monotonic, tx.context.lease)
    tx.execute(_RENEW, (until, session.worker))
    if tx.cursor.rowcount == 0:
        # given up for dead by a process that could not see this one's lock
        tx.execute(_REGISTER, (session.worker, *session.row[:6], until, *session.row[7:]))
    session.until = until

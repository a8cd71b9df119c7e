"""Leases: one row per worker, in monotonic time of this boot."""

from __future__ import annotations

from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import SessionState, Tx

_RENEW = SQL["renew"]


def renew(tx: Tx, session: SessionState) -> None:
    """Extend a lease that is about to be needed: an idle worker does not beat."""
    until = tx.monotonic + tx.context.lease
    tx.execute(_RENEW, (until, session.worker))
    session.until = until

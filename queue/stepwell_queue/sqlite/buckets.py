"""Token buckets: how often runs of a queue, or of one of its keys, may start.

A bucket holds up to `burst` tokens and fills by `count` of them each `per` seconds; a start takes
one. It is stored as it was when it was changed last, and only while it is not full.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from stepwell_queue.contract import RateLimit
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import Tx

_BUCKET, _BUCKETS, _PUT = SQL["bucket"], SQL["buckets_of_keys"], SQL["put_bucket"]
_EMPTY, _WAS_FULL = SQL["empty_buckets"], SQL["bucket_was_full"]
_DROP_FULL: Final = SQL["drop_full_buckets"]
_NEARLY: Final = 1e-9
"""Of a token: what adding up parts of one may lose."""
_SHORT: Final = 0.02
"""Seconds that a start may be late, so that several can be claimed at once."""
_ROUNDED: Final = 1e-6
"""Seconds: more than a time loses when it is stored."""


def tokens(tx: Tx, queue: str, lane: int, rate: RateLimit) -> float:
    """What is in a bucket by now."""
    row = tx.one(_BUCKET, (queue, lane))
    return float(rate.burst) if row is None else _filled(tx, queue, lane, row[0], row[1], rate)


def tokens_of_keys(tx: Tx, queue: str, lanes: Sequence[int], rate: RateLimit) -> dict[int, float]:
    """The same for those of these keys of a queue whose buckets are not known to be full."""
    rows = tx.execute(_BUCKETS, (queue, json.dumps(lanes))).fetchall()
    return {lane: _filled(tx, queue, lane, stored, at, rate) for lane, stored, at in rows}


def tokens_of_empty(tx: Tx, queue: str, rate: RateLimit) -> dict[int, float]:
    """The same for all keys of a queue that have no whole one.

    They are found by when they will be full, so that the many that have some are not looked at.
    """
    full = tx.now + (rate.burst - 1) * rate.per / rate.count - _ROUNDED
    rows = tx.execute(_EMPTY, (full, queue)).fetchall()
    return {lane: _filled(tx, queue, lane, stored, at, rate) for lane, stored, at in rows}


def take(tx: Tx, queue: str, lane: int, rate: RateLimit, count: int) -> float:
    """Take tokens, or put some in (`count` < 0); answers the seconds until a claim is worth it."""
    left = min(tokens(tx, queue, lane, rate) - count, float(rate.burst))
    _put(tx, queue, lane, left, rate)
    return until_some(left, rate)


def give_back(tx: Tx, queue: str, lane: int, rate: RateLimit, taken_at: float) -> None:
    """Return a token, unless the bucket has been full since: then it was there again anyhow."""
    row = tx.one(_WAS_FULL, (queue, lane, tx.now))
    if row is not None and row[0] <= taken_at:
        take(tx, queue, lane, rate, -1)


def drop_full(tx: Tx) -> None:
    """Forget buckets that are full again."""
    tx.execute(_DROP_FULL, (tx.now,))


def until_some(left: float, rate: RateLimit) -> float:
    """Seconds until a bucket with these tokens is worth a claim; 0 = it has a whole one.

    At a high rate that is once there are several, before it is full: a claim for each would cost
    more than the runs.
    """
    if left >= 1:
        return 0.0
    several = max(1, int(min(rate.burst / 2, _SHORT * rate.count / rate.per)))
    return (several - left + _NEARLY) * rate.per / rate.count


def _filled(tx: Tx, queue: str, lane: int, stored: float, at: float, rate: RateLimit) -> float:
    if at > tx.now:  # the clock was set back: it fills from now on
        _put(tx, queue, lane, stored, rate)
        return stored
    return min(stored + (tx.now - at) * rate.count / rate.per, float(rate.burst))


def _put(tx: Tx, queue: str, lane: int, left: float, rate: RateLimit) -> None:
    full = tx.now + (rate.burst - left) * rate.per / rate.count
    tx.execute(_PUT, (queue, lane, left, tx.now, full, tx.now))

"""Runs that end and begin again under their id: what an endless workflow is made of."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell_queue.contract.rows import Time
from stepwell_queue.contract.verbs import Verb


class Continue(Verb[None], frozen=True, array_like=True, tag=155, gc=False):
    """Give up the claim and begin the run anew: READY, its generation one higher.

    Raises StaleFence. Its journal and open operations go. `args`: its new arguments. Of each kind
    and name in `unread`, the latest so many messages that were absorbed are put back into the
    inbox, in front of those that have come since; of the others that were absorbed, the newest
    1,000 are remembered so that they are not taken twice. Who says this has had the answers to all
    that he has said of the run before.
    """

    run: int
    fence: int
    args: bytes
    unread: Sequence[tuple[int, str, int]]
    at: Time

"""What is measured, and what one sample found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

Durability = Literal["full", "process"]
Mode = Literal["embedded", "tcp"]

SCENARIOS: Final = ("linear", "parallel", "compensation", "signal")
DRAINS: Final = ("drain", "priorities", "keys", "rate", "payload")
"""Workloads in which workers execute what was enqueued before."""
WORKLOADS: Final = ("enqueue", "enqueue-each", *DRAINS, "pending")


class Spec(msgspec.Struct, frozen=True):
    """One measurement.

    `loop_load`: the part of the event loop's time that other work takes. `workers`: how many work
    in processes of their own; 0 = one, in that of the clients. `keys`, `key_limit`: how many keys
    there are, and how many tasks of one run at once. `rate`: tasks that may start per second.
    `pending`: tasks that wait beside those which are claimed; `blocked`: for others of their key.
    """

    name: str  # one of SCENARIOS or WORKLOADS
    executions: int
    concurrency: int
    durability: Durability
    loop_load: float = 0.0
    mode: Mode = "embedded"
    workers: int = 0
    keys: int = 1000
    key_limit: int = 1
    rate: int = 1000
    pending: int = 0
    blocked: bool = False

    @property
    def is_workflow(self) -> bool:
        return self.name in SCENARIOS


class Usage(msgspec.Struct, frozen=True):
    """What a process has used: seconds of CPU of all its threads, bytes of memory, now and most."""

    cpu: float
    rss: int
    peak_rss: int
    commits: int = 0  # of a server


class Measured(msgspec.Struct, frozen=True):
    """One sample: times in seconds, CPU of all threads of the process, `ids` of the runs made.

    `server`, `workers`: what other processes have used meanwhile.
    """

    wall: float
    cpu: float
    latencies: list[float]  # start to end of each execution
    wakes: list[float]  # signal to the next line of the workflow
    commits: int
    peak_rss: int  # bytes
    ids: list[str]
    server: Usage | None = None
    workers: Sequence[Usage] = ()


class Floor(msgspec.Struct, frozen=True):
    """The same rows and coroutines with nothing around them."""

    wall: float
    rows: int
    commits: int


class Unreconciled(Exception):
    """What is in the store is not what the sample did, so that it has no rate."""

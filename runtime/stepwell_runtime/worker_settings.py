"""What a worker is told when it is made."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from stepwell_queue.contract import Identity
from stepwell_runtime.definitions import Definition
from stepwell_runtime.middleware import Middleware

Lifespan = Callable[[], AbstractAsyncContextManager[object]]


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a worker serves and how much it does at once.

    `concurrency`: activations and tasks; `limits`: of these of its queues no more than this;
    `step_concurrency`: steps inside activations (None: the same); `threads`: plain functions at
    once; `child_processes`: of those with executor="process" (None: one for each CPU);
    `middleware`: around all attempts; `cache`: parked runs whose coroutines are kept (0: none);
    `grace`: seconds that running steps get to end when the worker stops; `max_jobs`, `max_memory`
    (MiB): when it stops by itself (None: never).
    """

    definitions: Mapping[Identity, Definition]
    queues: Sequence[str] = ("default",)
    concurrency: int = 100
    step_concurrency: int | None = None
    threads: int = 32
    child_processes: int | None = None
    middleware: Sequence[Middleware] = ()
    lifespan: Lifespan | None = None
    cache: int = 1000
    grace: float = 10.0
    limits: Mapping[str, int] = field(default_factory=dict[str, int])
    max_jobs: int | None = None
    max_memory: int | None = None
    name: str = "worker"
    trusts_clients: bool = True
    chance: random.Random = field(default_factory=random.Random)

"""Settings of the interpreter for a process whose main work is a worker."""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager

# A busy loop otherwise makes the store's writer thread wait 5 ms for each hand-over.
SWITCH_INTERVAL = 0.0005
# Runs go without the collector, so it may look more rarely: it took a seventh of the CPU time.
COLLECT_AFTER = (20_000, 20, 20)


@contextmanager
def worker_process() -> Generator[None]:
    """Tune this process while it serves as a worker. For entry points; importing never does."""
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(SWITCH_INTERVAL)
    gc.set_threshold(*COLLECT_AFTER)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)

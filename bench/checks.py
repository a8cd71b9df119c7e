"""What must hold of the tasks of a workload together, by when each was claimed and ended."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

from bench.spec import Spec, Unreconciled
from bench.workloads import burst_of, key_of, priority_of
from stepwell_queue.contract import RunInfo

_NEVER: Final = float("inf")
_NEARLY: Final = 1e-6
"""Of a token: what sums of parts of one may differ by."""


def check_together(spec: Spec, runs: Sequence[RunInfo], numbers: Sequence[int]) -> None:
    """Raise Unreconciled when a queue has not kept to what was set for it.

    `numbers`: of the tasks, in the order of the runs.
    """
    if spec.name == "priorities":
        same([run.priority for run in runs], [priority_of(n) for n in numbers], "priority")
        in_order(runs)
    if spec.name == "keys":
        same([run.key for run in runs], [key_of(spec, n) for n in numbers], "key")
        within_limit(runs, spec.key_limit)
        in_turns(runs, spec.key_limit)
    if spec.name == "rate":
        within_rate(runs, spec.rate, burst_of(spec))


def same(stored: Sequence[object], wanted: Sequence[object], what: str) -> None:
    for one, other in zip(stored, wanted, strict=True):
        if one != other:
            raise Unreconciled(f"a task must have {what} {other!r}, the store has {one!r}")


def started(run: RunInfo) -> float:
    """When it was claimed; those that were claimed together have this in common."""
    assert run.started is not None
    return run.started


def in_order(runs: Iterable[RunInfo]) -> None:
    """Higher priorities were claimed first, and older tasks before younger ones."""
    last = (-_NEVER, 0)
    for _, claimed in itertools.groupby(sorted(runs, key=started), key=started):
        ranks = sorted((float(-run.priority), run.run) for run in claimed)
        if ranks[0] < last:
            raise Unreconciled(
                f"run {ranks[0][1]} was claimed after run {last[1]}, and should have been before it"
            )
        last = ranks[-1]


def by_key(runs: Iterable[RunInfo]) -> dict[str, list[RunInfo]]:
    found: dict[str, list[RunInfo]] = defaultdict(list)
    for run in sorted(runs, key=attrgetter("run")):
        found[run.key or ""].append(run)
    return found


def changes(runs: Iterable[RunInfo]) -> list[tuple[float, int]]:
    """When one more (1) or one less (-1) was running; ends make room for what starts with them."""
    ends = [(run.updated, -1) for run in runs]
    return sorted([*ends, *((started(run), 1) for run in runs)])


def within_limit(runs: Iterable[RunInfo], limit: int) -> None:
    """Never were more of one key running than may be."""
    for key, its_runs in by_key(runs).items():
        most = max(itertools.accumulate(change for _, change in changes(its_runs)))
        if most > limit:
            raise Unreconciled(f"{most} tasks of {key} were running at once; its limit is {limit}")


def in_turns(runs: Sequence[RunInfo], limit: int) -> None:
    """No key started twice while another had work and room, and did not start."""
    keys = by_key(runs)
    starts: list[tuple[float, float]] = []  # when one started, and the next of its key
    for its_runs in keys.values():
        times = sorted(map(started, its_runs))
        starts += zip(times, [*times[1:], _NEVER], strict=True)
    starts.sort()
    times = [time for time, _ in starts]
    soonest = list(itertools.accumulate((after for _, after in reversed(starts)), min))[::-1]
    soonest.append(_NEVER)
    for key, its_runs in keys.items():
        for able, start in waits(its_runs, limit):
            if soonest[bisect_right(times, able)] < start:
                raise Unreconciled(f"another key had two turns while {key} waited for one")


def waits(runs: Iterable[RunInfo], limit: int) -> Iterable[tuple[float, float]]:
    """From when each task of a key could have started, until it did."""
    running, able = 0, -_NEVER
    for at, change in changes(runs):
        if change > 0:
            yield able, at
        if change > 0 or running == limit:
            able = at
        running += change


def within_rate(runs: Iterable[RunInfo], rate: int, burst: int) -> None:
    """A bucket that holds `burst` tokens, and gets `rate` a second, had one for each start."""
    tokens, last = float(burst), -_NEVER
    for at, claimed in itertools.groupby(sorted(map(started, runs))):
        tokens = min(float(burst), tokens + (at - last) * rate) - len(list(claimed))
        last = at
        if tokens < -_NEARLY:
            raise Unreconciled(f"{-tokens:.3f} tasks started beyond the rate of {rate} a second")

"""Whether a claim brought what it should: as much as there was room for, in the right order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from tests.store.queue_model import ALONE_FROM, Job, Model, Worker

_Group = tuple[Worker, str, int]
"""Workers that serve the same, a queue, and a rank: among these, keys take turns."""


class Turns:
    """How often other keys had a turn since each key had its own, while that could have had one."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._passed: dict[_Group, dict[str, Counter[str]]] = {}

    def could(self, worker: Worker) -> Iterator[Job]:
        """What could have its turn now."""
        for job in self._model.ready(worker):
            room, _ = self._model.rooms_of_key(job.queue, job.key)
            if room > 0 and job.crashes < ALONE_FROM and self._model.takes_turns(job, worker):
                yield job

    def taken(self, worker: Worker, before: Collection[Job], claimed: Iterable[Job]) -> None:
        """`before`: what could have had its turn."""
        claimed = [job for job in claimed if job in before]
        for queue, rank in {(job.queue, job.rank) for job in claimed}:
            turns = Counter(job.key for job in claimed if (job.queue, job.rank) == (queue, rank))
            could = {job.key for job in before if (job.queue, job.rank) == (queue, rank)}
            passed = self._passed.setdefault((replace(worker, number=0), queue, rank), {})
            for key in could:
                self._count(passed.setdefault(key, Counter()), key, turns)
        self.forget()
        for group, passed in self._passed.items():
            for key, others in passed.items():
                for other, times in others.items():
                    assert times <= 1, f"{group}: {other!r} had {times} turns, and {key!r} none"

    def _count(self, passed: Counter[str], key: str, turns: Counter[str]) -> None:
        """Within one claim nobody sees the order of turns, so it counts as the best one."""
        for other in turns.keys() - {key}:
            if turns[key]:
                passed[other] = max(turns[other] + passed[other] - turns[key], 0)
            else:
                passed[other] += turns[other]

    def forget(self) -> None:
        """Keys that cannot have a turn now miss none."""
        for (worker, queue, rank), passed in self._passed.items():
            could = {
                job.key for job in self.could(worker) if (job.queue, job.rank) == (queue, rank)
            }
            for key in list(passed):
                if key not in could:
                    del passed[key]

    def clear(self) -> None:
        self._passed.clear()


def check_claim(model: Model, worker: Worker, limit: int, claimed: Iterable[Job]) -> None:
    """Assert that these are what the worker is to get, where the rules leave no choice."""
    claimed = list(claimed)
    could = [job for job in model.ready(worker) if job.crashes < ALONE_FROM]
    for job in claimed:
        assert job in could, f"{job} is not ready for {worker}"
    assert claimed == sorted(claimed, key=lambda job: (-job.rank, job.run)), "out of order"
    for rank in sorted({job.rank for job in could}, reverse=True):
        at_least, at_most = _most(model, worker, limit, [job for job in could if job.rank >= rank])
        count = sum(job.rank >= rank for job in claimed)
        assert at_least <= count <= at_most, (
            f"{count} of rank {rank} or more, not {at_least} to {at_most}: {claimed} of {could}, "
            f"{model.queues}, running: {[job for job in model.jobs.values() if job.holder]}"
        )
    left = [job for job in could if job not in claimed]
    for job in claimed:
        for other in left:
            same = (job.queue, job.key, job.rank) == (other.queue, other.key, other.rank)
            if same and model.takes_turns(job, worker) == model.takes_turns(other, worker):
                assert job.run < other.run, f"{other} is older than {job}"
    unpaused = [job for job in could if not model.queues[job.queue].paused]
    if all(is_plain(model, worker, job) for job in unpaused):
        best = sorted(unpaused, key=lambda job: (-job.rank, job.run))
        assert claimed == best[:limit]


def check_alone(model: Model, worker: Worker, idle: bool, claimed: Collection[Job]) -> bool:
    """Whether the one run that was claimed is to be executed alone, or should be."""
    could = [
        job
        for job in model.ready(worker)
        if job.crashes >= ALONE_FROM
        and model.rooms(worker, job.queue)[0] > 0
        and model.rooms_of_key(job.queue, job.key)[0] > 0
    ]
    if not idle or not could:
        return False
    assert list(claimed) == [min(could, key=lambda job: (-job.rank, job.run))]
    return True


def is_plain(model: Model, worker: Worker, job: Job) -> bool:
    """Whether nothing but priority and age decides when a run is claimed."""
    limited = model.queues[job.queue].settings.gated or job.queue in dict(worker.limits)
    return not limited and not job.key


def _most(model: Model, worker: Worker, limit: int, jobs: Collection[Job]) -> tuple[int, int]:
    """How many of these may start together: at least, and at most."""

    def count(bound: Callable[[tuple[int, int]], int]) -> int:
        total = 0
        for queue in {job.queue for job in jobs}:
            keys = Counter(job.key for job in jobs if job.queue == queue)
            of_keys = sum(min(n, bound(model.rooms_of_key(queue, key))) for key, n in keys.items())
            total += min(bound(model.rooms(worker, queue)), of_keys)
        return min(total, limit)

    return count(min), count(max)

"""What queues promise, in memory and in the simplest way: no indexes, no shortcuts, no SQL."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from stepwell_queue import Hold, Identity, Status
from stepwell_queue.contract import QueueSettings, RateLimit

ALONE_FROM = 2  # crashes
MANY = 10**9


@dataclass(repr=False)
class Job:
    """A run as it should be."""

    run: int
    id: str
    queue: str
    identity: Identity
    key: str
    priority: int
    rank: int  # the priority, less what others have gained by waiting before it came
    status: Status
    due: float | None = None
    expires: float | None = None
    fence: int = 0
    attempts: int = 0
    crashes: int = 0
    written: int = 0  # the fence of its last record
    records: int = 0
    inbox: int = 0
    set_backs: int = 0  # of the clock, when it was claimed
    holder: int | None = None
    unique: str = ""
    hold: int = 0
    held_until: float | None = None
    args: bytes = b""
    scheduled: float | None = None
    needs: dict[str, bool] = field(default_factory=dict[str, bool])  # id -> however it ends
    tokens: list[tuple[Bucket, Taken]] = field(default_factory=list["tuple[Bucket, Taken]"])

    def __repr__(self) -> str:
        of_key = f" of {self.key}" if self.key else ""
        return f"<{self.id}{of_key} in {self.queue}: {self.status.name}, rank {self.rank}>"

    @property
    def waits(self) -> bool:
        """Whether nobody has claimed it yet, nor ever will unless it is in time."""
        return self.fence == 0 and self.status in (Status.SCHEDULED, Status.READY)


class Taken(NamedTuple):
    """When a token was taken, and how often the bucket had been full."""

    at: float
    fullness: int


class Bucket:
    """Tokens, and the starts for which they were taken.

    What a clock that is set back does to tokens is not promised to the last one, so there is a
    least and a most; everywhere else these are equal.
    """

    def __init__(self, rate: RateLimit, now: float) -> None:
        self.rate = rate
        self.least = self.most = float(rate.burst)
        self._least_at = self._most_at = now
        self._passed = 0.0  # seconds that have really passed
        self._fullness = 0  # how often it has been full
        self._set_back = False  # the clock, since it was full
        self._starts: list[float] = []
        self._doubtful = 0  # tokens that may have been given back

    def pass_time(self, now: float) -> None:
        speed, burst = self.rate.count / self.rate.per, float(self.rate.burst)
        seconds = max(now - self._most_at, 0.0)
        self._set_back = self._set_back or now < self._most_at
        self._passed += seconds
        self.most = min(self.most + seconds * speed, burst)
        self._most_at = now
        if now >= self._least_at:
            self.least = min(self.least + (now - self._least_at) * speed, burst)
            self._least_at = now
        if self.most == burst:
            self._fullness += 1
        if self.least == burst:
            self._set_back = False

    def take(self) -> Taken:
        """A run starts."""
        self.most -= 1
        self.least = max(self.least - 1, 0.0)
        assert self.most >= 0, "more started than there were tokens"
        self._starts.append(self._passed)
        speed = self.rate.count / self.rate.per
        for place, first in enumerate(self._starts):
            most = self.rate.burst + (self._passed - first) * speed + self._doubtful
            assert len(self._starts) - place <= most, "more started within a time than the rate"
        return Taken(self._passed, self._fullness)

    def give_back(self, taken: Taken | None, *, doubtful: bool) -> None:
        """A run was not begun: its token is there again, unless it would be by now anyhow.

        `doubtful`: the clock was set back since, so nobody can tell whether it would.
        """
        if taken is None or taken.fullness != self._fullness:
            self._doubtful += doubtful
            self.most = min(self.most + doubtful, float(self.rate.burst))
            return
        self._starts.remove(taken.at)
        self.most = min(self.most + 1, float(self.rate.burst))
        if not self._set_back:
            self.least = min(self.least + 1, float(self.rate.burst))


@dataclass
class Queue:
    """What is set for a queue."""

    settings: QueueSettings = field(default_factory=QueueSettings)
    paused: bool = False
    until: float | None = None
    ages_from: float | None = None
    buckets: dict[str, Bucket] = field(default_factory=dict[str, Bucket])  # "" = of the queue


@dataclass(frozen=True)
class Worker:
    number: int
    queues: tuple[str, ...]
    serves: tuple[Identity, ...]
    limits: tuple[tuple[str, int], ...] = ()

    def takes(self, job: Job) -> bool:
        return job.queue in self.queues and job.identity in self.serves

    def bound(self, queue: str) -> int:
        return dict(self.limits).get(queue, MANY)


class Model:
    """All runs and queues, and what time it is."""

    def __init__(self, now: float, queues: Iterable[str]) -> None:
        self.now, self.set_backs = now, 0
        self.jobs: dict[str, Job] = {}
        self.queues = {name: Queue() for name in queues}
        self.workers: dict[int, Worker] = {}
        self.special: set[tuple[str, Identity]] = set()  # names that had keys or expiries

    # --- time ---

    def move(self, now: float) -> None:
        self.set_backs += now < self.now
        self.now = now
        for queue in self.queues.values():
            for bucket in queue.buckets.values():
                bucket.pass_time(now)
        self.settle()

    def settle(self) -> None:
        """Let everything happen for which it is time."""
        for queue in self.queues.values():
            if queue.until is not None and queue.until <= self.now:
                queue.paused, queue.until = False, None
        for job in self.jobs.values():
            if job.due is not None and job.due <= self.now:
                job.status, job.due = Status.READY, None
        for job in list(self.jobs.values()):
            if job.waits and job.expires is not None and job.expires <= self.now:
                self.end(job, Status.EXPIRED)

    # --- what becomes of runs ---

    def rank(self, queue: str, priority: int, due: float | None) -> int:
        one = self.queues[queue]
        if one.settings.ageing is None or one.ages_from is None:
            return priority
        waits_from = max(self.now, due or self.now)
        return priority - int(max(waits_from - one.ages_from, 0.0) // one.settings.ageing)

    def holder(self, unique: str, identity: Identity) -> Job | None:
        """Which run has a unique key; the newest, if one waits for the one that executes."""
        for job in reversed(self.jobs.values()):
            if job.unique == unique and job.identity == identity:
                held = {
                    Hold.UNENDED: not job.status.terminal,
                    Hold.PENDING: job.waits,
                    Hold.UNTIL: (job.held_until or 0.0) > self.now,
                }
                if held[Hold(job.hold)]:
                    return job
        return None

    def add(self, job: Job) -> None:
        self.jobs[job.id] = job
        self.place_new(job)

    def place_new(self, job: Job) -> None:
        if job.key or job.expires is not None:
            self.special.add((job.queue, job.identity))
        self.place(job)

    def takes_turns(self, job: Job, worker: Worker) -> bool:
        """Whether keys are looked at; else the run goes by its age alone."""
        special = (job.queue, job.identity) in self.special
        return special or self.queues[job.queue].settings.gated or bool(worker.limits)

    def place(self, job: Job) -> None:
        """Decide where a run stands that nobody has claimed."""
        for id, anyhow in list(job.needs.items()):
            status = self.jobs[id].status
            if status == Status.COMPLETED or (status.terminal and anyhow):
                del job.needs[id]
            elif status.terminal:
                self.end(job, Status.FAILED)
                return
        job.due = None
        if job.needs:
            job.status = Status.SCHEDULED
        elif job.scheduled is not None and job.scheduled > self.now:
            job.status, job.due = Status.SCHEDULED, job.scheduled
        else:
            job.status = Status.READY

    def end(self, job: Job, status: Status) -> None:
        job.status, job.due, job.holder = status, None, None
        for other in list(self.jobs.values()):
            if job.id in other.needs and not other.status.terminal:
                self.place(other)

    def give_up(self, job: Job, due: float | None) -> None:
        """Who holds it does no more, and it is to be claimed again."""
        later = due is not None and due > self.now
        job.status, job.due = (Status.SCHEDULED, due) if later else (Status.READY, None)
        job.holder = None

    def crash(self, worker: int) -> None:
        """A worker is gone without a word; what it holds goes to others."""
        for job in self.held_by(worker):
            job.crashes = 0 if job.written == job.fence else job.crashes + 1
            job.fence += 1
            backoff = job.crashes >= ALONE_FROM
            self.give_up(job, self.now + 2.0**job.crashes if backoff else None)

    def held_by(self, worker: int) -> list[Job]:
        return [job for job in self.jobs.values() if job.holder == worker]

    # --- settings ---

    def configure(self, name: str, settings: QueueSettings) -> None:
        queue = self.queues[name]
        before = queue.settings
        queue.settings = settings
        if (before.rate, before.key_rate) != (settings.rate, settings.key_rate):
            queue.buckets.clear()
        if before.ageing != settings.ageing:
            queue.ages_from = None if settings.ageing is None else self.now
            for job in self.jobs.values():
                if job.queue == name:
                    job.rank = job.priority

    def purge(self, queue: str, cancelled: Collection[str]) -> None:
        """`cancelled`: which it were; in what order they are is not promised."""
        for job in list(self.jobs.values()):
            if job.id in cancelled:
                assert job.waits
                assert job.queue == queue
                self.end(job, Status.CANCELLED)

    # --- room ---

    def bucket(self, queue: str, key: str, rate: RateLimit) -> Bucket:
        buckets = self.queues[queue].buckets
        if key not in buckets:
            buckets[key] = Bucket(rate, self.now)
        return buckets[key]

    def rooms(self, worker: Worker, queue: str) -> tuple[int, int]:
        """How many runs of a queue may start: at least, and at most."""
        one = self.queues[queue]
        running = [job for job in self.jobs.values() if job.holder and job.queue == queue]
        room = worker.bound(queue) - sum(job.holder == worker.number for job in running)
        if one.settings.limit is not None:
            room = min(room, one.settings.limit - len(running))
        room = 0 if one.paused else max(room, 0)
        if one.settings.rate is None:
            return room, room
        bucket = self.bucket(queue, "", one.settings.rate)
        return min(room, int(bucket.least)), min(room, int(bucket.most))

    def rooms_of_key(self, queue: str, key: str) -> tuple[int, int]:
        """The same of those of a key; runs without a key share nothing."""
        settings = self.queues[queue].settings
        room = MANY
        if key and settings.key_limit is not None:
            jobs = self.jobs.values()
            running = sum(bool(j.holder) and (j.queue, j.key) == (queue, key) for j in jobs)
            room = max(settings.key_limit - running, 0)
        if not key or settings.key_rate is None:
            return room, room
        bucket = self.bucket(queue, f"key {key}", settings.key_rate)
        return min(room, int(bucket.least)), min(room, int(bucket.most))

    def ready(self, worker: Worker) -> Iterator[Job]:
        """What the worker could take, were there room for all."""
        for job in self.jobs.values():
            if job.status == Status.READY and worker.takes(job):
                yield job

    def start(self, job: Job, worker: int) -> None:
        job.status, job.holder, job.fence = Status.RUNNING, worker, job.fence + 1
        settings = self.queues[job.queue].settings
        job.tokens, job.set_backs = [], self.set_backs
        if settings.rate is not None:
            bucket = self.bucket(job.queue, "", settings.rate)
            job.tokens.append((bucket, bucket.take()))
        if settings.key_rate is not None and job.key:
            bucket = self.bucket(job.queue, f"key {job.key}", settings.key_rate)
            job.tokens.append((bucket, bucket.take()))

    def unstarted(self, job: Job) -> None:
        taken = {id(bucket): one for bucket, one in job.tokens}
        for name, bucket in self.queues[job.queue].buckets.items():
            if name in ("", f"key {job.key}"):
                doubtful = job.set_backs != self.set_backs
                bucket.give_back(taken.get(id(bucket)), doubtful=doubtful)

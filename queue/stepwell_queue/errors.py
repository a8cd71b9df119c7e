"""Errors of the store. Every error of Stepwell descends from `StepwellError`."""

from __future__ import annotations


class StepwellError(Exception):
    """Base of all errors that Stepwell raises on purpose."""


class StoreUnavailable(StepwellError):
    """The store could not commit (disk full, I/O error, closed); nothing was changed."""


class StoreRefused(StepwellError):
    """The file cannot be used.

    It is no Stepwell store, was made by newer code, or is on a file system that cannot hold one.
    """


class StaleFence(StepwellError):
    """Another claim of this run came later; this writer has lost it and nothing was changed."""

    def __init__(self, run: int, fence: int) -> None:
        super().__init__(f"run #{run}: fence {fence} is no longer the current claim")
        self.run, self.fence = run, fence


class IdConflict(StepwellError):
    """A run with this id exists, of another identity or with other arguments; it is untouched."""

    def __init__(self, id: str, existing: str, asked: str) -> None:
        super().__init__(
            f"run id {id!r} is taken by {existing}, asked for {asked}: "
            "use another id, or the same workflow and arguments to get the existing run"
        )
        self.id, self.existing, self.asked = id, existing, asked


class RunNotFound(StepwellError):
    """No run has this id."""

    def __init__(self, id: str) -> None:
        super().__init__(f"no run has the id {id!r}: check the id and the store it was started in")
        self.id = id


class RunEnded(StepwellError):
    """The run has already ended, so it takes no more signals or requests."""

    def __init__(self, id: str, status: str, asked: str) -> None:
        super().__init__(
            f"run {id!r} has ended ({status}); {asked} was refused and nothing changed"
        )
        self.id, self.status, self.asked = id, status, asked


class ScheduleNotFound(StepwellError):
    """No schedule has this id."""

    def __init__(self, id: str) -> None:
        super().__init__(f"no schedule has the id {id!r}: `stepwell schedules list` shows all")
        self.id = id


class RequestRefused(StepwellError):
    """An operator's request does not fit the state of the run; nothing was changed."""


class MalformedRequest(StepwellError):
    """The server could not read a request, which it refused; nothing was changed."""


class QueueFull(StepwellError):
    """As many runs of the queue are ready as it may have; nothing was enqueued."""

    def __init__(self, queue: str, limit: int) -> None:
        super().__init__(
            f"queue {queue!r} is full: {limit} runs are ready, which is its max_length; enqueue "
            'later, or with when_full="wait"'
        )
        self.queue, self.limit = queue, limit

"""Retry and timeout as one execution sees them: the decorator's, or what the call overrode."""

from __future__ import annotations

import random
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from stepwell_queue.contract import Claimed, RunInfo
from stepwell_runtime.definitions import (
    CallOptions,
    Retry,
    StepDefinition,
    TaskDefinition,
)
from stepwell_runtime.errors import GiveUp


class StoredRetry(msgspec.Struct, frozen=True, array_like=True):
    """A Retry as stored with a run.

    Exception classes are kept as names and matched, never imported.
    """

    attempts: int
    delay: float
    factor: float
    max_delay: float
    jitter: bool
    retry_on: tuple[str, ...]
    give_up_on: tuple[str, ...]


class StoredOptions(msgspec.Struct, frozen=True, array_like=True):
    """What a call overrode, as stored with its run; None = as the decorator says."""

    timeout: float | None = None
    retry: StoredRetry | None = None
    scheduled: float | None = None  # when it was to start, where its own times do not say it
    code: str | None = None  # with which it was started
    seed: str | None = None  # of its chance, where that is the one of the run that it was forked of
    began: float | None = None  # when that one was made


_encoder = msgspec.msgpack.Encoder()
# Most runs of a workflow have the same ones: nothing but the mark of its code.
_decode = lru_cache(maxsize=128)(msgspec.msgpack.Decoder(StoredOptions).decode)


def store_options(options: CallOptions, code: str | None = None) -> bytes:
    """Return what must be stored with the run; empty when nothing was overridden."""
    if options.timeout is None and options.retry is None and code is None:
        return b""
    retry = options.retry
    stored = None
    if retry is not None:
        stored = StoredRetry(
            retry.attempts,
            _number(retry.delay),
            retry.factor,
            _number(retry.max_delay),
            retry.jitter,
            tuple(map(_class_name, retry.retry_on)),
            tuple(map(_class_name, retry.give_up_on)),
        )
    return _encoder.encode(StoredOptions(options.timeout, stored, code=code))


def with_scheduled(options: bytes, scheduled: float) -> bytes:
    """Return the options of a run that was to start at another time than its row says."""
    stored = _decode(options) if options else StoredOptions()
    return _encoder.encode(replace(stored, scheduled=scheduled))


def code_of(options: bytes) -> str | None:
    """Return the code with which a run was started; None = that was not noted."""
    return _decode(options).code if options else None


def forked_options(source: RunInfo) -> bytes:
    """Return the options of a fork, to whose code chance and times are those of its source."""
    stored = _decode(source.options) if source.options else StoredOptions()
    seed, began = origin_of(source)
    if seed is None or began is None:
        seed, began = f"{source.id}/{source.nonce}/{source.generation}", source.created
    own_time = began if source.scheduled is None else source.scheduled
    return _encoder.encode(
        replace(
            stored,
            scheduled=own_time if stored.scheduled is None else stored.scheduled,
            seed=seed,
            began=began if source.scheduled is None else max(began, source.scheduled),
        )
    )


def origin_of(run: Claimed | RunInfo) -> tuple[str | None, float | None]:
    """Return the seed of chance of a forked run, and the time at which its code begins.

    Both are None for another run, and for one that has continued as new since it was forked.
    """
    if not run.options or run.generation:
        return None, None
    stored = _decode(run.options)
    return stored.seed, stored.began


def scheduled_of(claimed: Claimed) -> float:
    """Return when a run was to start; jitter, retries and waits for others do not change it."""
    if claimed.options:
        scheduled = _decode(claimed.options).scheduled
        if scheduled is not None:
            return scheduled
    return claimed.created if claimed.due is None else claimed.due


class Policy:
    """Timeout (None = none) and retry decisions for one task or node job."""

    __slots__ = ("_retry", "_stored", "timeout")

    def __init__(
        self, timeout: float | None, retry: Retry, stored: StoredRetry | None = None
    ) -> None:
        self.timeout, self._retry, self._stored = timeout, retry, stored

    @classmethod
    def of_run(cls, definition: StepDefinition | TaskDefinition, options: bytes) -> Policy:
        if not options:
            return cls(definition.timeout, definition.retry)
        stored = _decode(options)
        timeout = definition.timeout if stored.timeout is None else stored.timeout
        return cls(timeout, definition.retry, stored.retry)

    def wants(self, error: BaseException, failures: int) -> bool:
        """Whether to try again after the `failures`-th failure."""
        stored = self._stored
        if stored is None:
            return self._retry.wants(error, failures)
        names = set(map(_class_name, type(error).__mro__))
        return (
            failures < stored.attempts
            and not isinstance(error, GiveUp)
            and not names.intersection(stored.give_up_on)
            and bool(names.intersection(stored.retry_on))
        )

    def delay_after(self, failures: int, chance: random.Random) -> float:
        """Seconds to wait after the `failures`-th failure."""
        stored = self._stored
        if stored is None:
            return self._retry.delay_after(failures, chance)
        plain = Retry(stored.attempts, stored.delay, stored.factor, stored.max_delay, stored.jitter)
        return plain.delay_after(failures, chance)


def _number(value: object) -> float:
    assert isinstance(value, float)  # Retry makes its spans floats
    return value


def _class_name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"

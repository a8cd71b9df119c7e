"""Middleware: what an app has done around every attempt of its tasks and steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from stepwell_runtime.scope import JobScope


class CallNext(Protocol):
    """Executes what a middleware is around: the next one, or the function. Call it once."""

    async def __call__(self) -> object: ...


class Outcome(msgspec.Struct, frozen=True):
    """How an attempt ended: `error`, None where it did not fail, or else `value`."""

    value: object = None
    error: BaseException | None = None


class Middleware:
    """Base of what surrounds every attempt of the tasks and steps that an app's workers execute.

    Override `before` and `after`, or `around`. One object serves all attempts, many at a time, so
    what belongs to one attempt is kept in local or context variables. Context variables that are
    set before the function begins are seen by it, in a thread too.
    """

    async def before(self, job: JobScope) -> None:
        """Called before the function; what it raises fails the attempt in place of the function."""

    async def after(self, job: JobScope, outcome: Outcome) -> None:
        """Called once the function has ended, failed or timed out; may raise, as the function."""

    async def around(self, job: JobScope, call_next: CallNext) -> object:
        """Execute the function by `await call_next()`, and return what that returned.

        What it raises instead is the failure of the attempt.
        """
        await self.before(job)
        try:
            value = await call_next()
        except BaseException as error:
            await self.after(job, Outcome(error=error))
            raise
        await self.after(job, Outcome(value))
        return value


async def surrounded(chain: Sequence[Middleware], job: JobScope, execute: CallNext) -> object:
    """Execute within all of `chain`; the first is the outermost."""
    if not chain:
        return await execute()
    returned: object = None

    async def call_next() -> object:
        nonlocal returned
        returned = await surrounded(chain[1:], job, execute)
        return returned

    value = await chain[0].around(job, call_next)
    if value is None and returned is not None:
        # A forgotten `return` would otherwise lose every result without anybody noticing.
        raise TypeError(
            f"{type(chain[0]).__qualname__}.around() returned None, and {job.kind} {job.name!r} "
            f"did not: end it with `return await call_next()`"
        )
    return value

"""Mistakes in what is asked for when a run is started; see test_mistakes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import datetime
from typing import Any

import stepwell
from stepwell import Queue, Stepwell, TaskCall

Mistake = Callable[[Stepwell], Coroutine[Any, Any, object]]


@stepwell.task
async def mail(to: str) -> None: ...


def nothing(to: str) -> Any:
    return None


@stepwell.task(key=nothing)
async def keyless(to: str) -> None: ...


@stepwell.task(queue=Queue("narrow", max_length=1))
async def squeeze(number: int) -> None: ...


async def calls() -> AsyncIterator[TaskCall[None]]:
    yield mail("ann")


def asking(**options: Any) -> Mistake:
    async def make(app: Stepwell) -> object:
        return await app.enqueue(mail("ann"), **options)

    return make


async def no_key(app: Stepwell) -> object:
    return await app.enqueue(keyless("ann"))


async def full(app: Stepwell) -> object:
    return [await app.enqueue(squeeze(number)) for number in range(2)]


async def no_id(app: Stepwell) -> object:
    many: Any = app.enqueue_many
    return await many(calls())


async def no_function(app: Stepwell) -> object:
    key: Any = "tenant"
    return stepwell.task(key=key)(mail.fn)


START_MISTAKES: dict[str, Mistake] = {
    '`@task(key="tenant")`': no_function,
    "`replace=True` without `unique=`": asking(replace=True),
    "`unique_for=` with `replace=True`": asking(unique="k", unique_for=5, replace=True),
    "`expires=` a naive `datetime`": asking(expires=datetime(2030, 1, 1)),  # noqa: DTZ001
    "`expires=` that comes before `delay=` or `at=`": asking(delay=10, expires=5),
    "`after=` one run instead of a list": asking(after="order-1"),
    "`after=` a run that does not exist": asking(after=["order-7"]),
    "a `key=` function that returns no string": no_key,
    "enqueueing into a full queue": full,
    "`wait_timeout=` without waiting": asking(wait_timeout=5),
    "`app.enqueue_many` of an async iterator without `id=`": no_id,
}

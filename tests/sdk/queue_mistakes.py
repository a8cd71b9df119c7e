"""Mistakes in what is asked of a queue; see test_mistakes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

from stepwell import Stepwell

Mistake = Callable[[Stepwell], Coroutine[Any, Any, object]]


async def no_setting(app: Stepwell) -> object:
    queue: Any = app.queue("mail")
    return await queue.configure(limt=5)


async def no_confirmation(app: Stepwell) -> object:
    return await app.queue("mail").purge()


async def over_already(app: Stepwell) -> None:
    await app.queue("mail").pause(datetime(2020, 1, 1, tzinfo=UTC))


QUEUE_MISTAKES: dict[str, Mistake] = {
    "`queue.configure(limt=5)`, which is no setting": no_setting,
    "`queue.purge()` without `confirm=True`": no_confirmation,
    "`queue.pause(until)` with a moment that has passed": over_already,
}

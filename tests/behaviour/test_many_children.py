"""`parallel` over a great many children takes bounded memory and bounded writes."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from stepwell import Stepwell, parallel, task, workflow
from stepwell_queue.contract import Append
from stepwell_runtime.activation._children import MOST_AT_ONCE
from stepwell_runtime.core.branch import CallOp
from tests.behaviour.stage import LONG
from tests.conftest import Scale

pytestmark = pytest.mark.anyio

LIMIT = 40


class Seen:
    """What the children have seen, in this process."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.ended = 0
        self.ahead = 0  # how many more were begun than had ended
        self.operations = 0  # how many the run had in memory at once


seen = Seen()


@task
async def unit(number: int) -> int:
    seen.ahead = max(seen.ahead, number - seen.ended)
    if number % 200 == 199:
        here = sum(isinstance(one, CallOp) for one in gc.get_objects())
        seen.operations = max(seen.operations, here)
    seen.ended += 1
    return number


@workflow
async def fan(count: int, limit: int | None) -> int:
    return sum(await parallel(*[unit(number) for number in range(count)], limit=limit))


async def test_a_limit_bounds_what_is_stored_and_in_memory(app: Stepwell, scale: Scale) -> None:
    count = scale(1000, 10_000)
    seen.clear()
    async with app.worker():
        run = await app.start(fan(count, LIMIT))
        assert await run.result(timeout=10 * LONG) == count * (count - 1) // 2
    assert seen.ended == count
    assert seen.ahead < LIMIT
    assert 0 < seen.operations <= LIMIT


async def test_without_a_limit_no_write_stores_all_of_them(
    app: Stepwell, scale: Scale, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = scale(1000, 10_000)
    written: list[int] = []
    store: Any = app.engine.store
    submit = store.submit

    def noting(verb: Any, done: Any) -> None:
        if isinstance(verb, Append) and verb.children:
            written.append(len(verb.children))
        submit(verb, done)

    monkeypatch.setattr(store, "submit", noting)
    async with app.worker():
        run = await app.start(fan(count, None))
        assert await run.result(timeout=10 * LONG) == count * (count - 1) // 2
    assert sum(written) == count
    assert max(written) <= MOST_AT_ONCE

"""Enqueueing many tasks: in one transaction, or in chunks that can be gone on with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from stepwell import BlockingStepwell, Bulk, IdConflict, Stepwell, TaskCall, task, workflow
from stepwell._app import bulk as chunks

pytestmark = pytest.mark.anyio
MakeApp = Callable[[], Stepwell]


@task
async def square(number: int) -> int:
    return number * number


@task
async def keep(data: bytes) -> int:
    return len(data)


@workflow
async def double(number: int) -> int:
    return 2 * number


async def rows(count: int, broken_at: int | None = None) -> AsyncIterator[TaskCall[int]]:
    for number in range(count):
        if number == broken_at:
            raise ConnectionError("the source is gone")
        yield square(number)


async def count_of(app: Stepwell) -> int:
    found, after = 0, None
    while page := await app.runs(limit=10_000, after=after):
        found, after = found + len(page), page[-1].id
    return found


async def test_many_are_enqueued_with_an_outcome_for_each(app: Stepwell) -> None:
    async with app:
        calls = [
            square(1).with_options(unique="k"),
            square(2).with_options(unique="k"),
            square(3).with_options(id="three"),
            square(3).with_options(id="three"),
            square(4),
        ]
        runs = await app.enqueue_many(calls)
        assert [(run.created, run.found) for run in runs] == [
            (True, None),
            (False, "ready"),
            (True, None),
            (False, "ready"),
            (True, None),
        ]
        assert runs[1].id == runs[0].id
        assert runs[3].id == "three"
        assert await count_of(app) == 3


async def test_more_than_a_transaction_takes_is_refused_and_reads_no_further(
    app: Stepwell,
) -> None:
    read = 0

    def endless() -> Iterator[TaskCall[int]]:
        nonlocal read
        while True:
            read += 1
            yield square(read)

    async with app:
        with pytest.raises(ValueError, match="more than 100000 calls.*give id="):
            await app.enqueue_many(endless())
        assert read == 100_001
        assert await app.runs() == []


async def test_an_import_goes_on_where_it_stopped(
    app: Stepwell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 100)
    async with app:
        with pytest.raises(ConnectionError):
            await app.enqueue_many(rows(450, broken_at=250), id="import-42")
        assert await count_of(app) == 200
        result = await app.enqueue_many(rows(450), id="import-42")
        assert result == Bulk("import-42", 450, 250)
        assert await count_of(app) == 450
        assert await app.enqueue_many(rows(450), id="import-42") == Bulk("import-42", 450, 0)
        async with app.worker() as worker:
            await worker.drain()
        assert await app.get(result.run_id(9), square).result() == 81


async def test_an_import_of_other_calls_with_the_same_id_is_a_conflict(app: Stepwell) -> None:
    async with app:
        await app.enqueue_many([square(1), square(2)], id="import")
        with pytest.raises(IdConflict, match="import:1"):
            await app.enqueue_many([square(1), square(3)], id="import")


async def test_calls_may_have_ids_and_keys_of_their_own(app: Stepwell) -> None:
    calls = (square(n).with_options(id=f"mine-{n}", unique=str(n % 2)) for n in range(4))
    async with app:
        assert await app.enqueue_many(calls, id="import") == Bulk("import", 4, 2)
        assert {info.id for info in await app.runs()} == {"mine-0", "mine-1"}


async def test_chunks_are_bounded_in_bytes_too(app: Stepwell) -> None:
    calls = (keep(bytes(4_000_000)) for _ in range(20))
    async with app:
        assert await app.enqueue_many(calls, id="large") == Bulk("large", 20, 20)


async def test_workflows_are_started_in_chunks_alike(app: Stepwell) -> None:
    async with app, app.worker():
        result = await app.start_many((double(n) for n in range(3)), id="flows")
        assert result == Bulk("flows", 3, 3)
        assert await app.get("flows:2", double).result() == 4


async def test_mistakes_are_refused(app: Stepwell) -> None:
    mistakes: list[tuple[Any, dict[str, Any], str]] = [
        (rows(1), {}, "an async iterable is taken in chunks.*give id="),
        ([square(1)], {"id": ""}, "a run id has 1 to 200 characters"),
        ([double(1)], {"id": "x"}, "for a workflow use start_many"),
        ([double(1)], {}, "for a workflow use start_many"),
    ]
    async with app:
        for calls, options, said in mistakes:
            many: Any = app.enqueue_many
            with pytest.raises((TypeError, ValueError), match=said):
                await many(calls, **options)
        assert await app.runs() == []


@pytest.mark.blocking
def test_the_blocking_twin_takes_calls_in_the_calling_thread(address: str) -> None:
    import threading

    threads: set[int] = set()

    def calls() -> Iterator[TaskCall[int]]:
        for number in range(250):
            threads.add(threading.get_ident())
            yield square(number)

    with BlockingStepwell(address, include=[__name__]) as app:
        assert app.enqueue_many(calls(), id="import") == Bulk("import", 250, 250)
        assert app.enqueue_many(calls(), id="import") == Bulk("import", 250, 0)
        run = app.enqueue(square(1), unique="k")
        again = app.enqueue(square(2), unique="k")
        assert (again.id, again.created, again.found) == (run.id, False, "ready")
    assert threads == {threading.get_ident()}

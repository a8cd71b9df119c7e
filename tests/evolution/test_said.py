"""What a run has said, and what it waited for, goes along into another store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    Ask,
    Queue,
    Retry,
    Run,
    Signal,
    Stepwell,
    emit,
    set_value,
    step,
    task,
    wait_for_ask,
    wait_for_signal,
    workflow,
)
from tests.behaviour.stage import LONG, stage

pytestmark = pytest.mark.anyio
go = Signal("go", int)
turns = Queue("turns", key_limit=1)
approve = Ask("approve", int, bool)


@step
async def counts() -> None:
    stage.note("counts")
    for number in range(3):
        emit("steps", number)


@workflow
async def talks() -> int:
    set_value("state", "begun")
    emit("code", "first")
    await counts()
    (await wait_for_ask(approve)).answer(True)
    (await wait_for_ask(approve)).refuse("no more")
    emit("code", "second")
    value = await wait_for_signal(go)
    set_value("state", "done")
    emit("code", "third")
    return value


@task(retry=Retry(attempts=3, delay=1000.0, jitter=False))
async def fails() -> None:
    raise OSError("not yet")


@task
async def plain() -> str:
    return "done"


@pytest.fixture
def other(tmp_path: Path) -> Stepwell:
    return Stepwell(tmp_path / "other.db", include=[__name__], durability="process")


async def exported(app: Stepwell, *ids: str) -> list[bytes]:
    return [line async for line in app.export_runs(*ids)]


async def items(run: Run[Any], stream: str) -> list[tuple[int, Any]]:
    return [(one.offset, one.value) async for one in run.stream(stream)]


async def test_values_items_and_answers_are_there_at_once_and_none_twice_when_the_copy_goes_on(
    app: Stepwell, other: Stepwell
) -> None:
    async with app.worker() as worker:
        run = await app.start(talks(), id="talks")
        assert await run.ask(approve, 1, id="first", timeout=LONG)
        with pytest.raises(Exception, match="no more"):
            await run.ask(approve, 2, id="second", timeout=LONG)
        await worker.drain()
    lines = await exported(app, "talks")
    async with other:
        await other.import_runs(lines)
        copy = other.get("talks", talks)
        assert await copy.value("state", str) == "begun"
        # what was answered there is known here, also while nobody executes the copy
        assert await copy.ask(approve, 1, id="first", timeout=LONG)
        again = await exported(other, "talks")
        said = [b'"value"', b'"item"', b'"answer"']
        assert [one for one in again if one[8:].startswith(tuple(said))] == [
            one for one in lines if one[8:].startswith(tuple(said))
        ]
        async with other.worker():
            await copy.resume()
            await copy.signal(go, 7)
            assert await copy.result(timeout=LONG) == 7
        assert await copy.value("state", str) == "done"
        assert await items(copy, "steps") == [(1, 0), (2, 1), (3, 2)]
        assert await items(copy, "code") == [(1, "first"), (2, "second"), (3, "third")]
        assert await other.doctor() == []
    assert stage.done == ["counts"]


async def test_failed_attempts_go_along_and_the_next_one_comes_when_it_was_to_come(
    app: Stepwell, other: Stepwell
) -> None:
    async with app.worker() as worker:
        await app.enqueue(fails(), id="fails")
        await worker.drain()
        there = await app.history("fails")
    async with other:
        await other.import_runs(await exported(app, "fails"))
        await other.resume("fails")
        here = await other.history("fails")
        [one], [other_one] = here.failures, there.failures
        assert (one.number, one.ended_at, one.worker) == (1, other_one.ended_at, other_one.worker)
        assert repr(one.error) == "OSError('not yet')"
        assert (here.run.status, here.run.due_at) == ("scheduled", there.run.due_at)


@pytest.mark.parametrize("paused", [False, True])
async def test_a_copy_that_was_scheduled_or_parked_is_so_again_once_it_is_resumed(
    app: Stepwell, other: Stepwell, paused: bool
) -> None:
    async with app.worker() as worker:
        await app.start(talks(), id="parked")
        await worker.drain()
    await app.enqueue(plain().with_options(delay=1000.0), id="later")
    due = (await app.info("later")).due_at
    if paused:
        for id in ("parked", "later"):
            await app.pause(id)
    lines = await exported(app, "parked", "later")
    async with other:
        await other.import_runs(lines)
        for id in ("parked", "later"):
            assert (await other.info(id)).status == "paused"
            await other.resume(id)
        infos = [await other.info(id) for id in ("parked", "later")]
        assert [one.status for one in infos] == ["parked", "scheduled"]
        assert infos[1].due_at == due
        assert await other.doctor() == []


async def test_the_key_of_a_queue_goes_along_and_counts_where_the_copy_goes_on(
    app: Stepwell, other: Stepwell
) -> None:
    await app.enqueue(plain().with_options(queue="turns", key="ann"), id="keyed")
    async with other:
        await other.import_runs(await exported(app, "keyed"))
        assert [one.id for one in await other.runs(key="ann")] == ["keyed"]
        await other.resume("keyed")
        async with other.worker(queues=["turns"]):
            assert await other.get("keyed", plain).result(timeout=LONG) == "done"
        assert await other.doctor() == []

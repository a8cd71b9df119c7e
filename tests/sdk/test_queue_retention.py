"""How long the ended runs of one queue are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from stepwell import (
    Queue,
    Retention,
    RunNotFound,
    Signal,
    Stepwell,
    step,
    task,
    wait_for_signal,
    workflow,
)
from stepwell._app.retention import prune_once

pytestmark = pytest.mark.anyio
MakeApp = Callable[[], Stepwell]

brief = Queue("brief", retention=Retention(count=1))
go = Signal("go", str)
said: list[str] = []


@task(queue=brief)
async def work(number: int) -> int:
    return number


@task
async def other(number: int) -> int:
    return number


@step(queue=brief)
async def say(text: str) -> str:
    said.append(text)
    return text


@workflow
async def story() -> list[str]:
    first = await say("first")
    counted = await work(7)
    second = await wait_for_signal(go)
    third = await wait_for_signal(go)
    return [first, str(counted), second, third]


async def ids(app: Stepwell, queue: str) -> list[str]:
    return [run.id for run in await app.runs(queue=queue)]


async def test_a_worker_deletes_what_a_queue_does_not_keep(make_app: MakeApp) -> None:
    async with make_app() as app:
        async with app.worker(queues=["brief", "default"]):
            for number in range(3):
                await (await app.enqueue(work(number), id=f"work-{number}")).result()
                await (await app.enqueue(other(number), id=f"other-{number}")).result()
        async with app.worker(), asyncio.timeout(20):  # of another queue: any one does it
            while len(await ids(app, "brief")) > 1:  # noqa: ASYNC110 - a pass tells nobody
                await asyncio.sleep(0.01)
        assert await ids(app, "brief") == ["work-2"]
        assert len(await ids(app, "default")) == 3
        with pytest.raises(RunNotFound):
            await app.get("work-0", work).result()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"age": -1}, "Retention(age=…) must be a finite span >= 0, not -1"),
        ({"age": "1d"}, "Retention(age=…) takes seconds (a number) or a timedelta, not '1d'"),
        ({"count": -1}, "count= must be from 0 to 9223372036854775807, not -1"),
        ({"count": 1.5}, "count= takes a whole number, not 1.5"),
    ],
    ids=str,
)
def test_a_retention_that_cannot_be_is_refused_in_plain_words(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises((TypeError, ValueError)) as refused:
        Retention(**options)
    assert str(refused.value) == said


async def test_the_retention_of_the_app_is_for_queues_without_their_own(app: Stepwell) -> None:
    async with app:
        runs = [await app.enqueue(work(number)) for number in range(3)]
        await app.queue("brief").configure(retention=Retention(age=timedelta(days=1)))
        async with app.worker(queues=["brief", "default"]):
            for run in [*runs, *[await app.enqueue(other(number)) for number in range(3)]]:
                await run.result()
        await app.enqueue(other(9), delay=3600.0)
        assert await prune_once(app, Retention(count=0)) == 3
        assert len(await ids(app, "brief")) == 3
        await app.queue("brief").configure(retention=None)
        assert await prune_once(app, Retention(count=1)) == 2
        assert len(await ids(app, "brief")) == 1


async def test_what_a_parked_run_needs_is_kept_whatever_its_queue_says(app: Stepwell) -> None:
    said.clear()
    async with app:
        async with app.worker(queues=["default", "brief"]) as worker:
            run = await app.start(story())
            await run.signal(go, "consumed")
            await worker.drain()
            await asyncio.gather(*[(await app.enqueue(other(n))).result() for n in range(3)])
        await run.signal(go, "not consumed")
        for name in ("brief", "default"):
            await app.queue(name).configure(retention=Retention(age=0.0))
        newest = await app.enqueue(other(9), delay=3600.0)  # the newest run of a store stays
        assert await prune_once(app, None) == 3
        assert await ids(app, "default") == [newest.id, run.id]
        assert len(await ids(app, "brief")) == 1  # the child, whose parent is alive
        async with app.worker(queues=["default", "brief"]):
            assert await run.result(timeout=20) == ["first", "7", "consumed", "not consumed"]
        assert said == ["first"]
        await prune_once(app, None)  # now the tree has ended, and goes as a whole
        assert await ids(app, "default") == [newest.id]
        assert await ids(app, "brief") == []
        assert await app.doctor() == []


async def test_a_pass_that_fails_is_tried_again(
    app: Stepwell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from stepwell._app import retention

    passes: list[asyncio.Event] = [asyncio.Event(), asyncio.Event()]
    left = iter(passes)

    async def failing(app: Stepwell, kept: Retention | None) -> int:
        next(left).set()
        raise OSError("the disk is full")

    monkeypatch.setattr(retention, "prune_once", failing)
    monkeypatch.setattr(retention, "EVERY", 0.0)
    async with app, app.worker(), asyncio.timeout(20):
        await passes[1].wait()
    assert "the disk is full" in capsys.readouterr().out


@task
async def part(number: int) -> int:
    return number


@workflow
async def whole(number: int) -> int:
    return await part(number)


async def test_trees_that_do_not_fill_a_pass_are_all_pruned(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell_runtime.retention.PASS", 3)
    async with make_app() as app:
        async with app.worker():
            runs = await app.start_many([whole(number) for number in range(5)])
            for run in runs:
                await run.result()
        assert (
            await app.prune(older_than=timedelta()) >= 8
        )  # the newest run may stay, with its tree
        assert len(await app.runs()) <= 2

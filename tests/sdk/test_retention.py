"""How long ended runs are kept by name and status, and having them archived before they go."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stepwell import (
    ArchivedRun,
    DefinitionError,
    Queue,
    Retention,
    RunNotFound,
    Stepwell,
    TaskCall,
    WorkflowCall,
    task,
    workflow,
)
from stepwell._app.retention import keep_pruned, prune_once
from stepwell._retention import declared_keeps
from stepwell_queue.contract import ListKept

pytestmark = pytest.mark.anyio
MakeApp = Callable[[], Stepwell]

brief = Queue("brief", retention=Retention(age=0.0))


@task(queue=brief, retention=Retention(age=0.0, statuses={"failed": Retention(count=1)}))
async def charge(number: int) -> int:
    if number < 0:
        raise ValueError("a charge below zero")
    return number


@workflow(retention=Retention(statuses={"failed": None, "completed": Retention(count=0)}))
async def order(number: int) -> int:
    return await charge(number)


@workflow(queue=brief)
async def plain(number: int) -> int:
    return number


@task
async def other(number: int) -> int:
    return number


async def end(app: Stepwell, call: TaskCall[int] | WorkflowCall[int], id: str) -> None:
    with contextlib.suppress(ValueError):
        await app.run(call, id=id)  # which deletes nothing by itself


async def fill(app: Stepwell) -> None:
    """End one run of each kind, with an id that says how, and start one that has not ended."""
    for number in (2, 1, -1, -2):
        await end(app, charge(number), f"charge{number}")
        await end(app, order(number), f"order{number}")
    await end(app, plain(1), "plain")
    await end(app, other(1), "other")
    await app.enqueue(other(2), id="newest", delay=3600.0)
    await app.engine.pruning.declare(declared_keeps(app.definitions().values()))


async def ids(app: Stepwell) -> set[str]:
    return {run.id for run in await app.runs() if run.parent_id is None}


KEPT = {"charge-2", "order-1", "order-2", "newest"}


async def test_the_rule_of_a_name_goes_before_that_of_its_queue_and_of_the_app(
    make_app: MakeApp,
) -> None:
    async with make_app() as app:
        await fill(app)
        async with Stepwell(app.settings.store, include=[]) as without_code:
            await prune_once(without_code, None)
            assert await ids(app) == {*KEPT, "other"}
            await prune_once(without_code, Retention(age=0.0))
        assert await ids(app) == KEPT
        with pytest.raises(RunNotFound):
            await app.get("plain").result()
        # children go with their parents, and stay with them, whatever is said of their own name
        assert {run.parent_id for run in await app.runs(name="charge")} == {
            None, "order-1", "order-2",
        }  # fmt: skip
        assert await app.doctor() == []


async def test_a_rule_that_has_gone_from_the_code_is_taken_back(make_app: MakeApp) -> None:
    definition = charge.definition
    async with make_app() as app:
        await fill(app)
        declared = declared_keeps([definition])
        before = definition.retention
        try:
            definition.retention = None
            await app.engine.pruning.declare(declared_keeps([definition]))
        finally:
            definition.retention = before
        await prune_once(app, None)
        assert "charge-2" not in await ids(app)  # now its queue says so
        await app.engine.pruning.declare(declared)


async def test_prune_chooses_by_name_and_status(app: Stepwell) -> None:
    async with app:
        await fill(app)
        assert await app.prune(older_than=0, name="charge", status="completed") == 2
        assert await app.prune(keep=1, name="order", status=["failed", "completed"]) == 6
        assert {"order-2", "charge-1", "charge-2"} <= await ids(app)
        # what has a rule of its own is left to that, unless it is said
        assert await app.prune(older_than=0) == 2
        assert await ids(app) == {"order-2", "charge-1", "charge-2", "newest"}
        assert await app.prune(older_than=0, name="charge") == 0
        assert await app.prune(older_than=0, status="failed") == 4
        assert await ids(app) == {"newest"}
        with pytest.raises(ValueError, match="status= must be 'completed', "):
            await app.prune(older_than=0, status="running")  # type: ignore[arg-type]


async def test_a_status_that_a_queue_or_the_app_keeps_apart_is_left_to_that(
    make_app: MakeApp, address: str
) -> None:
    own = Retention(statuses={"cancelled": None})
    durability: Any = None if address.startswith("tcp:") else "process"
    async with Stepwell(address, include=[__name__], durability=durability, retention=own) as app:
        for number, queue in enumerate(("apart", "apart", "default", "default")):
            run = await app.enqueue(other(number), id=f"{queue}{number}", queue=queue)
            if number % 2:
                await run.cancel()
        async with make_app() as plain_app, plain_app.worker(queues=["apart", "default"]) as worker:
            await worker.drain()
        await app.queue("apart").configure(retention=Retention(statuses={"completed": None}))
        await app.enqueue(other(9), id="newest", delay=3600.0)
        assert await app.prune(older_than=0, queue="apart") == 1
        assert await ids(app) == {"apart0", "default2", "default3", "newest"}
        assert await app.prune(older_than=0, queue="default") == 1
        assert await app.prune(older_than=0, name="charge") == 0
        assert await ids(app) == {"apart0", "default3", "newest"}
        assert await app.prune(older_than=0, status=["completed", "cancelled"]) == 2


async def test_runs_are_archived_before_they_are_deleted(
    make_app: MakeApp, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell_runtime.retention.ARCHIVED_AT_ONCE", 3)
    archived: list[ArchivedRun] = []
    broken = True

    async def archive(runs: Sequence[ArchivedRun]) -> None:
        assert {run.id for run in runs} <= await ids(app)
        if broken:
            raise OSError("the archive is full")
        assert 1 <= len(runs) <= 3
        archived.extend(runs)

    durability: Any = None if address.startswith("tcp:") else "process"
    app = Stepwell(address, include=[__name__], durability=durability, archive=archive)
    async with make_app() as first:
        await fill(first)
        before = await ids(first)
    async with app:
        with pytest.raises(OSError, match="full") as failed:
            await app.prune(older_than=0, status=["completed", "failed"])
        assert "of which none is deleted" in "".join(failed.value.__notes__)
        assert await ids(app) == before
        broken = False
        assert await app.prune(older_than=0, status=["completed", "failed"]) == 14
        assert {run.id for run in archived} | {"newest"} == before
        whole = next(run for run in archived if run.id == "order-1")
        assert (whole.name, whole.status) == ("order", "failed")
        # the same format as of an export, children included
        imported = await app.import_runs(whole.document.splitlines())
        assert imported[0] == "order-1"
        assert len(imported) == 2
        assert (await app.info("order-1")).status == "failed"


async def test_an_archive_that_fails_is_called_again_by_the_next_pass(
    app: Stepwell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from stepwell._app import retention

    monkeypatch.setattr(retention, "EVERY", 0.0)
    calls: list[str] = []

    async def archive(runs: Sequence[ArchivedRun]) -> None:
        calls.append(runs[0].id)
        if len(calls) == 1:
            raise OSError("the archive is full")
        raise KeyboardInterrupt

    async with app:
        async with app.worker() as worker:
            await app.enqueue(other(1), id="other")
            await worker.drain()
        await app.enqueue(other(2), delay=3600.0)
        monkeypatch.setattr(app.engine.pruning, "_archive", archive)
        with pytest.raises(KeyboardInterrupt):
            await keep_pruned(app, Retention(age=0.0), app.definitions().values())
        assert calls == ["other", "other"]
        # and what the code of the worker says is stored, for workers that have other code
        assert [one.name for one in await app.engine.store.read(ListKept())] == ["charge", "order"]
    assert "OSError: the archive is full; raised by archive=" in capsys.readouterr().out


async def test_one_worker_at_a_time_archives(make_app: MakeApp, address: str) -> None:
    durability: Any = None if address.startswith("tcp:") else "process"
    here: list[str] = []

    async def archive(runs: Sequence[ArchivedRun]) -> None:
        here.append(runs[0].id)
        assert await prune_once(second, Retention(age=0.0)) == 0

    apps = [
        Stepwell(address, include=[__name__], durability=durability, archive=archive)
        for _ in range(2)
    ]
    async with apps[0] as first, apps[1] as second:
        async with first.worker() as worker:
            await first.enqueue(other(1), id="other")
            await worker.drain()
        await first.enqueue(other(2), delay=3600.0)
        assert await prune_once(first, Retention(age=0.0)) == 1
        assert here == ["other"]
        assert await prune_once(second, Retention(age=0.0)) == 0  # it may now, and nothing is left


own = Retention(statuses={"failed": None})


@pytest.mark.parametrize(
    ("statuses", "said"),
    [
        ({"done": None}, "must be 'completed', 'failed', "),
        ({"failed": 3}, "takes Retention(age=…, count=…) for 'failed'"),
        (["failed"], "takes a dict such as"),
        ({"failed": own}, "the Retention of 'failed' is for that alone"),
    ],
    ids=range(4),
)
def test_what_cannot_be_kept_to_is_refused(statuses: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError)) as refused:
        Retention(statuses=statuses)
    assert said in str(refused.value)


def test_what_is_no_retention_and_no_archive_is_refused() -> None:
    anything: Any = 3
    with pytest.raises(DefinitionError, match="retention= takes Retention"):
        task(retention=anything)(other.definition.fn)
    with pytest.raises(TypeError, match="archive= takes an `async def`"):
        Stepwell("x.db", archive=anything)


def test_a_queue_with_a_retention_is_still_a_key() -> None:
    one = Queue("a", retention=Retention(statuses={"failed": Retention(count=3)}))
    assert one == Queue("a", retention=Retention(statuses={"failed": Retention(count=3)}))
    assert {one: 1}[one] == 1

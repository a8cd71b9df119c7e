"""Tasks that have failed for good: seen with all their attempts, requeued, deleted."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    DeadlineExceeded,
    DecodingError,
    GiveUp,
    RequestRefused,
    Retry,
    Run,
    RunNotFound,
    Stepwell,
    current_job,
    parallel,
    step,
    task,
    workflow,
)
from tests.behaviour.stage import LONG, stage, until

pytestmark = pytest.mark.anyio
broken: set[str] = set()


class Broken(LookupError):
    pass


@pytest.fixture(autouse=True)
def _all_is_broken() -> None:
    broken.clear()
    broken.update("abcxyz")


@task(retry=Retry(attempts=3, delay=0.0))
async def work(what: str) -> str:
    job = current_job()
    stage.note((what, job.attempt, job.key))
    if what in broken:
        raise Broken(f"{what} {job.attempt}")
    return what


@task
async def give_up(what: str) -> str:
    if what in broken:
        raise GiveUp(what)
    return what


@task(deadline=0.05)
async def never_ends() -> None:
    await asyncio.Event().wait()


@step(queue="far", retry=Retry(attempts=2, delay=0.0))
async def far() -> None:
    raise Broken("far")


@workflow
async def flow() -> None:
    await far()


@workflow
async def parent(what: str) -> str:
    return await work(what)


@workflow
async def catches(what: str) -> str:
    try:
        return await work(what)
    except Broken:
        return "without it"


@task
async def waits() -> str:
    await stage.hold("waits")
    return "waited"


@workflow
async def in_parallel() -> list[str]:
    outcomes = await parallel(work("x"), waits(), return_exceptions=True)
    return [one if isinstance(one, str) else type(one).__name__ for one in outcomes]


async def fail(*runs: Run[Any]) -> None:
    for run in runs:
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it was
            await run.result(timeout=LONG)


async def test_a_task_that_failed_shows_all_its_attempts_with_their_errors(app: Stepwell) -> None:
    async with app.worker(name="anna"):
        run = await app.enqueue(work("x"))
        with pytest.raises(Broken):
            await run.result(timeout=LONG)
    history = await run.history()
    assert [one.number for one in history.failures] == [1, 2, 3]
    assert [str(one.error) for one in history.failures] == ["x 1", "x 2", "x 3"]
    assert {type(one.error) for one in history.failures} == {Broken}
    assert {(one.worker, one.path, one.crashed) for one in history.failures} == {
        ("anna", "", False)
    }
    times = [moment for one in history.failures for moment in (one.started_at, one.ended_at)]
    assert times == sorted(times)
    (letter,) = await app.dead_letters()
    assert (letter.id, letter.queue, letter.attempts) == (run.id, "default", 3)
    assert (letter.error_type, letter.message) == ("Broken", "x 3")
    assert letter.failed_at == (await run.info()).ended_at


async def test_a_workflow_shows_the_attempts_of_its_step_with_a_queue(app: Stepwell) -> None:
    async with app.worker(), app.worker(queues=["far"]):
        run = await app.start(flow())
        await fail(run)
    (event,) = [one for one in (await run.history()).events if one.kind == "step"]
    failures = (await run.history()).failures
    assert [(one.path, one.number) for one in failures] == [(event.path, 1), (event.path, 2)]
    assert await app.dead_letters() == []


async def test_a_requeued_task_is_executed_as_if_it_was_new(app: Stepwell) -> None:
    async with app.worker():
        run = await app.enqueue(work("x"), id="run")
        await fail(run)
        assert await run.requeue(reason="mended", actor="ann") in ("ready", "running")
        await fail(run)
        broken.clear()
        await app.requeue("run")
        assert await run.result(timeout=LONG) == "x"
    assert [attempt for _, attempt, _ in stage.done] == [1, 2, 3, 1, 2, 3, 1]
    # who is asked for something twice by it shall know that it is the same
    assert len({key for _, _, key in stage.done}) == 1
    history = await run.history()
    assert [(one.action, one.actor, one.reason) for one in history.audit] == [
        ("requeue", "ann", "mended"),
        ("requeue", "", ""),
    ]
    assert [one.number for one in history.failures] == [1, 2, 3, 1, 2, 3]
    assert await app.dead_letters() == []
    with pytest.raises(RequestRefused, match="only a failed task"):
        await app.requeue("run")


async def test_a_requeued_task_has_the_time_that_it_had_at_first(app: Stepwell) -> None:
    async with app.worker():
        run = await app.enqueue(never_ends())
        for _ in range(2):
            with pytest.raises(DeadlineExceeded):
                await run.result(timeout=LONG)
            await run.requeue()
        with pytest.raises(DeadlineExceeded):
            await run.result(timeout=LONG)
    info = await run.info()
    assert info.deadline_at is not None
    assert info.ended_at is not None
    assert info.ended_at - info.deadline_at < timedelta(seconds=LONG)
    last = (await run.history()).audit[-1].at
    assert abs(info.deadline_at - last - timedelta(seconds=0.05)) < timedelta(milliseconds=0.1)
    (letter,) = await app.dead_letters(error="DeadlineExceeded")
    assert letter.id == run.id


async def test_arguments_that_cannot_be_read_make_a_dead_letter(
    app: Stepwell, tmp_path: Path
) -> None:
    run = await app.enqueue(work("a"))

    def damage() -> None:
        with sqlite3.connect(tmp_path / "runs.db") as db:
            db.execute("UPDATE runs SET args = x'9291c401c180'")
        db.close()

    await asyncio.to_thread(damage)
    async with app.worker():
        with pytest.raises(DecodingError):
            await run.result(timeout=LONG)
    (letter,) = await app.dead_letters()
    assert (letter.error_type, letter.attempts) == ("DecodingError", 1)
    assert len((await run.history()).failures) == 1


async def test_dead_letters_are_found_by_queue_name_and_error_in_pages(app: Stepwell) -> None:
    async with app.worker(queues=["default", "mail"]):
        for what in "abc":
            await fail(await app.enqueue(work(what), id=what))
        for what in "xyz":
            await fail(await app.enqueue(give_up(what), id=what, queue="mail"))

    async def ids(**which: Any) -> list[str]:
        return [letter.id for letter in await app.dead_letters(**which)]

    assert await ids() == ["z", "y", "x", "c", "b", "a"]
    assert await ids(limit=2) == ["z", "y"]
    assert await ids(limit=2, after="y") == ["x", "c"]
    assert await ids(queue="mail") == ["z", "y", "x"]
    assert await ids(name=work.name) == ["c", "b", "a"]
    assert await ids(error="GiveUp", after="y") == ["x"]
    assert await ids(error=f"{__name__}.Broken", limit=1, after="c") == ["b"]
    assert await ids(error="Nothing") == []
    with pytest.raises(RunNotFound):
        await ids(after="nobody")
    with pytest.raises(ValueError, match="limit="):
        await ids(limit=0)
    counts = {one.name: one.dead_letters for one in await app.queues()}
    assert counts == {"default": 3, "mail": 3}


async def test_many_are_requeued_by_a_filter(app: Stepwell) -> None:
    async with app.worker():
        for what in "abc":
            await fail(await app.enqueue(work(what), id=what))
        for what in "xyz":
            await fail(await app.enqueue(give_up(what), id=what))
    assert await app.requeue_dead_letters(error="Broken", dry_run=True) == 3
    assert await app.requeue_dead_letters(error="Broken", limit=2, dry_run=True) == 2
    assert len(await app.dead_letters()) == 6
    assert await app.requeue_dead_letters(error="Broken", limit=2, reason="mended") == 2
    assert [letter.id for letter in await app.dead_letters()] == ["z", "y", "x", "a"]
    assert (await app.history("c")).audit[0].reason == "mended"
    broken.clear()
    async with app.worker():
        assert await app.requeue_dead_letters() == 4
        for what in "abcxyz":
            assert await app.get(what).result(timeout=LONG) == what
    assert await app.requeue_dead_letters() == 0


async def test_those_that_fail_again_meanwhile_are_requeued_once(app: Stepwell) -> None:
    count = 250
    async with app.worker():
        runs = await app.enqueue_many([give_up("x") for _ in range(count)])
        await fail(*runs)
        assert await app.requeue_dead_letters() == count
        await fail(*runs)
    assert len((await runs[0].history()).audit) == 1


async def test_what_a_workflow_has_handled_is_not_requeued(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(catches("x"), id="flow")
        assert await run.result(timeout=LONG) == "without it"
    (letter,) = await app.dead_letters()
    assert (letter.parent_id, letter.handled) == ("flow", True)
    with pytest.raises(RequestRefused, match="its parent has taken its outcome"):
        await app.requeue(letter.id)
    for dry_run in (True, False):
        assert await app.requeue_dead_letters(dry_run=dry_run) == 0
        assert await app.purge_dead_letters(dry_run=dry_run, confirm=True) == 0
    assert await app.get(letter.id).status() == "failed"


async def test_the_failed_child_of_a_workflow_that_goes_on_is_not_deleted(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(in_parallel())
        await stage.reached("waits")

        async def has_failed() -> bool:
            return bool(await app.dead_letters())

        await until(has_failed)
        (letter,) = await app.dead_letters()
        assert await app.purge_dead_letters(confirm=True) == 0
        assert await app.get(letter.id).status() == "failed"
        stage.release("waits")
        assert await run.result(timeout=LONG) == ["Broken", "waited"]


async def test_a_failure_by_which_a_workflow_failed_is_final(app: Stepwell) -> None:
    run = await app.start(parent("x"))
    async with app.worker():
        await fail(run)
    (letter,) = await app.dead_letters()
    with pytest.raises(RequestRefused, match="has taken"):
        await app.requeue(letter.id)


async def test_a_failed_task_is_not_retried_but_requeued(app: Stepwell) -> None:
    async with app.worker():
        run = await app.enqueue(work("x"))
        await fail(run)
        with pytest.raises(RequestRefused, match="requeue it"):
            await run.retry()
        assert await run.status() == "failed"


async def test_dead_letters_are_deleted_if_that_is_confirmed(app: Stepwell) -> None:
    async with app.worker():
        for what in "abc":
            await fail(await app.enqueue(work(what), id=what))
        done = await app.enqueue(work("fine"))
        await done.result(timeout=LONG)
    with pytest.raises(ValueError, match="confirm=True"):
        await app.purge_dead_letters()
    assert await app.purge_dead_letters(dry_run=True) == 3
    assert await app.purge_dead_letters(older_than=3600, confirm=True) == 0
    assert await app.purge_dead_letters(limit=1, confirm=True) == 1
    assert [letter.id for letter in await app.dead_letters()] == ["b", "a"]
    assert await app.purge_dead_letters(older_than=0, name=work.name, confirm=True) == 2
    for what in "abc":
        with pytest.raises(RunNotFound):
            await app.info(what)
    assert await done.status() == "completed"


async def test_retention_deletes_what_is_kept_of_attempts_and_reports(
    app: Stepwell, tmp_path: Path
) -> None:
    async with app.worker():
        await fail(await app.enqueue(logs_and_fails()))
        await (await app.enqueue(work("last"))).result(timeout=LONG)
    assert await app.prune(keep=0) == 1

    def left() -> list[int]:
        db = sqlite3.connect(tmp_path / "runs.db")
        tables = ("failures", "reports", "log_lines")
        counts = [db.execute(f"SELECT count(*) FROM {one}").fetchone()[0] for one in tables]
        db.close()
        return counts

    assert await asyncio.to_thread(left) == [0, 0, 0]


@task
async def logs_and_fails() -> None:
    current_job().log("line")
    current_job().report(0.5)
    raise GiveUp("no")

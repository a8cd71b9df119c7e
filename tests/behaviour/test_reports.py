"""What tasks and steps report while they run, and who reads it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from stepwell import (
    Retry,
    Run,
    RunNotFound,
    Stepwell,
    current_job,
    current_step,
    parallel,
    step,
    task,
    workflow,
)
from stepwell_runtime.scope import JobScope
from tests.behaviour.stage import LONG, stage, until

pytestmark = pytest.mark.anyio


async def shown(run: Run[Any]) -> tuple[float, str] | None:
    progress = await run.progress()
    return None if progress is None else (progress.fraction, progress.note)


async def texts(run: Run[Any]) -> list[str]:
    return [line.text for line in await run.logs()]


@task
async def talks() -> str:
    job = current_job()
    job.report(0.25, "a quarter")
    job.log("begun", rows=3, price=Decimal("1.5"))
    await stage.hold("talking")
    job.report(1)
    job.log("the last words")
    return "done"


async def test_progress_and_log_are_read_while_the_task_runs(app: Stepwell) -> None:
    async with app.worker():
        run = await app.enqueue(talks())
        await stage.reached("talking")

        async def is_told() -> bool:
            return await shown(run) == (0.25, "a quarter") and await texts(run) == ["begun"]

        await until(is_told)
        assert await run.status() == "running"
        stage.release("talking")
        assert await run.result(timeout=LONG) == "done"
        # what was said right before the end is stored with the end
        assert await shown(run) == (1.0, "")
    begun, last = await run.logs()
    assert (begun.text, begun.fields) == ("begun", {"rows": 3, "price": "1.5"})
    assert (begun.path, begun.attempt) == ("", 1)
    assert (last.text, last.fields) == ("the last words", {})
    assert begun.at <= last.at
    assert await run.logs(after=begun.number) == [last]
    assert await run.logs(limit=1) == [begun]


@task
def talks_in_threads() -> None:
    job = current_job()

    def talk(name: str) -> None:
        for number in range(100):
            job.log(f"{name} {number}")
            job.report(number / 100, name)

    others = [threading.Thread(target=talk, args=(name,)) for name in ("a", "b", "c")]
    for other in others:
        other.start()
    for other in others:
        other.join()
    job.report(1.0, "all")


async def test_threads_talk_at_the_same_time(app: Stepwell) -> None:
    async with app.worker():
        run = await app.enqueue(talks_in_threads())
        await run.result(timeout=LONG)
        found = await texts(run)
        for name in ("a", "b", "c"):
            of_one = [text for text in found if text.startswith(name)]
            assert of_one == [f"{name} {number}" for number in range(100)]
        assert await shown(run) == (1.0, "all")


@step
async def part(name: str, fraction: float) -> None:
    scope = current_step()
    scope.log(f"{name} at {scope.path}")
    await stage.hold(name)
    scope.report(fraction, name)


@step(queue="far")
async def far_part() -> None:
    current_step().log("far")
    current_step().report(0.9, "far")


@workflow
async def in_parts() -> None:
    await parallel(part("a", 0.1), part("b", 0.2))
    await far_part()


async def test_a_workflow_shows_what_its_steps_say(app: Stepwell) -> None:
    async with app.worker():
        run = await app.start(in_parts())
        for name in ("a", "b"):
            await stage.reached(name)

        async def both_said() -> bool:
            return len(await texts(run)) == 2

        await until(both_said)
        stage.release("b")

        async def one_is_over() -> bool:
            return await shown(run) == (0.2, "b")

        await until(one_is_over)
        stage.release("a")
        async with app.worker(queues=["far"]):
            await run.result(timeout=LONG)
        assert await shown(run) == (0.9, "far")
        lines = await run.logs()
        first, second, last = [line.text for line in lines]
        assert sorted([first, second]) == [f"a at {lines[0].path}", f"b at {lines[1].path}"]
        assert (last, lines[2].path) == ("far", lines[2].path)
        assert len({line.path for line in lines}) == 3


@task(retry=Retry(attempts=2, delay=0.0))
async def fails_once() -> None:
    job = current_job()
    job.log(f"attempt {job.attempt}")
    if job.attempt == 1:
        raise LookupError


async def test_lines_of_all_attempts_are_kept(app: Stepwell) -> None:
    async with app.worker():
        run = await app.enqueue(fails_once())
        await run.result(timeout=LONG)
        lines = await run.logs()
    assert [(line.text, line.attempt) for line in lines] == [("attempt 1", 1), ("attempt 2", 2)]


@task(timeout=0.05, retry=Retry(attempts=1))
def goes_on(name: str) -> None:
    job = current_job()
    job.log("in time")
    stage.hold_thread(name)
    job.log("too late")
    job.report(1.0)
    stage.reach("over")


async def test_what_an_abandoned_attempt_says_does_not_count(app: Stepwell) -> None:
    async with app.worker():
        run = await app.enqueue(goes_on("a"))
        await stage.reached("a")
        with pytest.raises(TimeoutError):
            await run.result(timeout=LONG)
        stage.release("a")
        await stage.reached("over")
        other = await app.enqueue(says("after"))
        await other.result(timeout=LONG)
        assert (await texts(run), await shown(run)) == (["in time"], None)


kept: list[JobScope] = []


@task
async def says(what: str) -> None:
    kept.append(current_job())
    current_job().log(what)


async def test_a_job_that_is_over_has_no_voice(app: Stepwell) -> None:
    kept.clear()
    async with app.worker():
        run = await app.enqueue(says("once"))
        await run.result(timeout=LONG)
        kept[0].log("again")
        kept[0].report(0.5)
        await (await app.enqueue(says("twice"))).result(timeout=LONG)
        assert (await texts(run), await shown(run)) == (["once"], None)


@task(batch=3, linger=1.0)
async def together(names: list[str]) -> list[str]:
    current_job().log(f"{len(names)} at once")
    current_job().report(0.5, "half")
    return names


async def test_a_batch_reports_for_each_of_its_jobs(app: Stepwell) -> None:
    async with app.worker():
        runs = await app.enqueue_many([together("a"), together("b"), together("c")])
        for run in runs:
            await run.result(timeout=LONG)
            assert await texts(run) == ["3 at once"]
            assert await shown(run) == (0.5, "half")


@task
async def talks_a_lot() -> None:
    job = current_job()
    for number in range(5000):
        job.log(str(number))
        job.report(number / 5000)


async def test_of_a_job_that_talks_a_lot_the_end_is_kept(app: Stepwell) -> None:
    async with app.worker():
        run = await app.enqueue(talks_a_lot())
        await run.result(timeout=LONG)
        found = await texts(run)
        assert 900 <= len(found) <= 1000
        assert found == [str(number) for number in range(5000 - len(found), 5000)]
        assert await shown(run) == (4999 / 5000, "")


@task
async def told(call: str) -> str:
    calls: dict[str, Callable[[JobScope], None]] = {
        "over": lambda job: job.report(1.01),
        "under": lambda job: job.report(-0.1),
        "nan": lambda job: job.report(float("nan")),
        "bool": lambda job: job.report(True),
        "text": lambda job: job.report("half"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        "note": lambda job: job.report(0.5, 3),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        "line": lambda job: job.log(b"bytes"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        "fields": lambda job: job.log("long", value="x" * 10_000),
    }
    try:
        calls[call](current_job())
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "taken"


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ("over", "ValueError: report() takes a number from 0 to 1, not 1.01"),
        ("under", "ValueError: report() takes a number from 0 to 1, not -0.1"),
        ("nan", "ValueError: report() takes a number from 0 to 1, not nan"),
        ("bool", "TypeError: report() takes a number from 0 to 1, not True"),
        ("text", "TypeError: report() takes a number from 0 to 1, not 'half'"),
        ("note", "TypeError: report() takes a text as its note, not 3"),
        ("line", "TypeError: log() takes a text, not b'bytes'"),
        ("fields", "ValueError: the fields of a line of the log take 10012 characters"),
    ],
)
async def test_what_makes_no_sense_is_refused_at_the_call(
    app: Stepwell, call: str, answer: str
) -> None:
    async with app.worker():
        run = await app.enqueue(told(call))
        assert (await run.result(timeout=LONG)).startswith(answer)
        assert (await run.progress(), await run.logs()) == (None, [])


@task
async def odd() -> None:
    job = current_job()
    job.log("half a pair: \ud800", name="\udfff", nested=["\ud800"], big=2**70, it=object)
    job.log("x" * 10_000)
    job.report(0.5, "y" * 2000)


async def test_odd_values_and_long_texts_are_stored_as_far_as_they_can_be(app: Stepwell) -> None:
    async with app.worker():
        run = await app.enqueue(odd())
        await run.result(timeout=LONG)
        strange, long = await run.logs()
        progress = await run.progress()
    assert strange.text == "half a pair: \\ud800"
    assert set(strange.fields) == {"name", "nested", "big", "it"}
    assert len(long.text) == 8192
    assert long.text.endswith("x... (10,000 characters)")
    assert progress is not None
    assert len(progress.note) == 1000


async def test_nobody_reports(app: Stepwell) -> None:
    for work in (app.progress, app.logs):
        with pytest.raises(RunNotFound):
            await work("nobody")
    with pytest.raises(ValueError, match="limit="):
        await app.logs("nobody", limit=1001)

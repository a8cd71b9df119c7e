"""Whichever commit a worker dies after, what a run says is said once, and is answered once."""

from __future__ import annotations

import contextlib
import sqlite3
from functools import partial
from pathlib import Path

import pytest

from stepwell import (
    Ask,
    RunNotFound,
    Stepwell,
    emit,
    parallel,
    set_value,
    sleep,
    step,
    wait_for_ask,
    workflow,
)
from stepwell_queue.sqlite import store as sqlite_store
from stepwell_queue.sqlite.store import open_sqlite
from tests.behaviour.stage import LONG
from tests.property.commits import (
    copy_database,
    leave_lock_of_the_dead,
    remove_traces,
    watching,
)

pytestmark = [pytest.mark.anyio, pytest.mark.blocking]
price = Ask("price", int, int)


@step
async def work() -> None: ...


@workflow
async def talks() -> str:
    async def branch(name: str) -> None:
        emit("lines", f"{name} begins")
        await work()
        emit("lines", f"{name} ends")

    set_value("stage", 0)
    emit("lines", "begins")
    await work()
    set_value("stage", 1)
    emit("lines", "waits")
    question = await wait_for_ask(price)
    question.answer(question.payload * 2)
    await parallel(branch("a"), branch("b"))
    await sleep(0.0)
    set_value("stage", 2)
    emit("lines", "ends")
    return "done"


async def lines(app: Stepwell) -> list[tuple[int, object]]:
    rows = app.engine.talking.items("run", "lines", 0, follow=False)
    return [(row.offset, app.codec.decode(row.value)) async for row in rows]


@pytest.mark.parametrize("cache", [0, 1000])
async def test_a_crash_after_any_commit_doubles_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: int
) -> None:
    path = tmp_path / "runs.db"
    copies: list[Path] = []

    def committed() -> None:
        copies.append(tmp_path / f"copy-{len(copies)}.db")
        copy_database(path, copies[-1])

    with monkeypatch.context() as patched:
        watched = partial(open_sqlite, factory=watching(committed))
        patched.setattr(sqlite_store, "open_sqlite", watched)
        async with Stepwell(path, include=[__name__], durability="process") as app:
            run = await app.start(talks(), id="run")
            with contextlib.suppress(TimeoutError):
                await run.ask(price, 21, id="q", timeout=0.05)
            async with app.worker(cache=cache):
                await run.result(timeout=LONG)
            said = await lines(app)
    assert len(said) == 7
    assert len(copies) > 10
    for copy in copies:
        await go_on(copy, said)


async def go_on(copy: Path, said: list[tuple[int, object]]) -> None:
    """Have a run that was cut short go on, and compare what it has said then."""
    with contextlib.closing(sqlite3.connect(copy)) as db:
        tokens = [token for (token,) in db.execute("SELECT token FROM workers")]
    for token in tokens:
        leave_lock_of_the_dead(token)
    async with Stepwell(copy, include=[__name__], durability="process") as app:
        try:
            before = await lines(app)
        except RunNotFound:
            return  # it was not started yet
        assert before == said[: len(before)]
        run = app.get("run", talks)
        async with app.worker():
            assert await run.ask(price, 21, id="q", timeout=LONG) == 42
            assert await run.result(timeout=LONG) == "done"
        assert (await lines(app), await run.value("stage")) == (said, 2)
        assert await app.doctor() == []
    for token in tokens:
        remove_traces(token)

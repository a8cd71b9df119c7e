"""What is no id, name or reason is refused where it is given, on a file and over TCP alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stepwell import Stepwell, task

pytestmark = pytest.mark.anyio


@task
async def work() -> int:
    return 1


@pytest.mark.parametrize(
    "method",
    [
        "info", "history", "progress", "logs", "cancel", "retry", "roll_back", "resume_rollback",
        "resume", "requeue",
    ],
)  # fmt: skip
async def test_what_is_no_id_is_refused(make_app: Callable[[], Stepwell], method: str) -> None:
    async with make_app() as app:
        run = await app.enqueue(work())
        ask: Any = getattr(app, method)
        for wrong in (5, None, b"run"):
            with pytest.raises(TypeError, match="the id of a run is a string, not "):
                await ask(wrong)
        with pytest.raises(TypeError, match=r"is a string, not Run\(.*\); write run\.id"):
            await ask(run)
        assert await run.status() == "ready"


async def test_a_signal_for_what_is_no_id_is_refused(make_app: Callable[[], Stepwell]) -> None:
    async with make_app() as app:
        send: Any = app.signal
        with pytest.raises(TypeError, match="the id of a run is a string, not 5"):
            await send(5, "go")
        assert await app.runs() == []


@pytest.mark.parametrize("name", ["name", "parent", "key", "after"])
async def test_what_runs_cannot_have_is_not_looked_for(
    make_app: Callable[[], Stepwell], name: str
) -> None:
    async with make_app() as app:
        find: Any = app.runs
        for wrong in (5, work):
            with pytest.raises(TypeError, match=f"{name}= .* a? ?string, not "):
                await find(**{name: wrong})


@pytest.mark.parametrize("name", ["reason", "actor"])
async def test_a_reason_and_who_asks_are_text(make_app: Callable[[], Stepwell], name: str) -> None:
    async with make_app() as app:
        run = await app.enqueue(work())
        asks: list[Any] = [app.cancel, app.retry, app.requeue]
        for ask in asks:
            with pytest.raises(TypeError, match=f"{name}= is a string, not 5"):
                await ask(run.id, **{name: 5})
        every: Any = app.requeue_dead_letters
        with pytest.raises(TypeError, match=f"{name}= is a string, not 5"):
            await every(**{name: 5})
        assert await run.status() == "ready"

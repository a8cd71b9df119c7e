"""A resumed rollback runs a failed undo anew, also one that is a run of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepwell import Stepwell, compensate, step, workflow

pytestmark = pytest.mark.anyio

service = {"up": False}
done: list[str] = []


@step
async def release(what: str) -> None:
    if not service["up"]:
        raise ConnectionError("down")
    done.append(what)


@workflow
async def releases(what: str) -> None:
    await release(what)


@workflow
async def fails_after_reserving() -> None:
    compensate(releases("room"))
    compensate(releases("car"))
    raise ValueError("no")


async def test_a_failed_undo_that_is_a_child_run_is_executed_anew(tmp_path: Path) -> None:
    service["up"] = False
    done.clear()
    store = Stepwell(tmp_path / "runs.db", include=[__name__], durability="process")
    async with store as app, app.worker():
        run = await app.start(fails_after_reserving())
        with pytest.raises(ValueError, match="no"):
            await run.result(timeout=20)
        assert (await run.info()).rollback == "incomplete"
        service["up"] = True
        await run.resume_rollback()
        with pytest.raises(ValueError, match="no"):
            await run.result(timeout=20)
        assert (await run.info()).rollback == "complete"
        assert done == ["car", "room"]
        assert await app.doctor() == []

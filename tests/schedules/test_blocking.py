"""Schedules from code that blocks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwell import BlockingStepwell, ScheduleNotFound, task

pytestmark = pytest.mark.blocking


@task
async def report(region: str) -> str:
    return f"report of {region}"


@pytest.fixture
def app(tmp_path: Path) -> Iterator[BlockingStepwell]:
    made = BlockingStepwell(tmp_path / "runs.db", include=[__name__], durability="process")
    yield made
    made.close()


def test_schedules_are_made_and_steered_from_a_thread(app: BlockingStepwell) -> None:
    made = app.schedule("nightly", report("eu"), cron="30 2 * * *", tz="Europe/Rome")
    assert repr(made) == "BlockingSchedule('nightly')"
    assert [one.id for one in app.schedules()] == ["nightly"]
    made.pause()
    assert made.info().paused
    made.resume()
    assert not app.get_schedule("nightly").info().paused
    run = made.run_now()
    with app.worker():
        assert run.result(timeout=20) == "report of eu"
    assert [tick.run_id for tick in made.history()] == [run.id]
    made.delete()
    with pytest.raises(ScheduleNotFound):
        made.info()

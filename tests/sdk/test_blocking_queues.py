"""Queues, from code that blocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepwell import BlockingStepwell, Queue, Rate, RunCancelled, task

pytestmark = pytest.mark.blocking

mail = Queue("mail", limit=3)


@task(queue=mail)
async def send(number: int) -> int:
    return number


def test_a_queue_is_steered_from_a_thread(tmp_path: Path) -> None:
    with BlockingStepwell(tmp_path / "runs.db", include=[__name__], durability="process") as app:
        queue = app.queue(mail)
        queue.pause(reason="why")
        run = app.enqueue(send(1))
        assert app.runs(queue=mail)[0].id == run.id
        info = queue.info()
        assert (info.paused, info.pause_reason, info.ready) == (True, "why", 1)
        assert (info.settings, [one.name for one in app.queues()]) == (mail, ["mail"])
        queue.configure(limit=None, rate=Rate(5))
        assert queue.info().settings == Queue("mail", rate=Rate(5))
        queue.drain(timeout=10)
        with pytest.raises(ValueError, match=r"give confirm=True"):
            queue.purge(reason="by hand")
        assert queue.info().ready == 1
        assert queue.purge(reason="by hand", confirm=True) == 1
        with pytest.raises(RunCancelled, match="by hand"):
            run.result()
        queue.resume()
        with app.worker(queues=[mail]):
            assert app.enqueue(send(2), queue="mail").result() == 2
        assert app.prune(keep=0, queue=mail) == 1  # the newest stays
        assert repr(queue) == "BlockingQueueHandle('mail')"

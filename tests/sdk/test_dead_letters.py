"""Dead letters, progress and logs from threads, and how the methods refuse what makes no sense."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stepwell import BlockingStepwell, GiveUp, Queue, RequestRefused, current_job, task

pytestmark = pytest.mark.blocking
FINE: set[str] = set()


@task
def talks(what: str) -> str:
    job = current_job()
    job.report(0.5, what)
    job.log("line", what=what)
    if what not in FINE:
        raise GiveUp(what)
    return what


@pytest.fixture
def app(address: str) -> Iterator[BlockingStepwell]:
    FINE.clear()
    durability: Any = None if address.startswith("tcp:") else "process"
    with BlockingStepwell(address, include=[__name__], durability=durability) as app:
        yield app


def test_all_of_it_works_from_threads(app: BlockingStepwell) -> None:
    with app.worker(queues=["default", "mail"]) as worker:
        runs = [app.enqueue(talks(what), id=what) for what in "ab"]
        app.enqueue(talks("c"), id="c", queue="mail")
        worker.drain()
        progress = runs[0].progress()
        assert progress is not None
        assert (progress.fraction, progress.note) == (0.5, "a")
        assert [(line.text, dict(line.fields)) for line in runs[0].logs()] == [
            ("line", {"what": "a"})
        ]
        assert sorted(one.id for one in app.dead_letters()) == ["a", "b", "c"]
        assert [one.id for one in app.dead_letters(queue=Queue("mail"))] == ["c"]
        FINE.update("abc")
        assert runs[0].requeue(reason="mended") in ("ready", "running")
        assert runs[0].result() == "a"
        assert app.requeue_dead_letters(error="GiveUp", dry_run=True) == 2
        assert app.requeue_dead_letters(name=talks.name, queue="default") == 1
        assert app.get("b").result() == "b"
        assert app.requeue("c") in ("ready", "running")
        assert app.get("c", talks).result() == "c"
    assert len(app.logs("a", after=0, limit=10)) == 2
    assert app.progress("a") is not None
    assert app.purge_dead_letters(confirm=True) == 0


def test_a_run_that_has_not_failed_is_not_requeued(app: BlockingStepwell) -> None:
    run = app.enqueue(talks("a"))
    with pytest.raises(RequestRefused, match="is ready: requeue was refused"):
        run.requeue()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"limit": 0}, "limit= must be from 1"),
        ({"limit": 10_001}, "limit= must be from 1"),
        ({"queue": ""}, "queue= takes 1 to 255"),
        ({"name": "a\nb"}, "name= takes 1 to 255"),
        ({"error": 3}, "error= takes a string"),
        ({"after": 3}, "after= takes a string"),
    ],
)
def test_a_list_of_dead_letters_refuses_what_makes_no_sense(
    app: BlockingStepwell, arguments: dict[str, Any], error: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        app.dead_letters(**arguments)


@pytest.mark.parametrize("arguments", [{}, {"confirm": False}, {"confirm": "yes"}, {"limit": 1}])
def test_nothing_is_deleted_that_is_not_confirmed(
    app: BlockingStepwell, arguments: dict[str, Any]
) -> None:
    with app.worker() as worker:
        app.enqueue(talks("a"))
        app.enqueue(talks("b"))
        worker.drain()
    with pytest.raises(ValueError, match="confirm=True"):
        app.purge_dead_letters(**arguments)
    assert len(app.dead_letters()) == 2

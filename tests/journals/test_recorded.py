"""Journals that earlier releases wrote are replayed by this one, and their runs go on, for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepwell import Run, RunHeld, Stepwell
from stepwell_queue.contract import Phase, RecordKind, Rollback, RunCopy, Status
from stepwell_runtime.activation._work import ROW_KIND
from stepwell_runtime.codec import Codec
from stepwell_runtime.journals.files import copies, lines_of
from tests.behaviour import recorded as first_release
from tests.journals import workflows
from tests.journals.record import FOLDER
from tests.journals.workflows import LIVE, PARCEL, Lost, Parcel, approve, found, mended

pytestmark = pytest.mark.anyio
LONG = 20.0
FILES = sorted(FOLDER.glob("*.jsonl"))
MODULES = [first_release, workflows]
BY_NAME = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def runs_in(file: Path) -> list[RunCopy]:
    return list(copies(lines_of(file), file.name, Codec()))


@BY_NAME
def test_a_journal_of_an_earlier_release_leads_where_it_led(file: Path, tmp_path: Path) -> None:
    app = Stepwell(tmp_path / "none.db", include=MODULES)
    found = list(app.replay_file(file))
    assert len(found) >= 2
    assert [(one.id, one.message) for one in found if not one.ok] == []


def test_the_newest_journals_have_records_operations_and_statuses_of_every_kind() -> None:
    """Whatever is new gets a workflow in `workflows.py`; then the file of the release is made."""
    runs = runs_in(FILES[-1])
    records = {RecordKind(record.kind) for run in runs for record in run.journal}
    assert records == set(RecordKind)
    assert {op.kind for run in runs for op in run.open_ops} == set(ROW_KIND.values())
    assert {Status(run.status) for run in runs} == set(Status)
    assert {Phase(run.phase) for run in runs} == set(Phase)
    assert {Rollback(run.rollback) for run in runs} == set(Rollback)
    assert max(run.generation for run in runs) > 0


def live_files() -> list[Path]:
    return [file for file in FILES if any(not Status(run.status).terminal for run in runs_in(file))]


@pytest.mark.parametrize("file", live_files(), ids=lambda file: file.stem)
async def test_runs_of_an_earlier_release_go_on_to_their_ends(file: Path, address: str) -> None:
    mended.clear()
    async with (
        Stepwell(address, include=MODULES) as app,
        app.worker(queues=["default", "depot", "attic", "counter"]),
    ):
        await app.import_runs(file)
        paused = [run.id for run in await app.runs(status="paused")]
        assert set(paused) > set(LIVE)
        for id in paused:
            await app.resume(id)
        for id in ("asks", "others/1.0.0", "others other", "paused", "ready", "scheduled"):
            await app.signal(id, found, PARCEL)
        with pytest.raises(RunHeld, match="p-2 is broken"):
            await app.get("held").result(timeout=LONG)
        mended.add("p-2")
        await app.retry("held")
        assert await result(app, "held") == "p-2"
        asked = await result(app, "asks")
        assert [parcel.weight for parcel in asked[:2]] == [PARCEL.weight] * 2
        assert await result(app, "sleeps") == "p-2"
        assert await result(app, "retries") == [2, 3]
        assert (await result(app, "others"))[:2] == ["p-1", "p-1"]
        with pytest.raises(Lost):
            await result(app, "rolls back")
        assert (await app.info("rolls back")).rollback == "complete"
        await talk(app)
        for id in ("paused", "ready", "scheduled"):
            assert (await result(app, id))[:2] == [Parcel("p-2", PARCEL.weight), PARCEL]
        assert await result(app, "stuck") == PARCEL
        assert await result(app, "running") == "p-2"
        assert (await result(app, "forked"))[:2] == [PARCEL, 3]
        assert await app.doctor() == []
        # And what has ended replays here, too.
        tried = [one async for one in app.replay(status=["completed", "failed", "cancelled"])]
        assert [(one.id, one.message) for one in tried if not one.ok] == []


async def talk(app: Stepwell) -> None:
    """Have runs go on whose code says something, and is asked."""
    run = app.get("talks")
    assert await run.ask(approve, PARCEL, timeout=LONG)
    for id in ("talks", "talks/4.2.0", "anew too", "anew too"):
        await app.signal(id, found, PARCEL)
    assert await result(app, "talks") == [True, PARCEL, PARCEL, PARCEL.id]
    assert (await result(app, "anew too"))[:2] == [PARCEL, 5]
    assert await run.value("where", str) == "in talks"
    assert await items(app, "talks", "scales") == [1, PARCEL]
    assert await items(app, "talks", "parcels") == [PARCEL, "that was all"]
    assert await items(app, "anew too", "goes") == [2, 1, 0]
    assert await items(app, "says", "parcels") == [PARCEL, "that was all"]
    assert await app.get("says").value("where", str) == "at home"


async def items(app: Stepwell, id: str, stream: str) -> list[Any]:
    return [item.value async for item in app.get(id).stream(stream)]


async def result(app: Stepwell, id: str) -> Any:
    run: Run[Any] = app.get(id)
    return await run.result(timeout=LONG)

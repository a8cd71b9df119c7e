"""Runs of another store are stored as they stood there, and nobody executes them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stepwell_queue import IdConflict, OpenOp, RecordKind, Status
from stepwell_queue.contract import AuditRow, ImportRuns, InboxKind, InboxRow, RunCopy
from tests.store.kit import Bench

pytestmark = pytest.mark.anyio
LARGE = bytes(5000)


def copy_of(bench: Bench, id: str, status: Status = Status.PARKED) -> RunCopy:
    journal = [bench.record(0), bench.record(1, value=LARGE)]
    due = bench.clock.now() + 1000
    ops = [OpenOp("2", "wait", "go", due)] if not status.terminal else []
    told = InboxRow(7, 9, int(InboxKind.SIGNAL), "u7", "go", "", 0, b"value", 5.0)
    ended = 9.0 if status.terminal else None
    return RunCopy(
        bench.new(id, args=LARGE), int(status), 0, 0, 2, 1, 3, 1, 4.0, ended, "signal go",
        None, None, LARGE, journal, ops, [told], [AuditRow(6.0, "retry", "ann", "why")],
    )  # fmt: skip


def importing(bench: Bench, *copies: RunCopy, uid: str = "i1") -> ImportRuns:
    return ImportRuns(copies, uid, "bob", "from a file", bench.clock.now())


async def test_a_copy_of_a_run_has_all_that_was_recorded_of_it(bench: Bench) -> None:
    copy = copy_of(bench, "a")
    assert await bench.store.do(importing(bench, copy)) == 1
    found = await bench.store.history("a")
    assert found is not None
    assert found.journal == copy.journal
    assert found.open_ops == copy.open_ops
    assert [(one.uid, one.value) for one in found.inbox] == [("u7", b"value")]
    assert [(one.action, one.actor, one.reason) for one in found.audit] == [
        ("retry", "ann", "why"),
        ("import", "bob", "from a file"),
    ]
    run = found.run
    assert (run.status_name, run.fence, run.generation, run.args, run.value) == (
        "paused", 3, 1, LARGE, LARGE,
    )  # fmt: skip


@pytest.mark.parametrize("status", list(Status))
async def test_no_copy_is_ever_claimed_whatever_its_run_did(bench: Bench, status: Status) -> None:
    session = await bench.session()
    await bench.store.do(importing(bench, copy_of(bench, "a", status)))
    assert (await bench.claim(session)).runs == []
    shown = status if status.terminal else Status.PAUSED
    assert await bench.status("a") == shown.name.lower()


async def test_children_are_children_of_the_copy_and_all_or_none_are_stored(bench: Bench) -> None:
    await bench.start("taken")
    child = replace(copy_of(bench, "a/0"), parent_id="a", parent_path="0")
    with pytest.raises(IdConflict, match="taken"):
        await bench.store.do(importing(bench, copy_of(bench, "a"), copy_of(bench, "taken")))
    assert await bench.store.history("a") is None
    await bench.store.do(importing(bench, copy_of(bench, "a"), child))
    found = await bench.store.history("a")
    assert found is not None
    assert [one.id for one in found.children] == ["a/0"]


async def test_a_copy_that_was_never_claimed_is_no_replay(bench: Bench) -> None:
    new = replace(copy_of(bench, "a", Status.READY), fence=0, journal=[], open_ops=[])
    old = replace(copy_of(bench, "b"), fence=0)
    await bench.store.do(importing(bench, new, old))
    infos = [await bench.store.info(id) for id in ("a", "b")]
    assert [one.fence for one in infos if one is not None] == [0, 1]
    assert bench.record(0).kind == RecordKind.STEP_OK

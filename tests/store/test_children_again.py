"""A parent that asks for a child again, as it does once a retry has voided the child's outcome."""

from __future__ import annotations

import pytest

from stepwell_queue import (
    Append,
    Claimed,
    Finish,
    IdConflict,
    InboxKind,
    InboxRow,
    Reschedule,
    Status,
)
from tests.store.kit import TASK, Bench

pytestmark = pytest.mark.anyio


async def ask(bench: Bench, parent: Claimed, path: str = "2") -> None:
    children = [(path, bench.new("child", identity=TASK))]
    await bench.store.do(Append(parent.run, parent.fence, children=children))


async def inbox(bench: Bench) -> list[InboxRow]:
    history = await bench.store.history("parent")
    assert history is not None
    return list(history.inbox)


async def end_child(bench: Bench, child: Claimed, parent: Claimed, value: bytes) -> None:
    now = bench.clock.now()
    await bench.store.do(Finish(child.run, 1, Status.FAILED, value, now, parent=parent.run))


@pytest.mark.parametrize("size", [3, 5000])
async def test_the_end_of_a_child_is_told_again_to_a_later_claim(bench: Bench, size: int) -> None:
    session = await bench.session()
    first = await bench.claimed(session, "parent")
    await ask(bench, first)
    await end_child(bench, await bench.claim_one(session), first, b"e" * size)
    (row,) = await inbox(bench)
    await bench.store.do(Append(first.run, first.fence, [bench.record(0)], absorbed=[row.id]))
    await bench.store.do(Reschedule(first.run, first.fence, None))

    again = await bench.claim_one(session)
    await ask(bench, again)
    await ask(bench, again)
    (told,) = await inbox(bench)
    assert (told.kind, told.name, told.path) == (InboxKind.CHILD_ENDED, "child", "2")
    assert (told.status, told.value) == (Status.FAILED, b"e" * size)


async def test_a_child_that_has_not_ended_is_told_of_once(bench: Bench) -> None:
    session = await bench.session()
    parent = await bench.claimed(session, "parent")
    await ask(bench, parent)
    await ask(bench, parent)
    assert await inbox(bench) == []
    await end_child(bench, await bench.claim_one(session), parent, b"e")
    assert [row.name for row in await inbox(bench)] == ["child"]


async def test_one_id_at_two_places_of_a_run_is_a_conflict(bench: Bench) -> None:
    session = await bench.session()
    parent = await bench.claimed(session, "parent")
    await ask(bench, parent, "2")
    with pytest.raises(IdConflict, match="started at 2"):
        await ask(bench, parent, "3")

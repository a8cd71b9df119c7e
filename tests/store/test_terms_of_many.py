"""Many runs on terms are inserted with few statements, and stand as if each had come by itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from stepwell_queue import (
    CancelRun,
    NewRun,
    QueueFull,
    RandomIds,
    Start,
    StartMany,
    SystemClock,
    Terms,
)
from stepwell_queue.contract import Hold, QueueSettings, RunFilter, SetQueue
from stepwell_queue.sqlite.store import open_sqlite
from tests.store.kit import TASK, Bench
from tests.store.test_plain_path import Statements

pytestmark = pytest.mark.anyio

MANY = 220
LARGE = b"x" * 2000


def terms_of(number: int) -> Terms | None:
    """All kinds in turn; from 100 on, some that are there, are unique already, or wait."""
    kinds = (
        Terms(key=f"k{number % 3}"),
        None,
        Terms(unique=f"u{number}", hold=Hold.PENDING, key="k"),
        Terms(after=["first"], anyhow=number % 2 == 0),
        Terms(expires=2_000_000.0),
    )
    late = {
        110: Terms(unique="u2"),
        111: Terms(unique="u7", replace=True),
        160: Terms(after=["run-159"]),
        161: Terms(after=["ended"]),
    }
    return late.get(number, kinds[number % 5])


def rows(bench: Bench) -> list[NewRun]:
    made = [
        bench.new(
            f"run-{number}",
            identity=TASK,
            args=LARGE if number % 7 == 0 else b"small",
            terms=terms_of(number),
            due=1_500_000.0 if number % 11 == 0 else None,
            priority=number % 4,
        )
        for number in range(MANY)
    ]
    return [*made[:170], made[3], *made[170:]]  # one of them is said twice


async def seen(bench: Bench) -> list[object]:
    infos = await bench.store.list_runs(RunFilter(limit=1000))
    shown = [
        (one.id, one.status, one.priority, one.due, one.waiting, one.key)
        for one in sorted(infos, key=lambda one: one.run)
    ]
    taken = await bench.claim(await bench.session(), 1000)
    return [*shown, *((one.id, one.args) for one in taken.runs)]


async def prepared(bench: Bench) -> None:
    await bench.start("first", identity=TASK)
    await bench.start("ended", identity=TASK)
    await bench.store.do(CancelRun("ended", "u", b"", bench.clock.now()))


async def test_many_at_once_stand_as_one_by_one(timed: Bench, tmp_path: Path) -> None:
    await prepared(timed)
    at_once = await timed.store.do(StartMany(rows(timed)))
    store = await open_sqlite(
        tmp_path / "other.db", durability="process", clock=timed.clock,
        ids=RandomIds(timed.clock), lease=15.0,
    )  # fmt: skip
    other = Bench(store, timed.clock, tmp_path / "other.db")
    await prepared(other)
    singly = [await store.do(Start(new)) for new in rows(other)]
    assert at_once == singly
    assert await seen(timed) == await seen(other)
    await store.close()


@pytest.mark.parametrize("room", [MANY - 1, MANY])
async def test_all_that_fit_are_taken_and_else_none_is(bench: Bench, room: int) -> None:
    await bench.store.do(SetQueue("default", QueueSettings(max_length=room)))
    many = StartMany([bench.new(f"r{number}", identity=TASK) for number in range(MANY)])
    if room < MANY:
        with pytest.raises(QueueFull):
            await bench.store.do(many)
        assert await bench.store.info("r0") is None
    else:
        assert all(one.created for one in await bench.store.do(many))
        with pytest.raises(QueueFull):
            await bench.start("over")
        # what is said again is there, however full the queue
        assert [one.run for one in await bench.store.do(many)] == list(range(1, MANY + 1))


@pytest.mark.parametrize(
    ("some", "most"),
    [
        ([Terms(key=f"k{number % 9}") for number in range(500)], 2),
        ([Terms(unique=f"u{number}") for number in range(500)], 3),
        ([Terms(after=["first"])] * 500, 3 + 50),  # a row for each dependency
    ],
    ids=["key", "unique", "after"],
)
async def test_many_take_few_statements(path: Path, some: list[Terms], most: int) -> None:
    statements = Statements()
    clock = SystemClock()
    store = await open_sqlite(
        path, durability="process", clock=clock, ids=RandomIds(clock), lease=15.0,
        factory=statements.connect,
    )  # fmt: skip
    bench = Bench(store, clock, path)
    await bench.start("first", identity=TASK)
    await store.do(StartMany([bench.new(identity=TASK, terms=Terms(key="k"))]))
    many = [bench.new(identity=TASK, terms=terms) for terms in some]
    statements.heard.clear()
    await store.do(StartMany(many))
    heard = sum(statements.heard.values())
    assert heard <= 10 * (most + 2) + 8, _short(list(statements.heard.items()))
    await store.close()


def _short(heard: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    return [(re.sub(r"\s+", " ", sql)[:60], count) for sql, count in heard]

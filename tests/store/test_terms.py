"""Keys, ageing and longest lengths, as they bear on the inserting of runs."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import pytest

from stepwell_queue import (
    Append,
    Claim,
    Finish,
    OpenOp,
    QueueFull,
    RequestRefused,
    Start,
    StartMany,
    Status,
    Terms,
)
from stepwell_queue.contract import QueueSettings, SetQueue
from stepwell_queue.sqlite.schema import migrations, statements_of
from stepwell_queue.sqlite.statements import SQL
from tests.store.kit import TASK, Bench

pytestmark = pytest.mark.anyio


async def set_queue(bench: Bench, **settings: Any) -> None:
    await bench.store.do(SetQueue("default", QueueSettings(**settings)))


async def claimed_ids(bench: Bench, limit: int = 100) -> list[str]:
    return [run.id for run in (await bench.claim(await bench.session(), limit)).runs]


def move(bench: Bench, seconds: float) -> None:
    clock: Any = bench.clock
    clock.move(seconds)


# --- keys ---


async def test_keys_take_turns_from_the_first_run_that_has_one(bench: Bench) -> None:
    await bench.start("plain")
    for key in ("a", "b"):
        for number in range(3):
            await bench.start(f"{key}{number}", terms=Terms(key=key))
    assert sorted(await claimed_ids(bench, 3)) == ["a0", "b0", "plain"]
    assert sorted(await claimed_ids(bench, 2)) == ["a1", "b1"]


async def test_a_run_with_a_key_shows_it(bench: Bench) -> None:
    await bench.start("run", terms=Terms(key="tenant-1"))
    info = await bench.store.info("run")
    assert info is not None
    assert info.key == "tenant-1"


async def test_a_key_limits_children_too(bench: Bench) -> None:
    await set_queue(bench, key_limit=1)
    session = await bench.session()
    parent = (await bench.claimed(session, "parent")).run
    children = [
        (str(n), bench.new(f"child-{n}", identity=TASK, terms=Terms(key="k"))) for n in range(2)
    ]
    opened = [OpenOp(path, "child", "mail", None) for path, _ in children]
    verb = Append(parent, 1, children=children, opened=opened)
    await bench.store.do(verb)
    await bench.store.do(verb)
    assert [run.id for run in (await bench.claim(session)).runs] == ["child-0"]


@pytest.mark.parametrize("terms", [Terms(unique="k"), Terms(after=["parent"])])
async def test_what_a_child_cannot_ask_for_is_refused(bench: Bench, terms: Terms) -> None:
    session = await bench.session()
    parent = (await bench.claimed(session, "parent")).run
    children = [("0", bench.new("child", terms=terms))]
    with pytest.raises(RequestRefused, match="child"):
        await bench.store.do(Append(parent, 1, children=children))
    assert await bench.store.info("child") is None


# --- ageing ---


async def test_waiting_counts_as_priority(timed: Bench) -> None:
    await set_queue(timed, ageing=60.0)
    await timed.start("old")
    move(timed, 119)
    await timed.start("one", priority=1)
    await timed.start("two", priority=2)
    await timed.start("none")
    assert await claimed_ids(timed) == ["two", "old", "one", "none"]


async def test_without_ageing_a_higher_priority_always_goes_first(timed: Bench) -> None:
    await timed.start("old")
    move(timed, 1000)
    await timed.start("one", priority=1)
    assert await claimed_ids(timed) == ["one", "old"]


async def test_people_see_the_priority_that_was_asked_for(timed: Bench) -> None:
    await set_queue(timed, ageing=1.0)
    move(timed, 100)
    await timed.start("run", priority=7, terms=Terms(key="k"))
    info = await timed.store.info("run")
    assert info is not None
    assert (info.priority, info.key) == (7, "k")


async def test_a_run_does_not_age_before_it_may_start(timed: Bench) -> None:
    await set_queue(timed, ageing=60.0)
    now = timed.clock.now()
    await timed.start("later", due=now + 600)
    move(timed, 590)
    await timed.start("waits")
    move(timed, 20)
    assert await claimed_ids(timed) == ["waits", "later"]


async def test_many_and_children_age_alike(timed: Bench) -> None:
    await set_queue(timed, ageing=60.0)
    session = await timed.session()
    parent = (await timed.claimed(session, "parent")).run
    await timed.store.do(StartMany([timed.new("a"), timed.new("b")]))
    child = timed.new("child", identity=TASK)
    opened = [OpenOp("0", "child", "mail", None)]
    await timed.store.do(Append(parent, 1, children=[("0", child)], opened=opened))
    move(timed, 70)
    await timed.start("new", priority=1)
    assert await claimed_ids(timed) == ["a", "b", "child", "new"]


async def test_when_ageing_is_taken_away_the_priorities_are_as_asked_for(timed: Bench) -> None:
    await set_queue(timed, ageing=1.0)
    await timed.start("old", priority=1)
    move(timed, 10)
    await timed.start("new", priority=2)
    await set_queue(timed)
    assert await claimed_ids(timed) == ["new", "old"]


async def test_what_has_ended_shows_the_priority_that_was_asked_for_whatever_is_set(
    timed: Bench,
) -> None:
    await set_queue(timed, ageing=1.0)
    move(timed, 10)
    run = await timed.claimed(await timed.session(), "run", priority=7)
    await timed.store.do(Finish(run.run, run.fence, Status.COMPLETED, b"", timed.clock.now()))
    await set_queue(timed)
    info = await timed.store.info("run")
    assert info is not None
    assert info.priority == 7


# --- longest lengths ---


async def test_a_full_queue_refuses_and_says_so(bench: Bench) -> None:
    await set_queue(bench, max_length=2)
    await bench.start("a")
    await bench.start("b", terms=Terms(key="k"))
    with pytest.raises(QueueFull, match="'default' is full: 2 runs") as refused:
        await bench.start("c")
    assert (refused.value.queue, refused.value.limit) == ("default", 2)
    assert await bench.store.info("c") is None
    assert not (await bench.start("a")).created
    assert (await bench.start("elsewhere", queue="other")).created
    session = await bench.session()
    await bench.claim(session, 1)
    assert (await bench.start("c")).created


async def test_a_length_that_was_changed_holds_at_once_for_runs_on_terms(bench: Bench) -> None:
    for number, terms in enumerate((Terms(key="k"), Terms(unique="u"), Terms(expires=2e9))):
        await set_queue(bench, max_length=1 + number)
        assert (await bench.start(f"first-{number}", terms=terms)).created
        await set_queue(bench, max_length=2 + number)
        await set_queue(bench, max_length=1 + number)
        with pytest.raises(QueueFull):
            await bench.start(f"second-{number}", terms=Terms(key="k"))
    await set_queue(bench)
    assert (await bench.start("last", terms=Terms(key="k"))).created


async def test_many_are_all_refused_if_one_is_too_many(bench: Bench) -> None:
    await set_queue(bench, max_length=10)
    await bench.start("first")
    with pytest.raises(QueueFull):
        await bench.store.do(StartMany([bench.new(f"a{n}") for n in range(10)]))
    answers = await bench.store.do(StartMany([bench.new(f"b{n}") for n in range(9)]))
    assert [one.status for one in answers] == [Status.READY] * 9
    assert await bench.store.info("a0") is None


async def test_what_is_claimed_makes_room_in_the_same_batch(bench: Bench) -> None:
    await set_queue(bench, max_length=1)
    session = await bench.session()
    verbs: list[Any] = [
        Start(bench.new("a")),
        Claim(session.worker, 1, {}),
        Start(bench.new("b")),
        Claim(session.worker, 1, {}),
        Start(bench.new("c")),
    ]
    answers = await asyncio.gather(*map(bench.store.do, verbs))
    assert [answers[place].created for place in (0, 2, 4)] == [True] * 3


async def test_what_is_unique_is_found_though_the_queue_is_full(bench: Bench) -> None:
    await set_queue(bench, max_length=1)
    await bench.start("a", terms=Terms(unique="k"))
    again = await bench.start("b", terms=Terms(unique="k"))
    assert (again.id, again.created) == ("a", False)
    with pytest.raises(QueueFull):
        await bench.start("c", terms=Terms(unique="other"))


async def test_children_are_not_refused(bench: Bench) -> None:
    await set_queue(bench, max_length=1)
    session = await bench.session()
    parent = (await bench.claimed(session, "parent")).run
    await bench.start("fills")
    children = [(str(n), bench.new(f"child-{n}", identity=TASK)) for n in range(3)]
    opened = [OpenOp(path, "child", "mail", None) for path, _ in children]
    await bench.store.do(Append(parent, 1, children=children, opened=opened))
    assert len((await bench.claim(session)).runs) == 4


# --- what it costs ---


@pytest.mark.parametrize(
    "name",
    [
        "unique_holder", "leave_unique", "replaced_by", "count_ready", "dependents",
        "any_dependency", "waits_for", "drop_dependencies", "expired", "any_expired", "next_expiry",
        "expires_no_more", "have_awaited", "finish_awaited", "drop_some_dependencies",
        "drop_dependencies_of", "which_are_awaited", "let_some_start", "fail_some_waiting",
        "untold_ends", "end_is_untold", "hold_of_keys", "leave_keys", "any_replaced", "next_terms",
        "last_terms",
    ],
)  # fmt: skip
def test_no_statement_goes_through_a_whole_table(name: str) -> None:
    db = sqlite3.connect(":memory:")
    for script in migrations():
        for statement in statements_of(script):
            db.execute(statement)
    sql = SQL[name]
    values = (None,) * sql.count("?")
    steps = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
    db.close()
    tables = ("runs", "terms", "dependencies", "audit", "targets", "r", "m", "a", "t")
    scanned = [step.split()[1] for step in steps if step.startswith("SCAN")]
    assert not set(scanned) & set(tables), steps
    assert any("SEARCH" in step for step in steps)

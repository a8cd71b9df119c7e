"""Verbs that are said again, since their answers, and those of what followed, have been lost."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stepwell_queue import (
    Append,
    Ask,
    CancelRun,
    Finish,
    InboxKind,
    OpenOp,
    Park,
    Reschedule,
    SendSignal,
    Settle,
    StaleFence,
    Start,
    StartMany,
    Status,
    Terms,
    Verb,
)
from stepwell_queue.contract import (
    Continue,
    Emit,
    EndedTree,
    ImportRuns,
    Item,
    Keep,
    KeepNames,
    LeaseUpkeep,
    LogLine,
    NamedKeep,
    Note,
    Prune,
    PurgeDeadLetters,
    PutQuestion,
    Report,
    Requeue,
)
from tests.store.kit import TASK, Bench
from tests.store.test_copies import copy_of

pytestmark = pytest.mark.anyio

AnyVerb = Verb[Any]
TABLES = (
    "runs", "journal", "open_ops", "inbox", "blobs", "audit", "targets", "failures", "reports",
    "log_lines", "terms", "dependencies", "said", "run_values", "stream_items", "answers",
    "kept_names", "upkeep",
    "kept_names", "upkeep",
)  # fmt: skip
Scene = Callable[[Bench], Awaitable[Sequence[AnyVerb]]]
LARGE = bytes(5000)


async def journal_and_park(bench: Bench) -> Sequence[AnyVerb]:
    run = (await bench.claimed(await bench.session(), "run")).run
    return [
        Append(run, 1, [bench.record(0)], opened=[OpenOp("5", "wait", "go", None)]),
        Append(run, 1, [bench.record(1), bench.record(2, value=LARGE)]),
        Append(run, 1, [bench.record(3)], closed=["5"], opened=[OpenOp("6", "wait", "go", None)]),
        Park(run, 1, None, "go", [OpenOp("7", "wait", "go", None)], ["6"]),
    ]


async def begin_anew(bench: Bench) -> Sequence[AnyVerb]:
    run = (await bench.claimed(await bench.session(), "run")).run
    now = bench.clock.now()
    for uid in ("1", "2", "3"):
        await bench.signal("run", uid)
    history = await bench.store.history("run")
    assert history is not None
    inbox = history.inbox
    waits, absorbed = [OpenOp("5", "wait", "go", None)], [row.id for row in inbox[:2]]
    records = [bench.record(0), bench.record(1)]
    await bench.store.do(Append(run, 1, records, opened=waits, absorbed=absorbed))
    return [
        Continue(run, 1, LARGE, [(InboxKind.SIGNAL, "go", 1)], now),
    ]


async def park_until(bench: Bench) -> Sequence[AnyVerb]:
    run = (await bench.claimed(await bench.session(), "run")).run
    due = bench.clock.now() + 1000
    return [Park(run, 1, due, "time", [OpenOp("0", "sleep", "", due)])]


async def journal_and_end(bench: Bench) -> Sequence[AnyVerb]:
    run = (await bench.claimed(await bench.session(), "run")).run
    now = bench.clock.now()
    return [
        Append(run, 1, [bench.record(0)]),
        Append(run, 1, [bench.record(1)]),
        Finish(run, 1, Status.COMPLETED, b"value", now, clean=True),
    ]


async def children_and_end(bench: Bench) -> Sequence[AnyVerb]:
    run = (await bench.claimed(await bench.session(), "run")).run
    children = [("0", bench.new("child", identity=TASK)), ("", bench.new("detached"))]
    return [
        Append(run, 1, children=children, opened=[OpenOp("0", "child", "mail", None)]),
        Append(run, 1, [bench.record(0)], phase=1, cancels=["child"]),
        Finish(run, 1, Status.FAILED, LARGE, bench.clock.now(), rollback=2, attempts=3),
    ]


async def end_of_a_child(bench: Bench) -> Sequence[AnyVerb]:
    session = await bench.session()
    parent = (await bench.claimed(session, "parent")).run
    await bench.store.do(Append(parent, 1, children=[("0", bench.new("child"))]))
    child = (await bench.claim_one(session)).run
    now = bench.clock.now()
    return [Finish(child, 1, Status.COMPLETED, b"value", now, parent=parent, clean=True)]


async def absorb_and_reschedule(bench: Bench) -> Sequence[AnyVerb]:
    run = (await bench.claimed(await bench.session(), "run")).run
    await bench.signal("run", "u1")
    history = await bench.store.history("run")
    assert history is not None
    return [
        Append(run, 1, [bench.record(0, "", kind=3)], absorbed=[history.inbox[0].id]),
        Reschedule(run, 1, bench.clock.now() + 1000, attempts=1, error=LARGE),
    ]


async def hand_back(bench: Bench) -> Sequence[AnyVerb]:
    run = (await bench.claimed(await bench.session(), "run")).run
    return [Append(run, 1, cancels=["x"], phase=0), Reschedule(run, 1, None)]


async def hold(bench: Bench) -> Sequence[AnyVerb]:
    run = (await bench.claimed(await bench.session(), "run")).run
    return [Append(run, 1, [bench.record(0)]), Settle(run, 1, Status.HELD, LARGE)]


async def get_stuck(bench: Bench) -> Sequence[AnyVerb]:
    run = (await bench.claimed(await bench.session(), "run")).run
    return [Settle(run, 1, Status.STUCK, b"why")]


async def starts(bench: Bench) -> Sequence[AnyVerb]:
    later = bench.clock.now() + 1000
    return [
        Start(bench.new("a", args=LARGE)),
        Start(bench.new("b", due=later)),
        StartMany([bench.new("c"), bench.new("d", deadline=later), bench.new("e", args=LARGE)]),
    ]


async def starts_on_terms(bench: Bench) -> Sequence[AnyVerb]:
    later = bench.clock.now() + 1000
    unique = Terms(unique="k")
    return [
        Start(bench.new("a", terms=Terms(unique="k", key="t", expires=later))),
        Start(bench.new("b", terms=unique)),
        Start(bench.new("c", terms=Terms(unique="k", replace=True), args=LARGE)),
        Start(bench.new("d", terms=Terms(after=["a"], failures=[b"failure"]))),
        StartMany([bench.new("e", terms=unique), bench.new("f"), bench.new("g", terms=unique)]),
        Start(bench.new("h", terms=Terms(unique="k", replace=True))),
    ]


async def an_end_that_is_awaited(bench: Bench) -> Sequence[AnyVerb]:
    session = await bench.session()
    ran = await bench.claimed(session, "ran")
    await bench.start("unclaimed", queue="other")
    for id in ("ran", "unclaimed"):
        terms = Terms(after=[id], failures=[b"failure"])
        await bench.start(f"after-{id}", terms=terms, queue="other")
    await bench.start("late", terms=Terms(after=["ran", "unclaimed"], anyhow=True))
    now = bench.clock.now()
    return [
        Finish(ran.run, 1, Status.COMPLETED, b"value", now, clean=True),
        CancelRun("unclaimed", "c1", b"", now),
    ]


async def messages(bench: Bench) -> Sequence[AnyVerb]:
    now = bench.clock.now()
    session = await bench.session()
    for id in ("parked", "held", "running"):
        run = (await bench.claimed(session, id)).run
        if id == "parked":
            await bench.park(run, 1)
        elif id == "held":
            await bench.store.do(Settle(run, 1, Status.HELD, b""))
    await bench.start("new")
    return [
        SendSignal("parked", "u1", "go", LARGE, now),
        SendSignal("running", "u1", "go", b"", now),
        CancelRun("parked", "c1", b"", now),
        CancelRun("held", "c1", b"", now),
        CancelRun("new", "c1", b"", now),
    ]


async def requests(bench: Bench) -> Sequence[AnyVerb]:
    session = await bench.session()
    now = bench.clock.now()
    for id, status in (("held", Status.HELD), ("failed", Status.FAILED), ("stuck", Status.STUCK)):
        run = (await bench.claimed(session, id)).run
        if status == Status.FAILED:
            await bench.store.do(Finish(run, 1, status, b"", now))
        else:
            await bench.store.do(Settle(run, 1, status, b""))
    return [
        Ask("held", "u1", "roll_back", "me", "", now),
        Ask("failed", "u1", "retry", "me", "", now),
        Ask("stuck", "u1", "resume", "me", "", now),
    ]


async def fail_and_requeue(bench: Bench) -> Sequence[AnyVerb]:
    session = await bench.session()
    run = (await bench.claimed(session, "failing", identity=TASK)).run
    dead = (await bench.claimed(session, "dead", identity=TASK)).run
    now = bench.clock.now()
    await bench.store.do(Finish(dead, 1, Status.FAILED, b"boom", now, attempts=1))
    return [
        Reschedule(run, 1, now + 1000, attempts=1, error=LARGE),
        Ask("dead", "u1", "requeue", "me", "", now),
        Requeue(["dead", "failing", "nobody"], "u1", "me", "", now),
    ]


async def fail_for_good(bench: Bench) -> Sequence[AnyVerb]:
    run = (await bench.claimed(await bench.session(), "run", identity=TASK)).run
    now = bench.clock.now()
    return [Finish(run, 1, Status.FAILED, LARGE, now, clean=True, attempts=1)]


async def purge_dead_letters(bench: Bench) -> Sequence[AnyVerb]:
    dead = (await bench.claimed(await bench.session(), "dead", identity=TASK)).run
    await bench.start("last")  # it stays, so that its number is not given out again
    await bench.store.do(Finish(dead, 1, Status.FAILED, LARGE, bench.clock.now(), attempts=1))
    return [PurgeDeadLetters(["dead", "last", "nobody"])]


async def report_and_end(bench: Bench) -> Sequence[AnyVerb]:
    run = (await bench.claimed(await bench.session(), "run", identity=TASK)).run
    now = bench.clock.now()
    line = LogLine(now, "line", '{"a":1}')
    return [
        Report(run, 1, 1, 0.25, "begun", now, [line, line]),
        Report(run, 1, 2, None, "", 0.0, [line]),
        Report(run, 1, 3, 1.0, "over", now),
        Finish(run, 1, Status.COMPLETED, b"value", now, clean=True),
    ]


async def begin_and_end_an_operation(bench: Bench) -> Sequence[AnyVerb]:
    run = (await bench.claimed(await bench.session(), "run")).run
    begun = OpenOp("0", "child", "mail", None)
    child = ("0", bench.new("child", identity=TASK))
    return [
        Append(run, 1, opened=[begun], children=[child], length=0),
        Append(run, 1, [bench.record(0)], closed=["0"]),
        Append(run, 1, opened=[OpenOp("1", "retry", "", None)], length=1),
        Append(run, 1, opened=[OpenOp("1", "retry", "", None, 2)], length=1),
        Append(run, 1, [bench.record(1)], closed=["1"], opened=[OpenOp("2", "wait", "", None)]),
        Park(run, 1, None, "go", length=2),
    ]


async def copies(bench: Bench) -> Sequence[AnyVerb]:
    pair = [copy_of(bench, "a"), copy_of(bench, "b", Status.FAILED)]
    return [ImportRuns(pair, "i1", "me", "why", bench.clock.now())]


async def say_and_answer(bench: Bench) -> Sequence[AnyVerb]:
    run = (await bench.claimed(await bench.session(), "run")).run
    now = bench.clock.now()
    await bench.store.do(PutQuestion("run", "q1", "approve", LARGE, now))
    notes = [Note(kind, "q1", number, b"x", now) for number, kind in enumerate((0, 1, 2), 1)]
    return [
        PutQuestion("run", "q2", "approve", LARGE, now),
        Emit(run, 1, 1, [Item("tokens", b"a", now), Item("tokens", b"b", now)]),
        Append(run, 1, length=0, notes=notes[:1]),
        Append(run, 1, [bench.record(0)], notes=notes),
        Emit(run, 1, 2, [Item("tokens", b"c", now), Item("other", b"d", now)]),
        Finish(run, 1, Status.COMPLETED, b"value", now),
        PutQuestion("run", "q2", "approve", LARGE, now),
    ]


async def keep_and_prune(bench: Bench) -> Sequence[AnyVerb]:
    run = (await bench.claimed(await bench.session(), "run", identity=TASK)).run
    await bench.start("last")  # it stays, so that its number is not given out again
    now = bench.clock.now()
    await bench.store.do(Finish(run, 1, Status.COMPLETED, LARGE, now))
    return [
        KeepNames([NamedKeep("mail", Keep(1.0)), NamedKeep("other", None)]),
        LeaseUpkeep("me", now + 60),
        Prune([EndedTree(run, "run", now, 1, 1), EndedTree(run + 1, "last", now, 1, 0)]),
    ]


SCENES: Sequence[Scene] = [
    keep_and_prune,
    say_and_answer,
    begin_and_end_an_operation,
    journal_and_park,
    begin_anew,
    park_until,
    journal_and_end,
    children_and_end,
    end_of_a_child,
    absorb_and_reschedule,
    hand_back,
    hold,
    get_stuck,
    starts,
    starts_on_terms,
    an_end_that_is_awaited,
    messages,
    requests,
    fail_and_requeue,
    fail_for_good,
    purge_dead_letters,
    report_and_end,
    copies,
]


async def contents(path: Path) -> dict[str, list[Any]]:
    return await asyncio.to_thread(_contents, path)


def _contents(path: Path) -> dict[str, list[Any]]:
    db = sqlite3.connect(path)
    try:
        return {
            table: db.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in TABLES
        }
    finally:
        db.close()


async def say(bench: Bench, verbs: Sequence[AnyVerb]) -> list[Any]:
    """All in one batch."""
    return await asyncio.gather(*(bench.store.do(verb) for verb in verbs))


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_what_is_said_again_is_answered_as_before_and_changes_nothing(
    bench: Bench, scene: Scene
) -> None:
    verbs = await scene(bench)
    answers: list[Any] = []
    for verb in verbs:
        answers.append(await bench.store.do(verb))
        after = await contents(bench.path)
        for first in range(len(answers)):
            again = verbs[first : len(answers)]
            assert await say(bench, again) == answers[first:]
            assert await contents(bench.path) == after
            assert [await bench.store.do(one) for one in again] == answers[first:]
            assert await contents(bench.path) == after


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_what_is_said_twice_in_one_batch_happens_once(bench: Bench, scene: Scene) -> None:
    verbs = await scene(bench)
    answers = await say(bench, [*verbs, *verbs])
    assert answers[: len(verbs)] == answers[len(verbs) :]
    after = await contents(bench.path)
    assert await say(bench, verbs) == answers[: len(verbs)]
    assert await contents(bench.path) == after


async def test_repetitions_among_what_is_new_are_told_apart(bench: Bench) -> None:
    session = await bench.session()
    for number in range(40):
        await bench.start(f"r{number}")
    runs = (await bench.claim(session, 40)).runs
    now = bench.clock.now()
    kinds: list[list[AnyVerb]] = [
        [Append(run.run, 1, [bench.record(0)]) for run in runs],
        [SendSignal(run.id, "u1", "go", b"", now) for run in runs],
        [Finish(run.run, 1, Status.COMPLETED, b"v", now, clean=True) for run in runs],
    ]
    for verbs in kinds:
        await say(bench, verbs[::3])
        assert await say(bench, verbs) == [None] * 40
    assert [await bench.status(run.id) for run in runs] == ["completed"] * 40
    after = await contents(bench.path)
    for verbs in kinds:
        await say(bench, verbs)
    assert await contents(bench.path) == after
    assert [len(after[table]) for table in ("journal", "inbox")] == [40, 40]


async def test_once_another_claim_was_made_nothing_is_a_repetition(bench: Bench) -> None:
    session = await bench.session()
    run = (await bench.claimed(session, "run")).run
    verbs: list[AnyVerb] = [
        Append(run, 1, [bench.record(0)]),
        Append(run, 1, [bench.record(1), bench.record(2)]),
        Append(run, 1, opened=[OpenOp("5", "wait", "go", None)]),
        Append(run, 1, children=[("6", bench.new("child", queue="other"))]),
        Reschedule(run, 1, None),
    ]
    await say(bench, verbs)
    await bench.claim_one(session)
    after = await contents(bench.path)
    verbs += [
        Park(run, 1, None, "go"),
        Settle(run, 1, Status.HELD, b""),
        Finish(run, 1, Status.COMPLETED, b"", 0.0),
    ]
    for verb in verbs:
        with pytest.raises(StaleFence):
            await bench.store.do(verb)
    assert await contents(bench.path) == after


async def test_a_new_record_after_the_claim_was_given_up_is_no_repetition(bench: Bench) -> None:
    session = await bench.session()
    run = (await bench.claimed(session, "run")).run
    await bench.store.do(Append(run, 1, [bench.record(0)]))
    await bench.park(run, 1)
    for record in (bench.record(0, value=b"other"), bench.record(1)):
        with pytest.raises(StaleFence):
            await bench.store.do(Append(run, 1, [record]))


async def test_a_signal_is_said_again_although_its_run_has_ended_since(bench: Bench) -> None:
    run = (await bench.claimed(await bench.session(), "run")).run
    verb = SendSignal("run", "u1", "go", b"", bench.clock.now())
    cancel = CancelRun("run", "c1", b"", bench.clock.now())
    await say(bench, [verb, cancel])
    await bench.store.do(Finish(run, 1, Status.COMPLETED, b"", bench.clock.now()))
    assert await say(bench, [verb, cancel, verb]) == [None, Status.COMPLETED, None]


async def test_a_cancel_that_is_said_again_releases_no_run_that_was_held_since(
    bench: Bench,
) -> None:
    session = await bench.session()
    run = (await bench.claimed(session, "run")).run
    verb = CancelRun("run", "c1", b"", bench.clock.now())
    await bench.store.do(verb)
    history = await bench.store.history("run")
    assert history is not None
    record = bench.record(0, "", kind=8)
    await bench.store.do(Append(run, 1, [record], absorbed=[history.inbox[0].id]))
    await bench.store.do(Settle(run, 1, Status.HELD, b"its undo failed"))
    assert await bench.store.do(verb) == Status.HELD


async def test_a_run_that_was_born_claimed_is_handed_out_again(bench: Bench) -> None:
    session = await bench.session()
    verb = Start(bench.new("run"), session.worker)
    started = await bench.store.do(verb)
    assert started.claimed is not None
    assert await bench.store.do(verb) == started
    other = await bench.store.do(Start(bench.new("run"), session.worker))
    assert (other.created, other.claimed) == (False, None)
    await bench.store.do(Append(started.run, 1, [bench.record(0)]))
    again = await bench.store.do(verb)
    assert (again.created, again.claimed) == (True, None)


async def test_a_run_that_was_born_claimed_and_given_up_is_not_handed_out(bench: Bench) -> None:
    session = await bench.session()
    verb = Start(bench.new("run"), session.worker)
    started = await bench.store.do(verb)
    await bench.store.do(Reschedule(started.run, 1, None))
    again = await bench.store.do(verb)
    assert (again.created, again.status, again.claimed) == (True, Status.READY, None)
    await bench.claim_one(session)
    assert (await bench.store.do(verb)).claimed is None


async def test_a_hold_is_said_again_although_an_operator_has_moved_it_on(bench: Bench) -> None:
    session = await bench.session()
    run = (await bench.claimed(session, "run")).run
    verb = Settle(run, 1, Status.HELD, b"why")
    await bench.store.do(verb)
    await bench.store.do(Ask("run", "u1", "retry", "me", "", bench.clock.now()))
    await bench.store.do(verb)
    assert await bench.status("run") == "ready"
    assert (await bench.claim_one(session)).fence == 2
    with pytest.raises(StaleFence):
        await bench.store.do(verb)


async def test_the_end_of_a_child_is_told_once_though_its_start_is_said_again(
    bench: Bench,
) -> None:
    session = await bench.session()
    parent = (await bench.claimed(session, "parent")).run
    verb = Append(parent, 1, children=[("0", bench.new("child"))])
    await bench.store.do(verb)
    child = (await bench.claim_one(session)).run
    end = Finish(child, 1, Status.COMPLETED, b"value", bench.clock.now(), parent=parent)
    await bench.store.do(end)
    await say(bench, [verb, end])
    history = await bench.store.history("parent")
    assert history is not None
    assert [row.kind for row in history.inbox] == [InboxKind.CHILD_ENDED]


async def test_a_park_that_was_refused_parks_nothing_when_it_is_said_again(bench: Bench) -> None:
    """Its worker was told the message by push, took it, and has not heard that either."""
    session = await bench.session()
    run = (await bench.claimed(session, "run")).run
    await bench.signal("run", "u1")
    park = Park(run, 1, None, "go", length=0)
    told = await bench.store.do(park)
    take = Append(run, 1, [bench.record(0, "", kind=3)], absorbed=[row.id for row in told])
    end = Finish(run, 1, Status.COMPLETED, b"", bench.clock.now())
    said: list[AnyVerb] = [park]
    for verb in (take, end):
        said.append(verb)
        await bench.store.do(verb)
        after = await contents(bench.path)
        answers = await say(bench, said)
        assert [list(answers[0]), *answers[1:]] == [list(told), *[None] * (len(said) - 1)]
        assert await contents(bench.path) == after

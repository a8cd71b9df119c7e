"""What is set for queues, and what is known of them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stepwell_queue import (
    Append,
    CancelRun,
    Finish,
    Kind,
    OpenOp,
    RequestRefused,
    RunFilter,
    Status,
    Verb,
)
from stepwell_queue.contract import (
    Claimed,
    CountEnds,
    CountRuns,
    EndCount,
    EndedFilter,
    FindRunning,
    KeptSince,
    ListQueues,
    ListSettings,
    NamedSettings,
    PauseQueue,
    PurgeQueue,
    QueueRow,
    QueueSettings,
    RateLimit,
    ResumeQueue,
    RunCount,
    SetQueue,
    Terms,
)
from stepwell_queue.sqlite.heard import REMEMBERED
from tests.store.fleet import peers
from tests.store.kit import TASK, Bench, ManualClock, open_bench

pytestmark = pytest.mark.anyio

FULL = QueueSettings(
    3, 1, RateLimit(5, 1.0, 5), RateLimit(1, 2.0, 3), 100, 60.0, keep_age=9.0, keep_count=7
)


async def row(bench: Bench, queue: str = "mail") -> QueueRow:
    [found] = await bench.store.read(ListQueues(queue))
    return found


async def end(bench: Bench, run: Claimed, at: float, status: int = Status.COMPLETED) -> None:
    await bench.store.do(Finish(run.run, run.fence, status, b"", at))


async def ended(bench: Bench, id: str, at: float, **fields: Any) -> None:
    session = await bench.session(queues=[fields.get("queue", "default")])
    await end(bench, await bench.claimed(session, id, **fields), at)
    await session.close()


async def left(bench: Bench) -> list[str]:
    return sorted(run.id for run in await bench.store.list_runs(RunFilter(limit=1000)))


# --- settings ---


async def test_what_is_set_is_what_is_read(bench: Bench) -> None:
    await bench.store.do(SetQueue("mail", FULL))
    assert (await row(bench)).settings == FULL
    assert await bench.store.read(ListSettings()) == [NamedSettings("mail", FULL)]
    await bench.store.do(SetQueue("mail", QueueSettings()))
    assert (await row(bench)).settings == QueueSettings()


async def test_only_what_is_named_is_changed(bench: Bench) -> None:
    await bench.store.do(SetQueue("mail", FULL))
    only = ["limit", "rate"]
    await bench.store.do(SetQueue("mail", QueueSettings(limit=9, ageing=1.0), only=only))
    kept = (await row(bench)).settings
    assert (kept.limit, kept.rate, kept.ageing) == (9, None, 60.0)
    await bench.store.do(SetQueue("new", QueueSettings(limit=9, ageing=1.0), only=["ageing"]))
    assert (await row(bench, "new")).settings == QueueSettings(ageing=1.0)


async def test_operators_who_change_different_settings_do_not_undo_each_other(
    bench: Bench,
) -> None:
    await asyncio.gather(
        bench.store.do(SetQueue("mail", QueueSettings(limit=1), only=["limit"])),
        bench.store.do(SetQueue("mail", QueueSettings(max_length=2), only=["max_length"])),
        bench.store.do(SetQueue("mail", QueueSettings(key_limit=3), only=["key_limit"])),
    )
    assert (await row(bench)).settings == QueueSettings(limit=1, max_length=2, key_limit=3)


@pytest.mark.parametrize(
    ("settings", "only", "says"),
    [
        (QueueSettings(limit=0), None, "limit"),
        (QueueSettings(limit=2**63), None, "limit"),
        (QueueSettings(key_limit=-1), None, "key_limit"),
        (QueueSettings(max_length=0), None, "max_length"),
        (QueueSettings(keep_count=-1), None, "keep_count"),
        (QueueSettings(keep_age=-1.0), None, "keep_age"),
        (QueueSettings(keep_age=float("nan")), None, "keep_age"),
        (QueueSettings(ageing=0.0), None, "ageing"),
        (QueueSettings(ageing=float("nan")), None, "ageing"),
        (QueueSettings(rate=RateLimit(0, 1.0, 1)), None, "rate"),
        (QueueSettings(rate=RateLimit(1, 0.0, 1)), None, "rate"),
        (QueueSettings(rate=RateLimit(2**63, 1.0, 1)), None, "rate"),
        (QueueSettings(key_rate=RateLimit(1, 1.0, 0)), None, "key_rate"),
        (QueueSettings(key_rate=RateLimit(1, float("nan"), 1)), None, "key_rate"),
        (QueueSettings(), ["limt"], "no setting limt"),
    ],
)
async def test_settings_that_make_no_sense_are_refused(
    bench: Bench, settings: QueueSettings, only: Sequence[str] | None, says: str
) -> None:
    with pytest.raises(RequestRefused, match=says):
        await bench.store.do(SetQueue("mail", settings, None, only))
    assert await bench.store.read(ListQueues("mail")) == []


async def test_a_changed_declaration_is_applied_and_an_equal_one_is_not(bench: Bench) -> None:
    await bench.store.do(SetQueue("mail", QueueSettings(limit=1), "first"))
    await bench.store.do(SetQueue("mail", QueueSettings(limit=5), only=["limit"]))
    await bench.store.do(SetQueue("mail", QueueSettings(limit=1), "first"))
    assert (await row(bench)).settings.limit == 5
    await bench.store.do(SetQueue("mail", QueueSettings(limit=2), "second"))
    assert (await row(bench)).settings.limit == 2


async def test_a_pause_outlives_new_settings(bench: Bench) -> None:
    session = await bench.session()
    await bench.store.do(PauseQueue("default", None, "why"))
    await bench.store.do(SetQueue("default", QueueSettings(limit=5)))
    await bench.store.do(SetQueue("default", QueueSettings()))
    await bench.start()
    assert (await bench.claim(session)).runs == []
    found = await row(bench, "default")
    assert (found.paused, found.reason, found.ready) == (True, "why", 1)
    await bench.store.do(ResumeQueue("default"))
    assert len((await bench.claim(session)).runs) == 1
    found = await row(bench, "default")
    assert (found.paused, found.until, found.reason) == (False, None, "")


async def test_a_pause_outlives_the_store(path: Path) -> None:
    first = await open_bench(path)
    await first.store.do(PauseQueue("default", 9e9, "night"))
    await first.start()
    await first.store.close()
    second = await open_bench(path)
    assert (await second.claim(await second.session())).runs == []
    found = await row(second, "default")
    assert (found.paused, found.until, found.reason) == (True, 9e9, "night")
    await second.store.close()


async def test_each_verb_may_be_said_twice(bench: Bench) -> None:
    for id in ("a", "b", "c"):
        await bench.start(id, queue="mail")
    verbs: list[Verb[Any]] = [
        SetQueue("mail", FULL, "digest"),
        SetQueue("mail", QueueSettings(limit=8), only=["limit"]),
        PauseQueue("mail", 9e9, "why"),
        ResumeQueue("mail"),
    ]
    for verb in verbs:
        answer = await bench.store.do(verb)
        after = await row(bench)
        assert await bench.store.do(verb) == answer
        assert await row(bench) == after
    purge = PurgeQueue("mail", 2, b"reason", bench.clock.now())
    # It goes on with what is left: whoever repeats it wants the queue empty.
    assert [await bench.store.do(purge) for _ in range(3)] == [2, 1, 0]


async def test_a_change_that_is_said_again_takes_nothing_back_that_others_have_said_since(
    bench: Bench,
) -> None:
    do = bench.store.do
    said: list[Verb[Any]] = [
        ResumeQueue("mail", "a"),
        SetQueue("mail", QueueSettings(limit=1), None, ["limit"], "b"),
        PauseQueue("mail", None, "first", "c"),
        ResumeQueue("mail", "d"),
        SetQueue("mail", QueueSettings(limit=2), None, ["limit"], "e"),
        PauseQueue("mail", 9e9, "second", "f"),
    ]
    for verb in said:
        assert await do(verb) is None
    after = await row(bench)
    assert (after.settings.limit, after.reason) == (2, "second")
    for verb in said:
        assert await do(verb) is None
        assert await row(bench) == after
    await do(ResumeQueue("mail", "g"))
    assert not (await row(bench)).paused


async def test_a_queue_remembers_so_many_changes_and_no_more(bench: Bench) -> None:
    for number in range(REMEMBERED + 1):
        await bench.store.do(PauseQueue("mail", None, f"{number}", f"uid-{number}"))
    await bench.store.do(PauseQueue("mail", None, "again", "uid-1"))
    assert (await row(bench)).reason == f"{REMEMBERED}"
    await bench.store.do(PauseQueue("mail", None, "again", "uid-0"))
    assert (await row(bench)).reason == "again"


# --- several processes ---


@pytest.mark.blocking  # starting a process blocks
async def test_a_pause_and_a_limit_hold_at_once_for_workers_of_other_processes(
    path: Path,
) -> None:
    bench = await open_bench(path)
    async with peers(path, 1) as [other], asyncio.timeout(60):
        await other("session")
        assert await other("claim") == []
        await bench.store.do(PauseQueue("default", None))
        for id in ("a", "b", "c"):
            await bench.start(id)
        assert await other("claim") == []
        await other("forget_ready")
        await bench.store.do(SetQueue("default", QueueSettings(limit=2)))
        await bench.store.do(ResumeQueue("default"))
        async with asyncio.timeout(1):
            await other("await_ready")
        assert [run[1] for run in await other("claim")] == ["a", "b"]
        await bench.store.do(PauseQueue("default", None))
        await bench.store.do(SetQueue("default", QueueSettings()))
        assert await other("claim") == []
    await bench.store.close()


# --- purging ---


async def test_purging_cancels_what_nobody_has_claimed_yet(bench: Bench) -> None:
    session = await bench.session(queues=["mail"])
    running = await bench.claimed(session, "running", queue="mail")
    for id, fields in (
        ("ready", {}),
        ("keyed", {"terms": Terms(key="k")}),
        ("later", {"due": bench.clock.now() + 1000}),
        ("elsewhere", {"queue": "other"}),
    ):
        await bench.start(id, **{"queue": "mail", **fields})
    for limit in (0, -1):
        assert await bench.store.do(PurgeQueue("mail", limit, b"", bench.clock.now())) == 0
    assert await bench.store.do(PurgeQueue("mail", 100, b"why", bench.clock.now())) == 3
    words = {id: await bench.status(id) for id in await left(bench)}
    assert words == {
        "running": "running", "ready": "cancelled", "keyed": "cancelled", "later": "cancelled",
        "elsewhere": "ready",
    }  # fmt: skip
    info = await bench.store.info("ready")
    assert info is not None
    assert info.value == b"why"
    await end(bench, running, bench.clock.now())


async def test_purging_leaves_what_a_worker_has_had_and_what_a_parent_waits_for(
    bench: Bench,
) -> None:
    session = await bench.session()
    handed_back = await bench.claimed(session, "handed back")
    parent = await bench.claimed(session, "parent")
    await session.close()
    child = bench.new("child", identity=TASK, queue="mail")
    opened = [OpenOp("0", "child", "mail", None)]
    session = await bench.session()
    runs = {run.id: run for run in (await bench.claim(session)).runs}
    parent = runs["parent"]
    await bench.store.do(Append(parent.run, parent.fence, children=[("0", child)], opened=opened))
    await session.close()
    for queue in ("default", "mail"):
        assert await bench.store.do(PurgeQueue(queue, 100, b"", bench.clock.now())) == 0
    assert await bench.status(handed_back.id) == "ready"
    assert await bench.status("child") == "ready"


# --- what is known ---


async def test_a_queue_is_counted_by_what_is_in_it(timed: Bench, clock: ManualClock) -> None:
    session = await timed.session(queues=["mail"])
    held = await timed.claimed(session, "held", queue="mail", identity=TASK)
    clock.move(5)
    await timed.start("old", queue="mail")
    clock.move(5)
    await timed.start("new", queue="mail", terms=Terms(key="k"))
    await timed.start("later", queue="mail", due=clock.now() + 60)
    found = await row(timed)
    assert (found.running, found.ready) == (1, 2)
    [ready] = [one for one in await _counts(timed) if one.status == Status.READY]
    assert ready.since == clock.now() - 5
    assert await timed.store.read(FindRunning("mail")) == ["held"]
    assert await timed.store.read(FindRunning("mail", 0)) == []
    assert await timed.store.read(FindRunning("mail", -1)) == []
    assert await timed.store.read(FindRunning("default")) == []
    await end(timed, held, clock.now(), Status.FAILED)
    counts = sorted((one.kind, one.status, one.count) for one in await _counts(timed))
    assert counts == [
        (Kind.TASK, Status.FAILED, 1),
        (Kind.WORKFLOW, Status.SCHEDULED, 1),
        (Kind.WORKFLOW, Status.READY, 2),
    ]
    assert await timed.store.read(CountRuns("other")) == []


async def test_what_comes_due_is_ready_since_then(timed: Bench, clock: ManualClock) -> None:
    session = await timed.session()
    await timed.store.do(PauseQueue("mail", None))
    await timed.start(queue="mail", due=clock.now() + 60)
    clock.move(3600)
    await timed.claim(session)
    [ready] = await _counts(timed)
    assert (ready.status, ready.since) == (Status.READY, clock.now())


async def _counts(bench: Bench) -> Sequence[RunCount]:
    return await bench.store.read(CountRuns("mail"))


async def test_ends_are_counted_since_a_time_by_queue(bench: Bench) -> None:
    session = await bench.session(queues=["mail", "other"])
    for number in range(4):
        run = await bench.claimed(session, queue="mail")
        await end(bench, run, float(number), Status.FAILED if number == 3 else Status.COMPLETED)
    await end(bench, await bench.claimed(session, queue="other"), 3.0)
    await bench.start(queue="mail")
    assert await bench.store.read(CountEnds(1.0)) == [
        EndCount("mail", 2, 1),
        EndCount("other", 1, 0),
    ]
    assert await bench.store.read(CountEnds(-1.0, "mail")) == [EndCount("mail", 4, 1)]
    assert await bench.store.read(CountEnds(3.0)) == []


async def test_runs_are_listed_by_key_and_times(timed: Bench, clock: ManualClock) -> None:
    session = await timed.session()
    begin = clock.now()
    for number, key in enumerate(("k", "l", "k")):
        run = await timed.claimed(session, f"r{number}", terms=Terms(key=key))
        clock.move(10)
        await end(timed, run, clock.now())
    await timed.start("plain")

    async def ids(**fields: Any) -> list[str]:
        return [run.id for run in await timed.store.list_runs(RunFilter(**fields))]

    assert await ids(key="k") == ["r2", "r0"]
    assert await ids(key="k", limit=1) == ["r2"]
    assert await ids(key="m") == []
    assert await ids(created_after=begin + 10) == ["plain", "r2", "r1"]
    assert await ids(created_before=begin + 10) == ["r0"]
    assert await ids(ended_after=begin + 20, ended_before=begin + 30) == ["r1"]
    infos = {run.id: run.key for run in await timed.store.list_runs(RunFilter())}
    assert infos == {"r0": "k", "r1": "l", "r2": "k", "plain": None}


# --- retention of a queue ---


async def prune(bench: Bench, before: float | None, keep: int | None, **fields: Any) -> int:
    return await bench.prune(before, keep, **fields)


async def test_what_is_deleted_of_one_queue_leaves_the_others_alone(bench: Bench) -> None:
    for number in range(4):
        for queue in ("mail", "other"):
            await ended(bench, f"{queue}{number}", float(number), queue=queue)
    await bench.start("newest")
    assert await prune(bench, 1.0, None, queue="mail") == 1
    assert await prune(bench, None, 2, queue="mail") == 1
    assert await left(bench) == [
        "mail2", "mail3", "newest", "other0", "other1", "other2", "other3",
    ]  # fmt: skip
    assert await prune(bench, None, 1, but_queues=["mail"]) == 3
    assert await left(bench) == ["mail2", "mail3", "newest", "other3"]
    assert await prune(bench, 99.0, None, queue="nowhere") == 0
    assert await prune(bench, 99.0, None, but_queues=["mail", "other"]) == 0


async def test_the_newest_are_counted_across_the_names_of_a_queue(bench: Bench) -> None:
    for number in range(3):
        await ended(bench, f"w{number}", float(number), queue="mail")
        await ended(bench, f"t{number}", number + 0.5, queue="mail", identity=TASK)
    await bench.start("newest")
    assert await prune(bench, None, 3, queue="mail") == 3
    assert await left(bench) == ["newest", "t1", "t2", "w2"]


async def test_nothing_that_an_unended_run_needs_is_deleted(bench: Bench) -> None:
    session = await bench.session(queues=["default", "mail"])
    parent = await bench.claimed(session, "parent")
    children = [(str(n), bench.new(f"child{n}", identity=TASK, queue="mail")) for n in range(2)]
    await bench.store.do(Append(parent.run, 1, children=children))
    for child in (await bench.claim(session)).runs:
        now = bench.clock.now()
        await bench.store.do(
            Finish(child.run, 1, Status.COMPLETED, b"value", now, parent=parent.run)
        )
    await bench.signal("parent", "consumed")
    await bench.start("newest", queue="mail")
    for fields in ({"queue": "mail"}, {"queue": "default"}, {}):
        assert await prune(bench, 9e9, 0, **fields) == 0
    history = await bench.store.history("parent")
    assert history is not None
    assert len(history.inbox) == 3
    assert [child.value for child in history.children] == [b"value", b"value"]
    # Once the parent has ended, they go with it, whatever their own queue is.
    await end(bench, parent, bench.clock.now())
    assert await prune(bench, 9e9, None, queue="mail") == 0
    assert await prune(bench, 9e9, None, queue="default") == 3
    assert await left(bench) == ["newest"]


async def test_what_cannot_go_yet_is_passed_over_and_goes_once_it_can(bench: Bench) -> None:
    """Parents have ended, of children that have not: they are the oldest, and stay."""
    session = await bench.session()
    for number in range(3):
        parent = (await bench.claimed(session, f"parent-{number}")).run
        child = bench.new(f"child-{number}", identity=TASK, queue="elsewhere")
        await bench.store.do(Append(parent, 1, children=[("", child)]))
        await bench.store.do(Finish(parent, 1, Status.COMPLETED, b"", bench.clock.now()))
    for number in range(4):
        run = (await bench.claimed(session, f"r{number}")).run
        await bench.store.do(Finish(run, 1, Status.COMPLETED, b"", bench.clock.now()))
    await bench.start("last", queue="elsewhere")
    passes = functools.partial(bench.prune, bench.clock.now() + 1, limit=2)
    assert [await passes() for _ in range(3)] == [2, 2, 0]
    await bench.store.do(CancelRun("child-1", "u", b"", bench.clock.now()))
    assert [await passes() for _ in range(2)] == [2, 0]
    assert await bench.store.info("parent-1") is None
    assert await bench.store.info("parent-0") is not None


async def test_a_run_whose_unique_key_is_taken_for_a_time_stays_until_then(
    timed: Bench, clock: ManualClock
) -> None:
    until = clock.now() + 60
    terms = Terms(unique="once", hold=2, held_until=until)
    await ended(timed, "first", clock.now(), terms=terms)
    await timed.start("newest")
    assert await prune(timed, 9e9, None) == 0
    again = await timed.start("second", terms=terms)
    assert (again.id, again.created) == ("first", False)
    clock.move(61)
    assert await prune(timed, 9e9, None) == 1
    assert await left(timed) == ["newest"]


async def test_the_oldest_that_is_kept_is_known_by_a_read(bench: Bench) -> None:
    for number in range(3):
        await ended(bench, f"mail{number}", float(number), queue="mail")
        await ended(bench, f"other{number}", number + 10.0, queue="other")
    read = bench.store.read
    assert await read(KeptSince(2, EndedFilter())) == 11.0
    assert await read(KeptSince(2, EndedFilter("mail"))) == 1.0
    assert await read(KeptSince(2, EndedFilter(but_queues=["other"]))) == 1.0
    assert await read(KeptSince(4, EndedFilter("mail"))) is None
    assert await read(KeptSince(0, EndedFilter())) == float("inf")

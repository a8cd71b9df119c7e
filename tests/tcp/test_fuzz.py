"""Frames of valid, mutated and random requests against a live server, and what it makes of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeGuard

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell_queue.contract import (
    Append,
    Ask,
    CancelRun,
    Claim,
    Continue,
    CountEnds,
    CountRuns,
    EndedFilter,
    EndedTree,
    FindPrunable,
    FindRunning,
    Finish,
    Hello,
    Keep,
    KeepNames,
    KeptSince,
    Kind,
    LeaseUpkeep,
    ListDeadLetters,
    ListKept,
    ListQueues,
    ListSettings,
    LogLine,
    NamedKeep,
    NewRun,
    OpenOp,
    Park,
    PauseQueue,
    Prune,
    PurgeDeadLetters,
    PurgeQueue,
    QueueSettings,
    RateLimit,
    ReadLog,
    ReadProgress,
    Record,
    Report,
    Requeue,
    Reschedule,
    ResumeQueue,
    RunFilter,
    SayState,
    SendSignal,
    SetQueue,
    Settle,
    Start,
    StartMany,
)
from stepwell_queue.tcp import protocol
from stepwell_queue.tcp.protocol import encode, framed
from stepwell_queue.tcp.server import Server
from tests.serving import serving, url_of
from tests.store.kit import DIGEST, TASK, WORKFLOW
from tests.tcp.kit import LONG, Client, client_of, let_in

ODD: list[Any] = [
    0, 1, -1, 2**31, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), math.nan, math.inf, -math.inf, 1e300,
    "", "x", "a\0b", "é" * 50, b"", b"x" * 1000, None, True, [], {}, [[]], "fuzzed", "fuzzed-2",
]  # fmt: skip


def requests() -> list[Any]:
    """One of each kind, as a client says it; the runs are numbers that it may guess."""
    hello = Hello("fuzzer", ["fuzz"], [WORKFLOW, TASK])
    new = [
        NewRun(f"fuzzed-{n}", Kind.WORKFLOW, "checkout", 1, "fuzz", b"arguments", DIGEST, n, 1e9)
        for n in range(5)
    ]
    return [
        protocol.OpenSession(1, "fuzz/1", "host", 1, hello, {2: 1}, {3: 1}, 5),
        protocol.CloseSession(1),
        protocol.Dropped(1, 2),
        protocol.Offer(1, 10),
        protocol.GetInfo("fuzzed-1"),
        protocol.WaitEnded("fuzzed-1"),
        protocol.Forget(5),
        protocol.ListRuns(RunFilter(statuses=["ready"], name="checkout", limit=3, after=9)),
        protocol.GetHistory("fuzzed-1"),
        protocol.ListWorkers(),
        protocol.Ping(),
        protocol.GetJournal(2, 0),
        protocol.GetInbox(2, 0),
        Start(new[0]),
        Start(new[1], 1),
        StartMany([new[2], new[3]]),
        SendSignal("fuzzed-1", "uid", "go", b"value", 1e9),
        CancelRun("fuzzed-1", "cancel", b"", 1e9),
        Ask("fuzzed-1", "ask", "retry", "me", "", 1e9),
        Prune([EndedTree(1, "id", 1.0, 1, 1)]),
        KeepNames([NamedKeep("fuzz", Keep(1.0, 2), {11: Keep()})]),
        LeaseUpkeep("fuzz", 1.0),
        Claim(1, 10, {2: 1}, True),
        SayState(1, 2),
        Append(2, 1, [Record(0, 0, "0", "s", b"", 1e9)], ["0"], [OpenOp("1", "sleep", "", 2e9)]),
        Append(2, 1, [], absorbed=[1], children=[("2", new[4])], cancels=["fuzzed-2"], phase=1),
        Park(2, 1, 2e9, "time", [OpenOp("1", "sleep", "", 2e9)]),
        Finish(2, 1, 10, b"value", 1e9),
        Settle(2, 1, 5, b"error"),
        Reschedule(2, 1, None, 1, b"error"),
        Continue(2, 1, b"args", [(0, "go", 1)], 1e9),
        Report(2, 1, 1, 0.5, "half", 1e9, [LogLine(1e9, "line", '{"a":1}', "0", 1)]),
        Requeue(["fuzzed-1", "fuzzed-2"], "requeue", "me", "", 1e9),
        PurgeDeadLetters(["fuzzed-1", "fuzzed-2"]),
        ListDeadLetters("fuzz", "checkout", "fuzzed-1", 10),
        ListDeadLetters(after=(1e9, 2)),
        SetQueue("fuzz", QueueSettings(3, 1, RateLimit(5, 1.0, 5), keep_age=9.0), "digest"),
        SetQueue("fuzz", QueueSettings(max_length=9, ageing=1.0), only=["max_length", "ageing"]),
        PauseQueue("fuzz", 2e9, "why"),
        ResumeQueue("fuzz"),
        PurgeQueue("fuzz", 3, b"why", 1e9),
        ListQueues("fuzz"),
        CountRuns("fuzz"),
        CountEnds(1e9, "fuzz"),
        FindRunning("fuzz", 3),
        ListSettings(),
        KeptSince(3, EndedFilter("fuzz", ["other"], "name", ["another"], [11])),
        FindPrunable(EndedFilter("fuzz"), 1.0, 1.0, 10),
        ListKept(),
        ReadProgress("fuzzed-1"),
        ReadLog("fuzzed-1", 1, 10),
    ]


def is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def is_dict(value: object) -> TypeGuard[dict[Any, Any]]:
    return isinstance(value, dict)


def _mutated(draw: st.DrawFn, value: Any) -> Any:
    if draw(st.integers(0, 9)) and is_list(value) and value:
        items = list(value)
        at = draw(st.integers(0, len(items) - 1))
        what = draw(st.integers(0, 9))
        if what < 7:
            items[at] = _mutated(draw, items[at])
        elif what == 7:
            del items[at]
        else:
            items.insert(at, draw(st.sampled_from(ODD)))
        return items
    if draw(st.booleans()) and is_dict(value) and value:
        key = draw(st.sampled_from(sorted(value, key=str)))
        return {**value, key: _mutated(draw, value[key])}
    return draw(st.sampled_from(ODD))


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, bool]:
    """What somebody who was let in sends: a few frames, more or less right; whether to the end."""
    frames: list[bytes] = []
    for _ in range(draw(st.integers(1, 3))):
        if not draw(st.integers(0, 9)):
            frames.append(framed(draw(st.binary(max_size=100))))
            continue
        picked = draw(st.lists(st.sampled_from(VALID), min_size=1, max_size=6))
        frame: Any = [[number + 1, request] for number, request in enumerate(picked)]
        for _ in range(draw(st.integers(0, 2))):
            frame = _mutated(draw, frame)
        with contextlib.suppress(OverflowError):
            frames.append(framed(encode(frame)))
    stream = b"".join(frames)
    if draw(st.integers(0, 9)):
        return stream, True
    return stream[: draw(st.integers(0, len(stream)))], False


VALID: list[Any] = [msgspec.msgpack.decode(encode(request)) for request in requests()]


LAST = 4711


class Site:
    """A server on a loop of its own, which lives through all examples."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.loop = asyncio.new_event_loop()
        self.complaints: list[str] = []
        self.loop.set_exception_handler(lambda loop, context: self.complaints.append(repr(context)))
        self.stack = contextlib.AsyncExitStack()
        self.rounds = 0
        self.server: Server
        self.good: Client

    async def open(self) -> None:
        self.server = await self.stack.enter_async_context(serving(self.path))
        self.good = await client_of(url_of(self.server), self.path)
        self.session = await self.good.session()
        self.run = await self.good.claimed(self.session, "good")

    async def close(self) -> None:
        await self.good.store.close()
        await self.stack.aclose()

    async def check(self, stream: bytes, whole: bool) -> None:
        async with let_in(self.server) as wire:
            wire.writer.write(stream)
            if whole:
                wire.say([[LAST, protocol.Ping()]])
                with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                    while LAST not in await wire.answered():
                        pass
            wire.writer.write_eof()
            await wire.rest()
        self.rounds += 1
        async with asyncio.timeout(LONG):
            await self.good.signal("good", f"uid-{self.rounds}")
            started = await self.good.start(f"after-{self.rounds}", queue="nobody's")
            assert started.created


class Errors(logging.Handler):
    """What was logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record.getMessage())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("fuzz") / "runs.db")
    site.loop.run_until_complete(site.open())
    yield site
    history = site.loop.run_until_complete(site.good.store.history("good"))
    assert history is not None
    assert (history.run.status_name, history.run.fence) == ("running", site.run.fence)
    assert len(history.inbox) == site.rounds
    found = site.loop.run_until_complete(site.good.store.doctor())
    # what somebody says of its own runs may be nonsense; of those of others it says nothing
    assert [one for one in found if one.run_id is None or "fuzzed" not in one.run_id] == []
    site.loop.run_until_complete(site.close())
    site.loop.close()


@pytest.mark.blocking
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(said=streams())
def test_whatever_one_client_sends_the_server_serves_the_others(
    site: Site, said: tuple[bytes, bool]
) -> None:
    errors = Errors()
    logging.getLogger().addHandler(errors)
    try:
        site.loop.run_until_complete(site.check(*said))
    finally:
        logging.getLogger().removeHandler(errors)
    assert (site.complaints, errors.seen) == ([], [])

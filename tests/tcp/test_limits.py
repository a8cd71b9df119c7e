"""What the server takes of a connection, and for how long: frames, requests, silence, deafness."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stepwell_queue import SendSignal, StoreUnavailable
from stepwell_queue.contract import Hello, RunFilter
from stepwell_queue.tcp.protocol import (
    BEATS,
    FRAME_LIMIT,
    GREETING_LIMIT,
    MOST_AT_ONCE,
    VERSION,
    Closing,
    GetInfo,
    ListRuns,
    OpenSession,
    Ping,
    Turned,
    WaitEnded,
    decode_answers,
    decode_welcome,
    encode,
    framed,
)
from stepwell_queue.tcp.server import Server, requests
from tests.serving import serving, url_of
from tests.store.kit import WORKFLOW
from tests.tcp.kit import LONG, Client, Wire, client_of, let_in, network, wire_to

pytestmark = pytest.mark.anyio


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path / "runs.db") as server:
        yield server


@pytest.fixture
async def other(server: Server, tmp_path: Path) -> AsyncIterator[Client]:
    """A client that behaves, and must be served whatever the others do."""
    client = await client_of(url_of(server), tmp_path / "runs.db")
    run = await client.claimed(await client.session(), "well")
    yield client
    await client.signal("well", "uid")
    assert [row.uid for row in await client.park(run.run, run.fence)] == ["uid"]
    assert await client.store.doctor() == []
    await client.store.close()


def closed_because(frame: bytes) -> str:
    _, events = decode_answers(frame)
    closing = events[-1]
    assert isinstance(closing, Closing)
    return closing.reason


def turned_away_because(frame: bytes) -> str:
    turned = decode_welcome(frame)
    assert isinstance(turned, Turned)
    return turned.reason


@pytest.mark.usefixtures("other")
@pytest.mark.parametrize("size", [GREETING_LIMIT + 1, 2**31, 2**32 - 1])
async def test_a_frame_that_is_too_long_is_refused_by_its_header_before_the_greeting(
    server: Server, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with wire_to(server) as wire:
        wire.writer.write(size.to_bytes(4, "big"))
        (only,) = await wire.rest()
    assert f"a frame of {size} bytes was announced, and the limit is" in turned_away_because(only)
    assert f"{size} bytes" in caplog.text


@pytest.mark.usefixtures("other")
@pytest.mark.parametrize("size", [FRAME_LIMIT + 1, 2**32 - 1])
async def test_a_frame_that_is_too_long_is_refused_by_its_header_after_the_greeting(
    server: Server, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with let_in(server) as wire:
        wire.writer.write(size.to_bytes(4, "big"))
        (only,) = await wire.rest()
    assert closed_because(only).startswith(f"a frame of {size} bytes was announced")
    assert f"{size} bytes" in caplog.text


async def test_a_client_takes_no_frame_that_is_too_long(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with network(tmp_path / "runs.db") as net:
        (pair,) = net.proxy.pairs
        pair.send("down", b"\xff\xff\xff\xff")
        assert (await net.client.start("run")).created
        assert "a frame of 4294967295 bytes was announced" in caplog.text
        net.proxy.rule = lambda pair, direction, data: b"\xff" * 4 if direction == "down" else data
        with pytest.raises(StoreUnavailable, match="what answers there is no Stepwell server"):
            await client_of(net.proxy.url, tmp_path / "runs.db")
        net.proxy.rule = lambda pair, direction, data: data


@pytest.mark.usefixtures("other")
async def test_a_frame_of_too_many_requests_is_refused_before_it_is_decoded(
    server: Server,
) -> None:
    async with let_in(server) as wire:
        wire.writer.write(framed(b"\xdd" + (MOST_AT_ONCE + 1).to_bytes(4, "big")))
        (only,) = await wire.rest()
    assert closed_because(only).startswith(f"a frame of {MOST_AT_ONCE + 1} requests")


async def test_a_client_sends_more_requests_than_a_frame_takes_in_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell_queue.tcp.client.link.MOST_AT_ONCE", 10)
    monkeypatch.setattr("stepwell_queue.tcp.client.link.AT_ONCE", 1000)
    monkeypatch.setattr("stepwell_queue.tcp.server.connection.MOST_AT_ONCE", 10)
    async with network(tmp_path / "runs.db") as net:
        await asyncio.gather(*(net.client.start(f"run-{n}") for n in range(101)))
        assert len(net.proxy.pairs) == 1


FOREIGN = [
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    b"\x00\x00\x00\x05hello",
    b"\x00\x00\x00\x00",
    framed(b"\xc1"),
    framed(encode(["stepwell"])),
    framed(encode({"magic": "stepwell"})),
    framed(b"\x91" * 60_000),
    framed(b"\xdd\xff\xff\xff\xff"),
]


@pytest.mark.usefixtures("other")
@pytest.mark.parametrize("bytes_", FOREIGN)
async def test_who_speaks_something_else_is_told_so_and_turned_away(
    server: Server, bytes_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with wire_to(server) as wire:
        wire.writer.write(bytes_)
        (only,) = await wire.rest()
    assert "this is a Stepwell server" in turned_away_because(only)
    assert "is turned away: this is a Stepwell server" in caplog.text


@pytest.mark.usefixtures("other")
@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"magic": "stairwell"}, "greeted as something else"),
        ({"version": 99}, f"speaks version {VERSION} of the protocol, and the client version 99"),
        ({"channel": "gossip"}, "a channel 'gossip', which there is not"),
    ],
)
async def test_who_greets_wrongly_is_told_why_it_is_turned_away(
    server: Server, said: dict[str, str | int], reason: str
) -> None:
    async with wire_to(server) as wire:
        answer = await wire.greet(**said)  # type: ignore[arg-type]  # by its name each one fits
        assert isinstance(answer, Turned)
        assert reason in answer.reason


MALFORMED = [
    b"",
    b"\xc1",
    encode(None),
    encode([[1]]),
    encode([[0, [9999]]]),
    encode([["one", [42]]]),
    encode([[1, [42]], 7]),
    b"\x91\x92\x01\x92\x2a" + b"\x91" * 200_000,  # nested where nothing belongs
    b"\x92" * 200_000,
]


@pytest.mark.usefixtures("other")
@pytest.mark.parametrize("body", MALFORMED)
async def test_a_frame_that_is_not_understood_closes_its_connection_and_no_other(
    server: Server, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with let_in(server) as wire:
        wire.writer.write(framed(body))
        (only,) = await wire.rest()
    assert closed_because(only).startswith("a frame that is not understood: ")
    assert "is closed: a frame that is not understood" in caplog.text
    assert [one for one in caplog.records if one.levelname == "ERROR"] == []


@pytest.mark.usefixtures("other")
async def test_bytes_on_the_channel_for_beats_that_are_none_close_it(server: Server) -> None:
    for bytes_ in (framed(b"\xc1"), framed(encode([1])), (GREETING_LIMIT + 1).to_bytes(4, "big")):
        async with let_in(server, BEATS) as wire:
            wire.say(["nobody"])
            assert await wire.frame() == encode(["nobody"])
            wire.writer.write(bytes_)
            assert await wire.rest() == []


# --- time ---


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GREET_WITHIN", "SILENT_IN_FRAME", "SILENT", "UNREAD"):
        monkeypatch.setattr(f"stepwell_queue.tcp.server.connection.{name}", 0.1)
    monkeypatch.setattr("stepwell_queue.tcp.server.server._TICK", 0.02)


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("begun", [b"", b"\x00", b"\x00\x00\x00\x20half a gree"])
async def test_who_does_not_greet_is_turned_away(
    tmp_path: Path, begun: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path / "runs.db") as server, wire_to(server) as wire:
        wire.writer.write(begun)
        (only,) = await wire.rest()
    assert turned_away_because(only) == "it did not greet within 0.1 seconds"
    assert "is turned away: it did not greet" in caplog.text


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize(
    ("begun", "reason"),
    [
        (b"", "it was silent for"),
        (b"\x00", "it stopped within a frame"),
        (b"\x00\x00\x00\x20half", "it stopped within a frame"),
    ],
)
async def test_who_falls_silent_is_closed(tmp_path: Path, begun: bytes, reason: str) -> None:
    async with serving(tmp_path / "runs.db") as server, let_in(server) as wire:
        wire.writer.write(begun)
        (only,) = await wire.rest()
    assert closed_because(only).startswith(reason)


@pytest.mark.usefixtures("_impatient")
async def test_the_silence_of_a_worker_is_a_matter_of_its_lease(tmp_path: Path) -> None:
    async with serving(tmp_path / "runs.db") as server, let_in(server) as wire:
        hello = Hello("worker", ["default"], [WORKFLOW])
        wire.say([[1, OpenSession(1, "key/1", "host", 1, hello, {}, {})]])
        assert await wire.answered() == [1]
        async with let_in(server) as idle:  # is closed, with the worker still there
            await idle.rest()
        wire.say([[2, Ping()]])
        assert await wire.answered() == [2]


@pytest.mark.usefixtures("_impatient")
async def test_beats_may_be_as_far_apart_as_the_lease_lets_them(tmp_path: Path) -> None:
    async with serving(tmp_path / "runs.db") as server, let_in(server, BEATS) as beats:
        async with let_in(server) as idle:
            await idle.rest()
        beats.say(["key"])
        assert await beats.frame() == encode(["key"])


# --- numbers ---


async def test_one_connection_too_many_is_turned_away_with_the_reason(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path / "runs.db", max_connections=2) as server:
        async with let_in(server) as first, let_in(server) as second:
            async with wire_to(server) as third:
                said = await third.first()
                assert said == Turned("the server has 2 connections, which is its limit")
            for wire in (first, second):
                wire.say([[1, Ping()]])
                assert await wire.answered() == [1]
            second.writer.close()
            async with asyncio.timeout(LONG):
                await second.writer.wait_closed()
                while len(server._connections) > 1:
                    first.say([[2, Ping()]])
                    await first.hear()
        async with let_in(server):
            pass


async def test_a_flood_of_requests_is_not_read_on_until_some_are_answered(tmp_path: Path) -> None:
    most = 50
    async with serving(tmp_path / "runs.db", max_in_flight=most) as server:
        client = await client_of(url_of(server), tmp_path / "runs.db")
        async with let_in(server) as wire:
            (line,) = [one for one in server._connections if one.peer.endswith(_port(wire))]
            highest = 0
            settled = line.settled

            def watch(share: int) -> None:
                nonlocal highest
                highest = max(highest, line._in_flight)
                settled(share)

            line.settled = watch  # type: ignore[method-assign]
            for number in range(1, 2001):
                wire.say([[number, GetInfo("run" * 700)]])
            heard: set[int] = set()
            while len(heard) < 2000:
                heard.update(await wire.answered())
                assert (await client.start("run")).status == 1  # others are served meanwhile
            # what came with one read of the socket is taken, and then no more
            assert most < highest < 500
        await client.store.close()


def _port(wire: Wire) -> str:
    return f":{wire.writer.get_extra_info('sockname')[1]}"


async def test_who_does_not_read_its_answers_is_closed_and_costs_nobody_else_a_thing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell_queue.tcp.server.connection.UNREAD", 0.2)
    monkeypatch.setattr("stepwell_queue.tcp.server.server._TICK", 0.02)
    async with serving(tmp_path / "runs.db") as server:
        client = await client_of(url_of(server), tmp_path / "runs.db")
        await client.start("run", args=bytes(200_000))
        async with let_in(server) as wire:
            wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
            wire.say([[number, ListRuns(RunFilter())] for number in range(1, 200)])
            async with asyncio.timeout(LONG):
                while any(one.peer.endswith(_port(wire)) for one in server._connections):
                    assert (await client.start("run")).status == 1
        assert "has read nothing for" in caplog.text
        await client.store.close()


async def test_who_does_not_read_what_it_is_told_is_closed_when_too_much_waits_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path / "runs.db", max_queued=500_000) as server:
        client = await client_of(url_of(server), tmp_path / "runs.db")
        await client.start("run")
        hello = Hello("deaf", ["default"], [WORKFLOW])
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, server.address)
        async with await Wire.over(raw) as wire:
            await wire.greet()
            wire.say([[1, OpenSession(1, "key/1", "host", 1, hello, {}, {}, 1)]])
            events: list[object] = []
            while not events:  # the run is pushed
                _, events = await wire.hear()
            wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
            now = client.clock.now()
            said = 0
            async with asyncio.timeout(LONG):
                while any(one.peer.endswith(_port(wire)) for one in server._connections):
                    batch = range(said, said + 100)
                    await asyncio.gather(
                        *(
                            client.store.do(SendSignal("run", f"u{n}", "go", bytes(1000), now))
                            for n in batch
                        )
                    )
                    said += 100
            assert said <= 10_000
        assert "it does not read, and" in caplog.text
        assert (await client.start("run")).status == 2
        await client.store.close()


async def test_a_number_that_waits_already_is_refused_and_leaves_nothing_behind(
    server: Server, other: Client
) -> None:
    async with let_in(server) as wire:
        for _ in range(3):
            wire.say([[5, WaitEnded("well")]])
        refused: list[Any] = []
        while len(refused) < 2:
            refused += (await wire.hear())[0]
        assert [one.kind for one in refused] == ["RequestRefused"] * 2
        wire.say([[0, WaitEnded("well")], [6, Ping()]])
        assert await wire.answered() == [6]
    with contextlib.suppress(ConnectionError):
        await other.store.info("well")
    assert not any(one.watchers for one in server._connections)


async def test_a_session_number_means_one_worker(server: Server, other: Client) -> None:
    hello = Hello("worker", ["default"], [WORKFLOW])
    async with let_in(server) as wire:
        for number, key in ((1, "a"), (2, "b"), (3, "a")):
            wire.say([[number, OpenSession(1, key, "host", 1, hello, {}, {})]])
            (answer,) = (await wire.hear())[0]
            assert getattr(answer, "kind", None) == ("RequestRefused" if number == 2 else None)
    assert len(await other.store.workers()) == 2


async def test_an_answer_that_cannot_be_sent_closes_one_connection(
    server: Server, other: Client, caplog: pytest.LogCaptureFixture
) -> None:
    async with let_in(server) as wire:
        (line,) = [one for one in server._connections if one.peer.endswith(_port(wire))]
        line.answer(1, 0, object())
        line.answer(2, 0, None)
        assert await wire.rest() == []
    assert "cannot be told" in caplog.text
    assert (await other.store.info("well")) is not None


def large(number: int, size: int) -> bytes:
    """A frame with a signal of so many bytes to the run of the client that behaves."""
    return framed(encode([[number, SendSignal("well", f"large-{number}", "go", bytes(size), 0.0)]]))


@pytest.mark.parametrize("how", ["whole", "cut"])
async def test_large_frames_wait_for_one_another_and_hold_up_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    size = 2_000_000
    monkeypatch.setattr("stepwell_queue.tcp.server.server._ROOM", size * 3 // 2)
    async with serving(tmp_path / "runs.db") as server:
        client = await client_of(url_of(server), tmp_path / "runs.db")
        await client.start("well")
        async with let_in(server) as first, let_in(server) as second:
            frame = large(1, size)
            first.writer.write(frame[:-1])
            (line,) = [one for one in server._connections if one.peer.endswith(_port(first))]
            async with asyncio.timeout(LONG):
                while not line._frames.announced:
                    await client.store.info("well")
            second.writer.write(large(2, size))
            waiting = asyncio.ensure_future(second.answered())
            for _ in range(10):
                await client.store.info("well")
            assert not waiting.done()
            if how == "whole":
                first.writer.write(frame[-1:])
                assert await first.answered() == [1]
            else:
                first.writer.transport.abort()
            assert await waiting == [2]
        await client.store.close()
        assert server._room == size * 3 // 2


async def test_a_request_that_fails_for_no_known_reason_is_answered_and_nothing_else_happens(
    server: Server,
    other: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*arguments: object) -> None:
        raise LookupError("a mistake of ours")

    monkeypatch.setitem(requests.HANDLERS, Ping, broken)
    async with let_in(server) as wire:
        wire.say([[1, Ping()], [2, GetInfo("nobody")]])
        answers = (await wire.hear())[0]
        assert (answers[0].number, answers[0].args) == (1, ["a mistake of ours"])
        if len(answers) == 1:
            answers += (await wire.hear())[0]
        assert answers[1] == 2
    assert "Ping of 127.0.0.1" in caplog.text
    assert await other.store.info("well") is not None

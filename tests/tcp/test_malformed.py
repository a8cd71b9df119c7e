"""Requests that the server cannot read: they alone are refused, and are not said again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stepwell import MalformedRequest, RunStuck, Stepwell, task, workflow
from stepwell_queue import Append, CancelRun, Finish, SendSignal, Status
from stepwell_queue.tcp import protocol
from tests.serving import serving, url_of
from tests.tcp.kit import LONG, Net, let_in, network

pytestmark = pytest.mark.anyio


@pytest.fixture
async def net(tmp_path: Path) -> AsyncIterator[Net]:
    async with network(tmp_path / "runs.db") as net:
        yield net


UNREADABLE: list[tuple[Any, str]] = [
    ([9999], "tag 9999"),
    ([], "a request"),
    (None, "a request"),
    ([35, 5], "GetInfo"),
    ([10, 1, 1, 3, b"", 0.0], "Finish"),
    ([10, 1, 1, 10, b"", float("nan")], "Finish"),
    ([9, 1, 1, float("nan"), "time"], "Park"),
]


@pytest.mark.parametrize(("said", "named"), UNREADABLE)
async def test_what_stands_beside_it_is_answered(tmp_path: Path, said: Any, named: str) -> None:
    async with serving(tmp_path / "runs.db") as server, let_in(server) as wire:
        wire.say([[1, protocol.Ping()], [2, said], [3, protocol.Ping()]])
        answers, events = await wire.hear()
    one, refused, three = answers
    assert (one.number, refused.number, three.number, events) == (1, 2, 3, [])
    error = protocol.rebuilt(refused)
    assert isinstance(error, MalformedRequest)
    assert named in str(error)


async def test_a_note_that_nobody_can_be_told_about_closes_the_connection_and_nothing_is_done(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path / "runs.db") as server, let_in(server) as wire:
        wire.say([[1, SendSignal("nobody", "uid", "go", b"", 0.0)], [0, [45, 1, "many"]]])
        (only,) = await wire.rest()
    answers, (closing,) = protocol.decode_answers(only)
    assert answers == []
    assert isinstance(closing, protocol.Closing)
    assert "not understood" in closing.reason


def wrong(verb: Any, **fields: Any) -> Any:
    """Return a verb that no type checker would let pass."""
    values = {name: getattr(verb, name) for name in verb.__struct_fields__}
    return type(verb)(**{**values, **fields})


async def test_it_fails_alone_and_its_neighbours_happen_once_on_the_same_connection(
    net: Net,
) -> None:
    client, now = net.client, net.client.clock.now()
    run = await client.claimed(await client.session(), "run")
    await client.start("other")
    connections = len(net.proxy.pairs)
    waiting = asyncio.ensure_future(client.store.wait_ended("other"))
    signal = SendSignal("run", "uid", "go", b"", now)
    async with asyncio.timeout(LONG):
        first, refused, lost, kept, second = await asyncio.gather(
            client.store.do(signal),
            client.store.do(wrong(signal, uid="other", name=7)),
            client.store.do(wrong(Append(run.run, run.fence), absorbed=["no number"])),
            client.store.do(Append(run.run, run.fence, [client.record(0)])),
            client.store.do(wrong(signal, uid="second")),
            return_exceptions=True,
        )
        assert (first, kept, second) == (None, None, None)
        assert isinstance(refused, MalformedRequest)
        assert "SendSignal could not be read by the server" in str(refused)
        assert isinstance(lost, MalformedRequest)
        assert await client.store.do(CancelRun("other", "c", b"", now)) == Status.CANCELLED
        assert (await waiting).status == Status.CANCELLED
    history = await client.store.history("run")
    assert history is not None
    assert [row.uid for row in history.inbox] == ["uid", "second"]
    assert len(history.journal) == 1
    assert len(net.proxy.pairs) == connections
    await client.store.do(Finish(run.run, run.fence, Status.COMPLETED, b"", now))


async def test_what_cannot_even_be_written_fails_alone(net: Net) -> None:
    client, deep = net.client, list[Any]()
    for _ in range(100_000):
        deep = [deep]
    await client.start("run")
    signal = SendSignal("run", "uid", "go", b"", client.clock.now())
    async with asyncio.timeout(LONG):
        refused, first = await asyncio.gather(
            client.store.do(wrong(signal, name=deep)),
            client.store.do(signal),
            return_exceptions=True,
        )
    assert isinstance(refused, RecursionError)
    assert "SendSignal could not be sent" in str(refused.__notes__)
    assert first is None


@task
async def one() -> int:
    return 1


@workflow
async def two() -> int:
    return 2


@pytest.mark.parametrize("call", [one, two], ids=["task", "workflow"])
async def test_a_run_whose_end_is_refused_is_stuck_with_the_reason_and_can_be_resumed(
    tmp_path: Path, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(run: int, fence: int, status: int, *rest: Any, **more: Any) -> Finish:
        finish: Finish = wrong(Finish(run, fence, Status.COMPLETED, b"", 0.0), value="no bytes")
        return finish

    async with (
        serving(tmp_path / "runs.db") as server,
        Stepwell(url_of(server), include=[__name__]) as app,
        app.worker(),
    ):
        with monkeypatch.context() as patched:
            for module in ("job", "activation._activation"):
                patched.setattr(f"stepwell_runtime.{module}.Finish", unreadable)
            run = await (app.enqueue(one()) if call is one else app.start(two()))
            with pytest.raises(RunStuck, match="Finish could not be read by the server"):
                await run.result(timeout=LONG)
        await run.resume()
        assert await run.result(timeout=LONG) == (1 if call is one else 2)

"""Runs as files: exported from one store, looked at and resumed in another."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    RequestRefused,
    RunNotFound,
    Signal,
    Stepwell,
    compensate,
    parallel,
    sleep,
    start,
    step,
    task,
    wait_for_signal,
    workflow,
)
from tests.behaviour.stage import LONG, stage

pytestmark = pytest.mark.anyio
go = Signal("go", int)


@dataclass
class Order:
    id: str
    amounts: list[int]


class Declined(Exception):
    pass


@step
async def charge(order: Order) -> Order:
    stage.note("charge")
    return order


@step(queue="depot")
async def pack(order: Order) -> str:
    stage.note("pack")
    return order.id


@task
async def mail(to: str) -> str:
    stage.note("mail")
    return f"mailed {to}"


@workflow
async def sell(order: Order) -> list[Any]:
    paid = await charge(order)
    compensate(mail("undo"))
    mailed, _ = await parallel(mail(order.id), sleep(0.001))
    child = await start(approve(paid), id="approval")
    value = await wait_for_signal(go, timeout=3600.0)
    return [paid, mailed, value, await child.result()]


@workflow
async def approve(order: Order) -> int:
    return len(order.amounts)


@workflow
async def packs(order: Order) -> str:
    return await pack(order)


@workflow
async def declines(order: Order) -> None:
    compensate(mail("undo"))
    await charge(order)
    raise Declined(order.id)


ORDER = Order("o-1", [1, 2])


async def exported(app: Stepwell, *ids: str, children: bool = True) -> list[bytes]:
    return [line async for line in app.export_runs(*ids, children=children)]


async def waiting_sale(app: Stepwell) -> list[bytes]:
    async with app.worker() as worker:
        await app.start(sell(ORDER), id="sale")
        await worker.drain()
        assert await app.get("sale").status() == "parked"
    return await exported(app, "sale")


@pytest.fixture
def other(tmp_path: Path) -> Stepwell:
    return Stepwell(tmp_path / "other.db", include=[__name__], durability="process")


async def test_a_live_run_is_copied_with_its_tree_and_goes_on_only_when_it_is_resumed(
    app: Stepwell, other: Stepwell
) -> None:
    lines = await waiting_sale(app)
    stage.done.clear()
    async with other, other.worker() as worker:
        assert await other.import_runs(lines, actor="ann") == ["sale", "sale/1.0.0", "approval"]
        await other.signal("sale", go, 7)
        await worker.drain()
        assert await other.get("sale").status() == "paused"
        assert [one.action for one in (await other.history("sale")).audit] == ["import"]
        assert stage.done == []
        await other.resume("sale", reason="have a look")
        assert await other.get("sale", sell).result(timeout=LONG) == [ORDER, "mailed o-1", 7, 2]
        assert stage.done == []
        assert await other.doctor() == []


async def test_ended_runs_are_ended_copies_with_their_history(
    app: Stepwell, other: Stepwell, tmp_path: Path
) -> None:
    file = tmp_path / "runs.jsonl"
    async with app.worker() as worker:
        await app.start(declines(ORDER), id="declined")
        await worker.drain()
    file.write_bytes(b"".join(await exported(app, "declined")))
    async with other, other.worker() as worker:
        await other.import_runs(file)
        await worker.drain()
        there, here = await app.history("declined"), await other.history("declined")
        assert [(e.path, e.kind, e.value) for e in here.events] == [
            (e.path, e.kind, e.value) for e in there.events
        ]
        assert (here.run.status, here.run.rollback) == ("failed", "complete")
        assert here.run.ended_at == there.run.ended_at
        with pytest.raises(Declined):
            await other.get("declined").result(timeout=LONG)
        # and what was exported of a copy is what was exported first
        again = await exported(other, "declined")
        assert [without_audit(line) for line in again[1:] if b'"audit"' not in line[:16]] == [
            without_audit(line) for line in file.read_bytes().splitlines()[1:]
        ]
        assert await other.doctor() == []
    assert stage.done == ["charge", "mail"]


def without_audit(line: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(line)
    return {key: value for key, value in found.items() if key != "audit"}


async def test_a_step_on_a_queue_of_its_own_is_begun_anew_by_the_copy(
    app: Stepwell, other: Stepwell
) -> None:
    async with app.worker() as worker:
        await app.start(packs(ORDER), id="packing")
        await worker.drain()
    lines = await exported(app, "packing")
    async with other, other.worker(queues=["default", "depot"]):
        assert await other.import_runs(lines) == ["packing"]
        await other.resume("packing")
        assert await other.get("packing").result(timeout=LONG) == "o-1"
    assert stage.done == ["pack"]


async def test_what_is_there_already_or_would_wait_for_ever_is_refused_as_a_whole(
    app: Stepwell, other: Stepwell
) -> None:
    async with app.worker(queues=["default"]) as worker:
        await app.start(waits_for_child(), id="parent")
        await worker.drain()
    async with other:
        with pytest.raises(RequestRefused, match="waits for its child 'parent/0'"):
            await other.import_runs(await exported(app, "parent", children=False))
        assert await other.runs() == []
        lines = await exported(app, "parent")
        await other.import_runs(lines)
        with pytest.raises(RequestRefused, match="run id 'parent' is taken"):
            await other.import_runs(lines)
        assert len(await other.runs()) == 2
    with pytest.raises(RunNotFound):
        await exported(app, "nobody")


@workflow
async def waits_for_child() -> int:
    return await waits_for_go()


@workflow
async def waits_for_go() -> int:
    value: int = await wait_for_signal(go)
    return value


Damage = Callable[[list[bytes]], Sequence[bytes]]


def edited(number: int, **changes: Any) -> Damage:
    def edit(lines: list[bytes]) -> list[bytes]:
        lines[number] = json.dumps({**json.loads(lines[number]), **changes}).encode()
        return lines

    return edit


DAMAGES: list[tuple[Damage, str]] = [
    (lambda lines: lines[:-1], "cut short"),
    (lambda lines: [], "cut short"),
    (lambda lines: lines[1:], "line 1: the heading .* is missing: is it a file that"),
    (lambda lines: [*lines, lines[1]], "something follows"),
    (lambda lines: [lines[0], *lines], "line 2: a second heading"),
    (lambda lines: lines[:2] + lines[3:], "not whole"),
    (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], "record 1 .* 0 is to come"),
    (lambda lines: lines[:1] + lines[-1:], "says that it has 3 runs: 0 came"),
    (lambda lines: [b"PK\x03\x04binary"], "line 1: .*malformed.*is it a file that"),
    (lambda lines: [lines[0], b"[" * 100_000], "line 2"),
    (edited(0, version=2), "version 2 of the format, written by Stepwell"),
    (edited(1, status="busy"), "'busy' is no Status"),
    (edited(1, id="x" * 2000), r"line 2: .*\$\.id"),
    (edited(1, nonce=2**70), "line 2"),
    (edited(1, args="bm90aGluZw=="), "line "),
    (edited(1, value="@@@"), "line 2: .*base64"),
    (edited(2, kind="telepathy"), "'telepathy' is no RecordKind"),
    (edited(2, kind="step_failed"), "not a stored exception"),
    (edited(2, at="noon"), "line 3"),
]


@pytest.mark.parametrize(("damage", "why"), DAMAGES)
async def test_a_damaged_file_is_refused_with_its_line_and_changes_nothing(
    make_app: Callable[..., Stepwell], damage: Damage, why: str, sale: list[bytes]
) -> None:
    async with make_app() as app:
        with pytest.raises(RequestRefused, match=why):
            await app.import_runs(damage(list(sale)))
        assert await app.runs() == []


@pytest.fixture(scope="module")
def sale(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    import asyncio

    async def make() -> list[bytes]:
        path = tmp_path_factory.mktemp("sale") / "runs.db"
        async with Stepwell(path, include=[__name__], durability="process") as app:
            return await waiting_sale(app)

    return asyncio.run(make())


async def test_noise_is_refused_or_can_be_looked_at_and_imports_no_class(
    other: Stepwell, sale: list[bytes], scale: Callable[[int, int], int]
) -> None:
    chance = random.Random(7)
    whole = b"".join(sale)
    async with other:
        for _ in range(scale(150, 5000)):
            noisy = bytearray(whole)
            for _ in range(chance.randint(1, 4)):
                at = chance.randrange(len(noisy))
                if chance.random() < 0.5:
                    noisy[at] = chance.randrange(256)
                else:
                    del noisy[at : at + chance.randint(1, 30)]
            before = [run.id for run in await other.runs()]
            try:
                taken = await other.import_runs(bytes(noisy).splitlines())
            except RequestRefused:
                assert [run.id for run in await other.runs()] == before
                continue
            for id in taken:
                await other.history(id)
                assert await exported(other, id)
            assert {run.status for run in await other.runs()} <= {"paused", "completed"}


async def test_nothing_is_decoded_by_an_import(
    other: Stepwell, sale: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(f"{__name__}.Order")
    moved = [line.replace(b"sale", b"sold") for line in sale]
    async with other:
        await other.import_runs(moved)
        assert (await other.info("sold")).status == "paused"

"""New code is tried on the journals of a store, or of a file, before it is deployed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    Replayed,
    RequestRefused,
    Signal,
    Stepwell,
    Workflow,
    compensate,
    parallel,
    random,
    sleep,
    step,
    wait_for_signal,
    workflow,
)
from tests.behaviour.stage import LONG, stage

pytestmark = pytest.mark.anyio
go = Signal("go", int)
Code = Callable[[], Coroutine[Any, Any, Any]]


@dataclass
class Paid:
    amount: int


@step
async def pay() -> Paid:
    stage.note("pay")
    return Paid(3)


@step
async def ship(paid: Paid) -> str:
    stage.note("ship")
    return "shipped"


@step
async def refund(paid: Paid) -> None:
    stage.note("refund")


@step
async def declined() -> None:
    raise ValueError("declined")


def deploy(code: Code, version: int = 1) -> Workflow[[], Any]:
    """Make `code` the workflow of this name, as a new release does."""

    @workflow(name="evolving", version=version)
    async def evolving() -> Any:
        return await code()

    return evolving


async def original() -> Any:
    paid = await pay()
    compensate(refund(paid))
    await ship(paid)
    await parallel(sleep(3600.0), wait_for_signal(go))
    return paid


async def goes_on_differently() -> Any:
    paid = await pay()
    compensate(refund(paid))
    await ship(paid)
    await parallel(sleep(3600.0), wait_for_signal(go))
    await refund(paid)
    return "later code"


async def swapped() -> Any:
    await ship(Paid(3))
    return await pay()


async def fewer() -> Any:
    await pay()
    await wait_for_signal(go)


async def without_the_sleep() -> Any:
    paid = await pay()
    await ship(paid)
    await parallel(wait_for_signal(go), pay())


async def raises_in_between() -> Any:
    paid = await pay()
    raise KeyError(paid.amount)


async def uses_asyncio() -> Any:
    await asyncio.sleep(0)


async def waiting(app: Stepwell, code: Code = original) -> None:
    call = deploy(code)()
    async with app.worker() as worker:
        await app.start(call, id="run")
        await worker.drain()
    stage.done.clear()


async def tried(app: Stepwell, **which: Any) -> list[Replayed]:
    return [one async for one in app.replay(**which)]


@pytest.mark.parametrize("code", [original, goes_on_differently])
async def test_code_that_fits_is_fine_and_no_step_is_executed(app: Stepwell, code: Code) -> None:
    await waiting(app)
    before = await app.history("run")
    deploy(code)
    [one] = await tried(app)
    assert (one.id, one.name, one.version, one.status) == ("run", "evolving", 1, "parked")
    assert (one.verdict, one.ok, one.message, one.records) == ("ok", True, "", 2)
    assert await app.history("run") == before
    assert stage.done == []


@pytest.mark.parametrize(
    ("code", "verdict", "path", "message"),
    [
        (swapped, "diverged", "0", "step ok 'pay', the code asks for step 'ship'"),
        (fewer, "diverged", "1", "step ok 'ship', the code asks for wait 'go'"),
        (without_the_sleep, "diverged", "2.0.0", "an open sleep 'sleep', .* wait 'go'"),
        (raises_in_between, "diverged", "1", "step ok 'ship', .* it has raised KeyError: 3"),
        (uses_asyncio, "not_durable", None, "workflow code"),
    ],
)
async def test_code_that_does_not_fit_is_found_with_the_place_and_both_sides(
    app: Stepwell, code: Code, verdict: str, path: str | None, message: str
) -> None:
    await waiting(app)
    deploy(code)
    [one] = await tried(app)
    assert (one.verdict, one.ok, one.path) == (verdict, False, path)
    assert re.search(message, one.message), one.message
    assert (await app.info("run")).status == "parked"
    assert stage.done == []


async def simple() -> Any:
    await pay()
    return await wait_for_signal(go)


async def simple_that_raises() -> Any:
    paid = await pay()
    raise KeyError(f"no {paid.amount}")


async def test_an_error_that_the_code_would_raise_where_the_run_waits_is_found(
    app: Stepwell,
) -> None:
    await waiting(app, simple)
    deploy(simple_that_raises)
    [one] = await tried(app)
    assert one.verdict == "raises"
    assert "raises KeyError: 'no 3' where the run waited" in one.message


async def test_results_that_cannot_be_decoded_and_missing_code_are_found(
    app: Stepwell, monkeypatch: pytest.MonkeyPatch
) -> None:
    await waiting(app)
    deploy(original, version=2)
    untyped: dict[str, Any] = {}
    with monkeypatch.context() as gone:
        gone.delattr(f"{__name__}.Paid")
        gone.setattr(pay.definition, "types", (untyped, Any))
        gone.setattr(pay.definition, "result_type", Any, raising=False)
        [one] = await tried(app)
        assert one.verdict == "cannot_decode"
        assert "Paid" in one.message
    async with Stepwell(app.settings.store, include=["tests.behaviour.stage"]) as other:
        [one] = await tried(other)
    assert one.verdict == "no_code"
    assert "no workflow 'evolving' of version 1" in one.message


async def test_runs_are_chosen_by_status_name_and_time_and_tasks_are_left_out(
    app: Stepwell,
) -> None:
    await waiting(app)
    async with app.worker() as worker:
        await app.start(quick(), id="quick")
        await worker.drain()
    before = datetime.now(UTC)
    assert [one.id for one in await tried(app)] == ["run"]
    assert [one.id for one in await tried(app, status="completed")] == ["quick"]
    assert [one.id for one in await tried(app, status=["completed", "parked"])] == ["quick", "run"]
    assert [one.id for one in await tried(app, name="quick")] == []
    assert await tried(app, created_after=before) == []
    with pytest.raises(ValueError, match="unheard"):
        await tried(app, status="unheard")


@workflow
async def quick() -> float:
    await pay()
    return random().random()


async def fails() -> Any:
    paid = await pay()
    compensate(refund(paid))
    await declined()


async def fails_otherwise() -> Any:
    paid = await pay()
    compensate(refund(paid))
    try:
        await declined()
    except ValueError:
        raise KeyError("otherwise") from None


async def returns() -> Any:
    return await pay()


async def returns_other() -> Any:
    paid = await pay()
    return paid.amount


async def goes_on() -> Any:
    await ship(await pay())


@pytest.mark.parametrize(
    ("code", "later", "message"),
    [
        (fails, fails_otherwise, "failure with ValueError, .* KeyError"),
        (returns, returns_other, "another result"),
        (returns, goes_on, "a run that completed, .* step 'ship' at path 1"),
    ],
)
async def test_an_ended_run_of_a_file_has_to_end_as_it_did(
    app: Stepwell, tmp_path: Path, code: Code, later: Code, message: str
) -> None:
    await waiting(app, code)
    file = tmp_path / "runs.jsonl"
    file.write_bytes(b"".join([line async for line in app.export_runs("run")]))
    assert [one.ok for one in app.replay_file(file)] == [True]
    deploy(later)
    [one] = app.replay_file(file)
    assert (one.verdict, one.path) == ("diverged", "the end")
    assert re.search(message, one.message), one.message
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(RequestRefused, match="line"):
        list(app.replay_file(file))


async def test_workers_go_on_while_their_runs_are_replayed(app: Stepwell) -> None:
    """A run that moves while it is read is never taken for one that diverged."""
    call = deploy(many_steps)
    async with app.worker(concurrency=20) as worker:
        runs = await app.start_many([call() for _ in range(20)])
        while found := await tried(app):
            assert [one.message for one in found] == [""] * len(found)
        await worker.drain()
        assert [await run.result(timeout=LONG) for run in runs] == [30] * 20


async def many_steps() -> Any:
    for number in range(30):
        await pay()
        if number % 10 == 0:
            await sleep(0.001)
    return 30

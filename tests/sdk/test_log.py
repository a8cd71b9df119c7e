"""The logger: bound to what runs, silent on replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from stepwell import Signal, Stepwell, get_logger, is_replaying, step, wait_for_signal, workflow

pytestmark = pytest.mark.anyio
log = get_logger(shop="north")
go = Signal("go", int)
replayed: list[bool] = []


@step
async def work() -> None:
    log.info("working", cost=3)


@workflow
async def flow() -> None:
    log.info("begun")
    replayed.append(is_replaying())
    await work()
    log.bind(stage=2).warning("waiting")
    await wait_for_signal(go)
    replayed.append(is_replaying())
    log.debug("ended")


def named(logs: list[Any], event: str) -> list[Any]:
    return [line for line in logs if line["event"] == event]


async def test_lines_carry_what_runs_and_are_not_repeated_on_replay(
    make_app: Callable[[], Stepwell],
) -> None:
    replayed.clear()
    with capture_logs() as logs:
        async with make_app() as app:
            run = await app.start(flow(), id="the-run")
            async with app.worker() as worker:
                await worker.drain()
            await run.signal(go, 1)
            async with app.worker():
                await run.result(timeout=20)
    assert replayed == [False, True, False]
    assert not is_replaying()
    (begun,) = named(logs, "begun")
    assert begun == {
        "event": "begun",
        "log_level": "info",
        "run": "the-run",
        "workflow": "flow",
        "attempt": 1,
        "shop": "north",
    }
    (working,) = named(logs, "working")
    assert (working["run"], working["step"], working["path"]) == ("the-run", "work", "0")
    assert (working["attempt"], working["cost"]) == (1, 3)
    (waiting,) = named(logs, "waiting")
    assert waiting["stage"] == 2
    assert [line["log_level"] for line in named(logs, "ended")] == ["debug"]


@workflow
async def tidies() -> None:
    try:
        await wait_for_signal(go)
    finally:
        log.info("tidying")
        await work()


async def test_a_discarded_workflow_neither_logs_nor_executes_what_it_tidies(app: Stepwell) -> None:
    with capture_logs() as logs:
        async with app:
            run = await app.start(tidies())
            async with app.worker() as worker:
                await worker.drain()
            assert named(logs, "tidying") == named(logs, "working") == []
            await run.signal(go, 1)
            async with app.worker():
                await run.result(timeout=20)
    assert len(named(logs, "tidying")) == len(named(logs, "working")) == 1


def test_it_logs_outside_of_runs_too() -> None:
    with capture_logs() as logs:
        log.error("plain")
        log.critical("worse")
        try:
            raise LookupError
        except LookupError:
            log.exception("caught")
    assert [line["log_level"] for line in logs] == ["error", "critical", "error"]
    assert logs[0] == {"event": "plain", "log_level": "error", "shop": "north"}
    assert logs[2]["exc_info"] is True

"""`stepwell schedules`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stepwell import Stepwell
from tests.cli import shop
from tests.cli.conftest import Cli
from tests.cli.test_reference import keys


async def make(address: str) -> None:
    async with Stepwell(address, include=[shop.__name__]) as app:
        call = shop.shop_note("hello")
        made = await app.schedule("nightly", call, cron="30 2 * * *", tz="Europe/Rome")
        await app.schedule("hourly", call, every=3600, overlap="queue", missed="skip", jitter=5)
        await made.run_now()


@pytest.fixture
def scheduled(new_address: str) -> str:
    asyncio.run(make(new_address))
    return new_address


def test_schedules_are_listed(cli: Cli, scheduled: str) -> None:
    shown = cli("schedules", "list", "--store", scheduled).stdout
    assert "nightly   shop_note   on      cron '30 2 * * *' in Europe/Rome" in shown
    hourly, nightly = cli("schedules", "list", "--store", scheduled, "--json").json
    assert (hourly["id"], hourly["overlap"], hourly["missed"]) == ("hourly", "queue", "skip")
    assert nightly["paused"] is False
    for one in (hourly, nightly):
        assert set(one) == keys("A schedule")


def test_a_store_without_schedules_says_so(cli: Cli, store: Path) -> None:
    assert cli("schedules", "list", "--store", store).stdout == "no schedules\n"
    assert cli("schedules", "list", "--store", store, "--json").json == []


def test_a_schedule_is_shown_with_its_arguments_and_ticks(cli: Cli, scheduled: str) -> None:
    shown = cli("schedules", "show", "nightly", "--store", scheduled).stdout
    assert "when        cron '30 2 * * *' in Europe/Rome\n" in shown
    assert 'arguments   "hello"\n' in shown
    assert "asked for" in shown
    found = cli("schedules", "show", "nightly", "--store", scheduled, "--json").json
    assert set(found) == keys("A schedule") | {"arguments", "ticks"}
    assert found["arguments"] == {"positional": ["hello"], "named": {}}
    (tick,) = found["ticks"]
    assert set(tick) == keys("A tick")
    assert (tick["manual"], tick["status"]) == (True, "ready")


def test_a_schedule_is_paused_and_resumed(cli: Cli, scheduled: str) -> None:
    assert cli("schedules", "pause", "nightly", "--store", scheduled).stdout == "nightly: paused\n"
    assert "paused" in cli("schedules", "list", "--store", scheduled).stdout
    done = cli("schedules", "resume", "nightly", "--store", scheduled, "--json").json
    assert done == {"id": "nightly", "schedule": "resumed"}
    assert set(done) == keys("A change of a schedule")
    shown = cli("schedules", "show", "nightly", "--store", scheduled, "--json").json
    assert shown["paused"] is False


def test_a_run_is_started_now(cli: Cli, scheduled: str) -> None:
    run = cli("schedules", "run", "hourly", "--store", scheduled).stdout.strip()
    assert cli("show", run, "--store", scheduled, "--json").json["name"] == "shop_note"
    again = cli("schedules", "run", "hourly", "--store", scheduled, "--json").json
    assert again["id"] == "hourly"
    assert again["run_id"] != run


def test_a_schedule_is_deleted(cli: Cli, scheduled: str) -> None:
    said = cli("schedules", "delete", "nightly", "--store", scheduled).stdout
    assert said == "nightly: deleted\n"
    (left,) = cli("schedules", "list", "--store", scheduled, "--json").json
    assert left["id"] == "hourly"


@pytest.mark.parametrize("verb", ["show", "pause", "resume", "run", "delete"])
def test_a_schedule_that_is_not_there_is_refused(cli: Cli, store: Path, verb: str) -> None:
    answer = cli("schedules", verb, "missing", "--store", store)
    assert answer.code == 1
    assert answer.stderr == (
        "stepwell: no schedule has the id 'missing': `stepwell schedules list` shows all\n"
    )

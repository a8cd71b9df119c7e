"""`queues` and `queue`: looking at queues and steering them."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell import BlockingStepwell, task
from tests.cli.conftest import Cli

begun, let_end = threading.Event(), threading.Event()


@task(queue="held")
def hold() -> None:
    begun.set()
    let_end.wait(20)


# The store has one task that is ready, one that is scheduled, and runs in all other states.


def queue(cli: Cli, address: str, name: str = "default") -> dict[str, Any]:
    found, shown = read_twice(cli, address, name)
    if found["throughput"] != shown["throughput"]:  # an end has left a window between the two
        found, shown = read_twice(cli, address, name)
    assert found == shown | {"oldest_age": found["oldest_age"]}
    return found


def read_twice(cli: Cli, address: str, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    [found] = [
        one for one in cli("queues", "--store", address, "--json").json if one["queue"] == name
    ]
    return found, cli("queue", "show", name, "--store", address, "--json").json


def test_queues_are_listed_with_what_is_in_them(cli: Cli, address: str) -> None:
    names = [one["queue"] for one in cli("queues", "--store", address, "--json").json]
    assert names == ["default", "later"]
    found = queue(cli, address)
    assert {key: count for key, count in found["counts"].items() if count} == {
        "scheduled": 1, "ready": 1, "parked": 5, "held": 1, "stuck": 1, "completed": 1,
        "failed": 2, "cancelled": 1,
    }  # fmt: skip
    assert (found["ready"], found["running"], found["dead_letters"]) == (1, 0, 0)
    assert found["paused"] is False
    last = {"window": 3600.0, "ended": 4 / 60, "failed": 2 / 60}
    assert found["throughput"][-1] == last


def test_the_table_says_how_a_queue_stands(cli: Cli, address: str) -> None:
    cli("queue", "pause", "later", "--store", address, "--reason", "it leaks")
    cli("queue", "set", "later", "--rate", "100/1m/10", "--limit", "5", "--store", address)
    lines = {
        line.split()[0]: line for line in cli("queues", "--store", address).stdout.splitlines()
    }
    assert "open" in lines["default"]
    assert "paused" in lines["later"]
    assert "limit 5; rate 100/60s/10" in lines["later"]
    shown = cli("queue", "show", "later", "--store", address).stdout
    assert "it leaks" in shown
    assert "1 ready" in shown


def test_a_store_without_queues_says_so(cli: Cli, new_address: str) -> None:
    cli("start", "tests.cli.shop:shop_note", "--json", '["x"]', "--store", new_address)
    assert "default" in cli("queues", "--store", new_address).stdout


def test_a_queue_is_paused_and_resumed(cli: Cli, address: str) -> None:
    asked = cli("queue", "pause", "default", "--store", address, "--reason", "why", "--json")
    assert asked.json == {"queue": "default", "state": "paused"}
    found = queue(cli, address)
    assert (found["paused"], found["paused_until"], found["pause_reason"]) == (True, None, "why")
    assert cli("queue", "resume", "default", "--store", address).stdout == "default: open\n"
    assert queue(cli, address)["paused"] is False


def test_a_pause_may_have_an_end(cli: Cli, address: str) -> None:
    cli("queue", "pause", "default", "--store", address, "--until", "2100-01-31T09:00+01:00")
    assert queue(cli, address)["paused_until"] == "2100-01-31T08:00:00.000000+00:00"
    before = datetime.now(UTC)
    cli("queue", "pause", "default", "--store", address, "--for", "2h")
    until = datetime.fromisoformat(str(queue(cli, address)["paused_until"]))
    assert timedelta(hours=2) <= until - before < timedelta(hours=2, minutes=5)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--until", "tomorrow"), "'tomorrow' is no moment"),
        (("--for", "soon"), "write 90, 90s, 15m"),
        (("--for", "1h", "--until", "2100-01-01T00:00"), "give one of them"),
    ],
)
def test_a_pause_refuses_an_end_that_is_none(
    cli: Cli, address: str, options: tuple[str, ...], says: str
) -> None:
    answer = cli("queue", "pause", "default", "--store", address, *options)
    assert answer.code == 2
    assert says in answer.stderr
    assert queue(cli, address)["paused"] is False


@pytest.mark.parametrize("options", [("--until", "2020-01-01T00:00"), ("--for", "0")], ids=str)
def test_a_pause_that_would_be_over_already_is_refused(
    cli: Cli, address: str, options: tuple[str, ...]
) -> None:
    answer = cli("queue", "pause", "default", "--store", address, *options)
    assert answer.code == 1
    assert "has passed, so queue 'default' would not be paused" in answer.stderr
    assert queue(cli, address)["paused"] is False


def test_draining_an_idle_queue_pauses_it(cli: Cli, address: str) -> None:
    answer = cli("queue", "drain", "default", "--store", address, "--timeout", "10", "--json")
    assert answer.json == {"queue": "default", "state": "paused"}
    assert queue(cli, address)["paused"] is True


def test_draining_waits_for_what_is_running_and_says_if_it_gives_up(cli: Cli, address: str) -> None:
    begun.clear()
    let_end.clear()
    with BlockingStepwell(address, include=[__name__]) as app, app.worker(queues=["held"]):
        run = app.enqueue(hold())
        assert begun.wait(20)
        answer = cli("queue", "drain", "held", "--store", address, "--timeout", "0.1")
        assert answer.code == 1
        assert "queue 'held' is paused, but still has runs after 0.1 s" in answer.stderr
        assert queue(cli, address, "held")["running"] == 1
        let_end.set()
        drained = cli("queue", "drain", "held", "--store", address, "--timeout", "20")
        assert drained.stdout == "held: paused\n"
        assert queue(cli, address, "held")["running"] == 0
        run.result(timeout=20)


def test_purging_asks_first(cli: Cli, address: str) -> None:
    refused = cli("queue", "purge", "default", "--store", address)  # nobody answers
    assert refused.code == 1
    assert "Cancel all runs of 'default' that no worker has begun?" in refused.stderr
    assert cli("show", "ready", "--store", address, "--json").json["status"] == "ready"


def test_purging_cancels_what_nobody_has_begun(cli: Cli, address: str) -> None:
    answer = cli("queue", "purge", "default", "--yes", "--reason", "a mistake", "--store", address)
    assert answer.stdout == "cancelled 2 runs\n"
    for id in ("ready", "scheduled"):
        run = cli("show", id, "--store", address, "--json").json
        assert (run["status"], run["error"]) == ("cancelled", "a mistake")
    assert cli("show", "parked", "--store", address, "--json").json["status"] == "parked"
    again = cli("queue", "purge", "default", "--yes", "--store", address, "--json")
    assert again.json == {"queue": "default", "cancelled": 0}


def test_settings_are_changed_one_by_one(cli: Cli, address: str) -> None:
    def change(*options: str) -> dict[str, object]:
        answer = cli("queue", "set", "default", *options, "--store", address)
        assert answer.code == 0, answer.stderr
        found = queue(cli, address)["settings"]
        return {key: value for key, value in found.items() if value is not None}

    assert change("--limit", "5", "--key-rate", "10/1m") == {
        "limit": 5,
        "key_rate": {"count": 10, "per": 60.0, "burst": 10},
    }
    assert change("--key-rate", "none", "--ageing", "1m", "--max-length", "9") == {
        "limit": 5,
        "ageing": 60.0,
        "max_length": 9,
    }
    assert change("--limit", "none", "--ageing", "none", "--max-length", "none") == {}
    assert change("--keep-age", "30d", "--keep-count", "7") == {
        "keep_age": 2592000.0,
        "keep_count": 7,
    }
    assert change("--keep-count", "8", "--key-limit", "1") == {"keep_count": 8, "key_limit": 1}
    assert change("--keep-age", "none") == {"key_limit": 1}


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ((), 2, "give at least one setting"),
        (("--limit", "many"), 2, "'many' is no whole number: write one, or none"),
        (("--limit", "0"), 1, "limit= must be from 1"),
        (("--rate", "100"), 2, "'100' is no rate: write 100/1m"),
        (("--rate", "0/1m"), 2, "count= must be from 1"),
        (("--rate", "5/0"), 2, "over 0 seconds"),
        (("--ageing", "0"), 1, "over 0 seconds"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    cli: Cli, address: str, options: tuple[str, ...], code: int, says: str
) -> None:
    before = queue(cli, address)["settings"]
    answer = cli("queue", "set", "default", *options, "--store", address)
    assert answer.code == code
    assert says in answer.stderr
    assert queue(cli, address)["settings"] == before


@pytest.mark.parametrize("command", ["show", "pause", "resume", "drain", "set"])
def test_a_name_that_cannot_be_one_is_refused(cli: Cli, address: str, command: str) -> None:
    answer = cli("queue", command, "", "--store", address)
    assert answer.code == 2
    assert "1 to 255 printable characters" in answer.stderr


def test_runs_are_found_by_their_times(cli: Cli, address: str) -> None:
    def ids(*filters: str) -> list[str]:
        return [run["id"] for run in cli("runs", "--store", address, "--json", *filters).json]

    def created(id: str) -> datetime:
        found: str = cli("show", id, "--store", address, "--json").json["created_at"]
        return datetime.fromisoformat(found)

    between = created("ready") + (created("scheduled") - created("ready")) / 2
    assert ids("--created-after", str(between)) == ["scheduled"]
    assert ids("--created-before", str(between))[0] == "ready"
    tomorrow = str(datetime.now() + timedelta(days=1))  # noqa: DTZ005 - it is read as local time
    ended = ids("--ended-after", "2000-01-01", "--ended-before", tomorrow)
    assert set(ended) == {"completed", "failed", "lost", "cancelled"}
    assert ids("--ended-after", tomorrow) == []
    assert ids("--key", "nobody") == []
    assert cli("runs", "--store", address, "--ended-after", "soon").code == 2


def test_only_one_queue_may_be_pruned(cli: Cli, address: str) -> None:
    options = ("--older-than", "0", "--store", address)
    assert cli("prune", "--queue", "later", *options).stdout == "deleted 0 runs\n"
    assert cli("prune", "--queue", "default", *options).stdout != "deleted 0 runs\n"

"""`dead-letters`: tasks that have failed are listed, shown, requeued and deleted."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from stepwell import GiveUp, Retry, Stepwell, current_job, task
from stepwell.cli import _reports
from tests.behaviour.stage import LONG, stage
from tests.cli.conftest import Cli
from tests.cli.test_reference import keys

FOREVER = "for ever?"


@task(retry=Retry(attempts=2, delay=0.0))
async def letters_deliver(to: str) -> None:
    raise LookupError(f"no {to}, attempt {current_job().attempt}")


@task
async def letters_stamp(to: str) -> None:
    raise GiveUp(f"no stamp for {to}")


@task
async def letters_fine() -> None:
    current_job().log("begun", sheets=3)
    current_job().log("over")
    current_job().report(0.75, "nearly")


@task
async def letters_talk() -> None:
    current_job().log("one")
    await stage.hold("talk")
    current_job().log("two")


async def fill(address: str) -> None:
    durability: Any = None if address.startswith("tcp:") else "process"
    app = Stepwell(address, include=[__name__], durability=durability)
    async with app, app.worker(queues=["default", "mail"], name="anna") as worker:
        for to in ("ann", "bob"):
            await app.enqueue(letters_deliver(to), id=to)
            await worker.drain()
        await app.enqueue(letters_stamp("cid"), id="cid", queue="mail")
        await worker.drain()
        await app.enqueue(letters_fine(), id="fine")
        await worker.drain()


@pytest.fixture
def letters(new_address: str) -> str:
    asyncio.run(fill(new_address))
    return new_address


def listed(cli: Cli, store: str, *options: str) -> list[str]:
    return [
        one["id"] for one in cli("dead-letters", "list", *options, "--store", store, "--json").json
    ]


def test_dead_letters_are_listed_those_that_failed_last_first(cli: Cli, letters: str) -> None:
    assert listed(cli, letters) == ["cid", "bob", "ann"]
    assert listed(cli, letters, "--queue", "mail") == ["cid"]
    assert listed(cli, letters, "--name", "letters_deliver", "--limit", "1") == ["bob"]
    assert listed(cli, letters, "--error", "LookupError", "--after", "bob") == ["ann"]
    found = cli("dead-letters", "list", "--store", letters, "--json").json
    assert all(set(one) == keys("A dead letter") for one in found)
    assert (found[1]["error_type"], found[1]["message"]) == ("LookupError", "no bob, attempt 2")
    answer = cli("dead-letters", "list", "--limit", "2", "--store", letters)
    assert re.search(
        r"^cid +letters_stamp +mail +\S+ \S+ +1 +GiveUp: no stamp", answer.stdout, re.MULTILINE
    )
    assert "--after bob" in answer.stderr


def test_no_dead_letters_are_said_to_be_none(cli: Cli, letters: str) -> None:
    answer = cli("dead-letters", "list", "--queue", "other", "--store", letters)
    assert answer.stdout == "no dead letters\n"


def test_one_is_shown_with_all_its_attempts_and_errors(cli: Cli, letters: str) -> None:
    run = cli("dead-letters", "show", "ann", "--store", letters, "--json").json
    attempts = run["failures"]
    assert all(set(one) == keys("A failed attempt") for one in attempts)
    assert [(one["number"], one["failure"]["message"]) for one in attempts] == [
        (1, "no ann, attempt 1"),
        (2, "no ann, attempt 2"),
    ]
    assert {(one["worker"], one["crashed"], one["path"]) for one in attempts} == {
        ("anna", False, "")
    }
    short = cli("dead-letters", "show", "ann", "--store", letters).stdout
    assert "Failed attempts" in short
    assert re.search(r"^1 .* anna +LookupError: no ann, attempt 1", short, re.MULTILINE)
    full = cli("dead-letters", "show", "ann", "--full", "--store", letters).stdout
    assert full.count("Traceback") == 2
    assert "in letters_deliver" in full


def test_what_is_no_dead_letter_is_not_shown_as_one(cli: Cli, letters: str) -> None:
    answer = cli("dead-letters", "show", "fine", "--store", letters)
    assert answer.code == 1
    assert "run 'fine' is no dead letter: it is a task that is completed" in answer.stderr
    assert cli("dead-letters", "show", "nobody", "--store", letters).code == 1


def test_one_is_requeued_by_its_id(cli: Cli, letters: str) -> None:
    answer = cli(
        "dead-letters", "requeue", "bob", "ann", "--reason", "moved", "--actor", "ann", "--store",
        letters,
    )  # fmt: skip
    assert answer.stdout == "requeued 2 tasks\n"
    assert listed(cli, letters) == ["cid"]
    run = cli("show", "bob", "--store", letters, "--json").json
    assert (run["status"], run["attempts"]) == ("ready", 0)
    (audit,) = run["audit"]
    assert (audit["action"], audit["actor"], audit["reason"]) == ("requeue", "ann", "moved")
    again = cli("dead-letters", "requeue", "bob", "--store", letters)
    assert again.code == 1
    assert "only a failed task can be requeued" in again.stderr


def test_many_are_requeued_once_that_is_confirmed(cli: Cli, letters: str) -> None:
    many = ("dead-letters", "requeue", "--error", "LookupError", "--store", letters)
    assert cli(*many, "--dry-run").stdout == "would requeue 2 tasks\n"
    assert cli(*many, "--limit", "1", "--dry-run", "--json").json == {"would_requeue": 1}
    refused = cli(*many)  # nobody says yes
    assert refused.code == 1
    assert "Requeue 2 tasks?" in refused.stderr
    assert listed(cli, letters) == ["cid", "bob", "ann"]
    assert cli(*many, "--yes", "--json").json == {"requeued": 2}
    assert listed(cli, letters) == ["cid"]


def test_they_are_deleted_once_that_is_confirmed(cli: Cli, letters: str) -> None:
    mail = ("dead-letters", "purge", "--queue", "mail", "--store", letters)
    assert cli(*mail, "--dry-run").stdout == "would delete 1 task\n"
    refused = cli(*mail)
    assert refused.code == 1
    assert f"Delete 1 task {FOREVER}" in refused.stderr
    assert cli(*mail, "--yes").stdout == "deleted 1 task\n"
    assert listed(cli, letters) == ["bob", "ann"]
    old = ("dead-letters", "purge", "--older-than", "1h", "--yes", "--store", letters)
    assert cli(*old).stdout == "deleted 0 tasks\n"
    everything = ("dead-letters", "purge", "--all", "--yes", "--json", "--store", letters)
    assert cli(*everything).json == {"deleted": 2}
    assert listed(cli, letters) == []
    assert cli("doctor", "--store", letters).code == 0


@pytest.mark.parametrize("command", ["requeue", "purge"])
def test_all_of_them_must_be_asked_for(cli: Cli, letters: str, command: str) -> None:
    answer = cli("dead-letters", command, "--yes", "--store", letters)
    assert answer.code == 2
    assert "--all" in answer.stderr
    assert len(listed(cli, letters)) == 3


def test_ids_and_choices_do_not_go_together(cli: Cli, letters: str) -> None:
    for option in (["--all"], ["--queue", "mail"], ["--dry-run"], ["--limit", "1"]):
        answer = cli("dead-letters", "requeue", "ann", *option, "--store", letters)
        assert answer.code == 2
    assert len(listed(cli, letters)) == 3


def test_the_log_of_a_run_is_printed(cli: Cli, letters: str) -> None:
    lines = cli("logs", "fine", "--store", letters).stdout.splitlines()
    assert [line[24:] for line in lines] == ["begun sheets=3", "over"]
    found = cli("logs", "fine", "--store", letters, "--json").json
    assert all(set(one) == keys("A line of a log") for one in found)
    assert [(one["text"], one["fields"]) for one in found] == [
        ("begun", {"sheets": 3}),
        ("over", {}),
    ]
    first = cli("logs", "fine", "--limit", "1", "--store", letters)
    number = found[0]["number"]
    assert f"--after {number}" in first.stderr
    rest = cli("logs", "fine", "--after", str(number), "--store", letters).stdout
    assert rest.splitlines() == lines[1:]
    assert cli("logs", "ann", "--store", letters).stdout == ""
    assert cli("logs", "nobody", "--store", letters).code == 1


def test_progress_is_shown(cli: Cli, letters: str) -> None:
    run = cli("show", "fine", "--store", letters, "--json").json
    assert (run["progress"]["fraction"], run["progress"]["note"]) == (0.75, "nearly")
    assert "75%, nearly (at 20" in cli("show", "fine", "--store", letters).stdout
    assert cli("show", "ann", "--store", letters, "--json").json["progress"] is None


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_a_log_is_followed_until_the_run_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[str] = []
    first = asyncio.Event()

    def echo(line: str) -> None:
        printed.append(line[24:])
        first.set()

    monkeypatch.setattr(_reports, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(typer, "echo", echo)
    stage.clear()
    stage.enter()
    app = Stepwell(tmp_path / "talk.db", include=[__name__], durability="process")
    async with app, app.worker(), asyncio.timeout(LONG):
        run = await app.enqueue(letters_talk())
        tail = asyncio.create_task(_reports.tail(app, run.id, 0))
        await first.wait()
        assert printed == ["one"]
        stage.release("talk")
        await tail
    assert printed == ["one", "two"]


def test_one_document_does_not_go_on(cli: Cli, letters: str) -> None:
    assert cli("logs", "fine", "--follow", "--json", "--store", letters).code == 2

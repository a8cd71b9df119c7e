"""`value`, `ask`, `stream` and `events`."""

from __future__ import annotations

import json

from tests.cli.conftest import Cli


def test_the_values_of_a_run_are_printed_and_shown(cli: Cli, address: str) -> None:
    assert cli("value", "parked", "stage", "--store", address).stdout == '"to be approved"\n'
    assert cli("value", "parked", "--store", address).stdout == 'stage: "to be approved"\n'
    values = {"stage": "to be approved"}
    assert cli("value", "parked", "--store", address, "--json").json == values
    assert cli("show", "parked", "--store", address, "--json").json["values"] == values
    missing = cli("value", "parked", "stages", "--store", address)
    assert (missing.code, missing.stderr) == (
        1,
        "stepwell: run 'parked' has not set a value 'stages'\n",
    )


def test_a_stream_is_printed_from_an_offset(cli: Cli, address: str) -> None:
    lines = cli("stream", "parked", "lines", "--store", address).stdout.splitlines()
    first, second = map(json.loads, lines)
    assert (first["offset"], first["value"]["id"]) == (1, "o-1")
    assert (second["offset"], second["value"]) == (2, 2)
    assert cli("stream", "parked", "lines", "--after", "2", "--store", address).stdout == ""
    ended = cli("stream", "cancelled", "lines", "--follow", "--store", address)
    assert len(ended.stdout.splitlines()) == 2


def test_the_events_of_a_run_are_printed_from_a_position(cli: Cli, address: str) -> None:
    lines = cli("events", "completed", "--follow", "--store", address).stdout.splitlines()
    events = [json.loads(line) for line in lines]
    assert events[0]["kind"] == "step"
    rest = cli("events", "completed", "--after", events[0]["position"], "--store", address)
    assert rest.stdout.splitlines() == lines[1:]
    assert cli("events", "completed", "--after", "x", "--store", address).code == 1


def test_a_question_that_nobody_answers_stays(cli: Cli, address: str) -> None:
    asked = cli(
        "ask", "parked", "price", "--json", "3", "--id", "q", "--timeout", "0", "--store", address
    )
    assert asked.code == 1
    assert "has not answered the question 'price', which stays with it" in asked.stderr
    assert cli("ask", "completed", "price", "--store", address).code == 1
    assert cli("ask", "ready", "price", "--store", address).code == 1

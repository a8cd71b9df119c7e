"""Killed after any of its commits, a run ends as it could have ended without that."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from stepwell_queue.contract import History, Record, RecordKind, Status
from tests.property.examples import (
    CUT_IN_ORDER,
    LAST_CANCEL,
    ONE_ATTEMPT,
    RETRIED_CHILD,
    RETRIED_TASK,
    STARTED_IN_A_RACE,
)
from tests.property.possible import Replay, is_retry, told
from tests.property.shapes import SIGNALS, Node, local_shapes, mended_shapes, shapes
from tests.property.world import MAIN, Life, Remains, Scenario, Send, codec, live
from tests.replay.asked import Events

SOAK = os.environ.get("STEPWELL_SOAK", "") not in ("", "0")

pytestmark = [pytest.mark.blocking, pytest.mark.timeout(14_400 if SOAK else 300)]


def some(few: int) -> settings:
    """`few` examples on every change, many in the long form."""
    return settings(
        max_examples=500 if SOAK else few,
        deadline=None,
        derandomize=not SOAK,
        database=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@st.composite
def scenarios(draw: st.DrawFn, nodes: st.SearchStrategy[Node]) -> Scenario:
    times = draw(st.lists(st.integers(0, 8), max_size=4))
    words = [*SIGNALS, *SIGNALS, "cancel"]
    # No two at one time, and none when a timer ends, so that their order is certain.
    sends = [
        Send(time + (index + 1) / 16, draw(st.sampled_from(words)), index)
        for index, time in enumerate(times)
    ]
    return Scenario(
        draw(nodes),
        (*sends, LAST_CANCEL),
        draw(st.sampled_from([None, None, 5.5])),
        draw(st.sampled_from([1000, 0])),
    )


@st.composite
def with_an_operator(draw: st.DrawFn) -> Scenario:
    """Somebody retries what failed, rolls it back in the end, and resumes that."""
    requests = [
        Send(at + 0.25, draw(st.sampled_from(["retry", "retry", "roll_back"])), 0)
        for at in (20, 40, 50)
    ]
    last = [Send(60.25, "roll_back", 0), Send(70.25, "resume_rollback", 0)]
    before = draw(scenarios(mended_shapes()))
    sends = (*before.sends, *requests, *last, Send(95.25, "roll_back", 0))
    return replace(before, sends=sends, hold=True)


@contextmanager
def scratch() -> Generator[Path, None, None]:
    folder = Path(tempfile.mkdtemp(prefix="stepwell-lives-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def outcome(record: Record) -> Any:
    """What a record delivers, and when; errors by what they say."""
    value: Any = record.value
    if record.kind in (RecordKind.STEP_FAILED, RecordKind.FAILURE):
        value = told(codec.decode_error(record.value))
    return record.kind, record.path, record.name, value, record.at, record.attempt, record.digest


def ending(history: History) -> Any:
    run = history.run
    value: Any = run.value
    if run.status == Status.FAILED:
        value = told(codec.decode_error(run.value))
    return (
        run.status,
        run.rollback,
        value,
        run.ended,
        [outcome(record) for record in history.journal],
    )


def check(scenario: Scenario, life: Life) -> None:
    assert life.findings == []
    assert life.complaints == []
    assert MAIN in life.histories
    stories: dict[str, list[Events]] = {}
    for id, history in life.histories.items():
        run = history.run
        assert Status(run.status).terminal, f"{id} is {run.status_name}: {run.waiting}"
        assert not history.open_ops, f"{id} has ended with {history.open_ops}"
        if run.name in ("shaped", "held") and (history.journal or run.status != Status.CANCELLED):
            stories[id] = replays(scenario, life.histories, id)
    for id, events in life.asked:
        known = [story[: len(events)] for story in stories[id]]
        assert events in known, f"{id} asked for something else on replay"
    retries = sum(send.what == "retry" for send in scenario.sends)
    for attempt, count in Counter(life.executed).items():
        assert count <= life.lives + retries, f"{attempt} was executed {count} times"


def replays(scenario: Scenario, histories: dict[str, History], id: str) -> list[Events]:
    """Return what the code of a run asks for: to its end, and before each retry."""
    retries = sum(map(is_retry, histories[id].journal))
    story = Replay(scenario, histories, id).check()
    return [story, *(Replay(scenario, histories, id).until(retry) for retry in range(retries))]


@some(20)
@example(scenario=CUT_IN_ORDER)
@given(scenario=scenarios(local_shapes()))
def test_killed_after_any_commit_a_run_of_quick_steps_ends_exactly_as_without(
    scenario: Scenario,
) -> None:
    with scratch() as folder:
        whole = live(scenario, folder, keep=True)
        check(scenario, whole)
        expected = ending(whole.histories[MAIN])
        for index, remains in enumerate(whole.remains):
            life = live(scenario, folder / str(index), remains)
            check(scenario, life)
            assert ending(life.histories[MAIN]) == expected, f"killed after commit {index}"


@some(20)
@example(scenario=STARTED_IN_A_RACE)
@given(scenario=scenarios(shapes()))
def test_killed_after_any_commit_a_run_ends_as_it_could_have_without(scenario: Scenario) -> None:
    with scratch() as folder:
        whole = live(scenario, folder, keep=True)
        check(scenario, whole)
        for index, remains in enumerate(whole.remains):
            check(scenario, live(scenario, folder / str(index), remains))


@some(20)
@example(scenario=RETRIED_CHILD)
@example(scenario=RETRIED_TASK)
@example(scenario=ONE_ATTEMPT)
@given(scenario=with_an_operator())
def test_killed_after_any_commit_what_an_operator_asked_for_is_done(scenario: Scenario) -> None:
    with scratch() as folder:
        whole = live(scenario, folder, keep=True)
        check(scenario, whole)
        for index, remains in enumerate(whole.remains):
            check(scenario, live(scenario, folder / str(index), remains))


@some(20)
@given(scenario=scenarios(shapes()), seed=st.integers(0, 1_000_000))
def test_killed_again_and_again_a_run_ends_as_it_could_have_without(
    scenario: Scenario, seed: int
) -> None:
    chance = Random(seed)
    with scratch() as folder:
        remains: Remains | None = None
        for number in range(6):
            down = 0.0 if remains is None else chance.choice([0.0, 0.0, 1.5, 7.0])
            life = live(scenario, folder / str(number), remains, down=down, keep=True)
            check(scenario, life)
            if not life.remains:
                break
            remains = chance.choice(life.remains[:10])

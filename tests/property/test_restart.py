"""Times that were fixed before a restart hold after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepwell_queue.contract import RecordKind, Status
from tests.property.shapes import START, Node
from tests.property.world import MAIN, Life, Scenario, Send, live

pytestmark = pytest.mark.blocking


def sleep(seconds: float) -> Node:
    return {"kind": "sleep", "seconds": seconds}


def wait(timeout: float | None) -> Node:
    return {"kind": "wait", "signal": "red", "timeout": timeout}


def flaky(failures: int) -> Node:
    return {"kind": "flaky", "label": "a", "failures": failures}


def parallel(*nodes: Node) -> Node:
    return {"kind": "parallel", "nodes": list(nodes), "limit": None, "return_exceptions": False}


def restarted(scenario: Scenario, folder: Path, killed: float, again: float) -> Life:
    """Live until `killed`, and again from `again`, in seconds from the start."""
    ticking = Scenario(
        parallel(scenario.node, parallel(*[sleep(tick / 2) for tick in range(1, 20)])),
        scenario.sends,
        scenario.deadline,
    )
    whole = live(ticking, folder / "whole", keep=True)
    remains = [one for one in whole.remains if one.now <= START + killed][-1]
    assert remains.now == START + killed
    return live(ticking, folder / "again", remains, down=again - killed)


def ended(life: Life, path: str) -> float:
    (record,) = [r for r in life.histories[MAIN].journal if r.path == path]
    return record.at - START


@pytest.mark.parametrize(("again", "end"), [(2.0, 4.0), (3.0, 4.0), (4.0, 4.0), (9.0, 9.0)])
@pytest.mark.parametrize("node", [sleep(4.0), wait(4.0)], ids=["sleep", "wait"])
def test_a_time_that_was_set_before_the_restart_holds_after_it(
    tmp_path: Path, node: Node, again: float, end: float
) -> None:
    life = restarted(Scenario(node), tmp_path, 2.0, again)
    assert ended(life, "0.0.0") == end


@pytest.mark.parametrize(("again", "end"), [(2.0, 3.0), (9.0, 9.0)])
def test_a_retry_is_made_when_it_was_due(tmp_path: Path, again: float, end: float) -> None:
    """One failure at 0 and one at 1; the third attempt is due at 3."""
    life = restarted(Scenario(flaky(2)), tmp_path, 2.0, again)
    assert ended(life, "0.0.0") == end
    (record,) = [r for r in life.histories[MAIN].journal if r.path == "0.0.0"]
    assert record.attempt == 3
    assert [attempt for _, _, attempt in life.executed] == [1, 2, 3]


@pytest.mark.parametrize(("again", "end"), [(2.0, 4.25), (9.0, 9.0)])
def test_a_deadline_holds(tmp_path: Path, again: float, end: float) -> None:
    scenario = Scenario(wait(None), deadline=4.25)
    life = restarted(scenario, tmp_path, 2.0, again)
    history = life.histories[MAIN]
    assert history.run.status == Status.FAILED
    assert history.run.ended == START + end


def test_a_signal_that_came_while_nobody_worked_is_taken(tmp_path: Path) -> None:
    scenario = Scenario(wait(4.0), (Send(3.0625, "red", 7),))
    life = restarted(scenario, tmp_path, 2.0, 3.5)
    records = [r for r in life.histories[MAIN].journal if r.kind == RecordKind.SIGNAL]
    assert [record.at - START for record in records] == [3.5]
    assert not [r for r in life.histories[MAIN].journal if r.path == "0.0.0"]


def test_a_timeout_that_passed_while_nobody_worked_holds_against_a_later_signal(
    tmp_path: Path,
) -> None:
    scenario = Scenario(wait(4.0), (Send(9.0625, "red", 7),))
    life = restarted(scenario, tmp_path, 2.0, 9.0)
    assert ended(life, "0.0.0") == 9.0

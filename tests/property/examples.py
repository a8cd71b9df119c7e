"""Scenarios that went wrong once, as small as they could be made."""

from __future__ import annotations

from typing import Any

from tests.property.shapes import START, Node
from tests.property.world import Scenario, Send

# It ends whatever waits for what never comes.
LAST_CANCEL = Send(90.25, "cancel", 0)


def group(kind: str, *nodes: Node) -> Node:
    options: dict[str, Any] = {"kind": kind, "nodes": list(nodes)}
    if kind == "parallel":
        options |= {"limit": None, "return_exceptions": False}
    return options


def note(label: str) -> Node:
    return {"kind": "note", "label": label}


def mended(after: float) -> Node:
    return {"kind": "mended", "label": "m", "at": START + after}


def retried(node: Node) -> Scenario:
    """Somebody retries at 50, and lets it roll back at 60."""
    sends = (Send(50.25, "retry", 0), Send(60.25, "roll_back", 0), Send(95.25, "roll_back", 0))
    return Scenario(node, (*sends, LAST_CANCEL), hold=True)


# A detached child whose start was on its way when its branch had lost.
STARTED_IN_A_RACE = Scenario(
    group(
        "race",
        {"kind": "detached", "node": note("a"), "between": note("b"), "joined": False},
        note("c"),
    ),
    (LAST_CANCEL,),
)


def flaky(label: str) -> Node:
    return {"kind": "flaky", "label": label, "failures": 1}


# Two steps were cut in the retry delay: the inner one first, though the outer was asked for first.
CUT_IN_ORDER = Scenario(
    group("race", flaky("a"), group("race", note("a"), flaky("a"))), (LAST_CANCEL,)
)

# A child, and a task that was cut, had ended before the retry asked for them again.
RETRIED_CHILD = retried({"kind": "child", "node": mended(45.0)})
RETRIED_TASK = retried(group("parallel", mended(15.0), {"kind": "job", "label": "j"}))

# A step had failed without its retries, since its branch had lost.
ONE_ATTEMPT = retried(
    group("race", mended(15.0), {"kind": "flaky", "label": "f", "failures": 1}, note("n"))
)

"""What runs of each kind must leave in the effects log and return, however often they were cut."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from tests.crash.flows import BRANCHES, SLOTS, Effect

Execution = tuple[str, int]
"""What was executed, and as which attempt."""

RESULTS: dict[str, list[str]] = {
    "linear": ["a", "b", "c"],
    "branching": ["a", "bc", "d"],
    "napping": ["a", "b"],
    "asking": ["a", "yes", "b"],
    "retrying": ["a", "b"],
    "remote": ["a", "b", "c"],
    "batched": ["a", "s", "s", "b"],
    "parent": ["a", "b", "c", "a", "b", "a"],
}

EXECUTIONS: dict[str, set[Execution]] = {
    "linear": {("a", 1), ("b", 1), ("c", 1)},
    "branching": {("a", 1), ("b", 1), ("c", 1), ("c", 2), ("c", 3), ("d", 1)},
    "napping": {("a", 1), ("b", 1)},
    "asking": {("a", 1), ("b", 1)},
    "retrying": {("a", 1), ("a", 2), ("a", 3), ("b", 1)},
    "remote": {("a", 1), ("b", 1), ("c", 1)},
    "batched": {("a", 1), ("b", 1)},
    "send_some": {("s", 1)},
    "parent": {("a", 1)},
    "held": {("a", 1), ("b", 1), ("c", 1)},
    "failing": {(what, 1) for what in ("a", "b", "c", "undo c", "undo b", "undo a")},
}

UNDOS: dict[str, list[list[str]]] = {
    "failing": [["undo c", "undo b", "undo a"]],
    # Cancelled whenever it happened to be: before it began, or behind either of its steps.
    "withdrawn": [[], ["undo a"], ["undo b", "undo a"]],
}


def differences(kind: str, effects: list[Effect]) -> list[str]:
    """Compare what one run did to the outside world with what it was to do."""
    found = {(effect.what, effect.attempt) for effect in effects}
    expected = _withdrawn(found) if kind == "withdrawn" else EXECUTIONS[kind]
    problems: list[str] = []
    if found != expected:
        problems.append(f"executed {sorted(found)}, expected {sorted(expected)}")
    undos = list(dict.fromkeys(e.what for e in effects if e.what.startswith("undo")))
    if undos not in UNDOS.get(kind, [[]]):
        problems.append(f"undone in the order {undos}")
    if any(len({e.key for e in effects if e.path == path}) > 1 for path in _paths(effects)):
        problems.append("the key of a step changed")
    return problems


def _withdrawn(found: set[Execution]) -> set[Execution]:
    done = {execution for execution in found if not execution[0].startswith("undo")}
    return done | {(f"undo {what}", attempt) for what, attempt in done}


def _paths(effects: Iterable[Effect]) -> set[str]:
    return {effect.path for effect in effects}


Attempt = tuple[str, str, int]
"""Run, path, and which attempt."""


def executors(effects: Iterable[Effect]) -> dict[Attempt, list[int]]:
    """Return the processes that executed each attempt, in order."""
    found: defaultdict[Attempt, list[int]] = defaultdict(list)
    for effect in effects:
        found[effect.run, effect.path, effect.attempt].append(effect.process)
    return found


def unexplained_repeats(effects: Iterable[Effect], killed: set[int]) -> list[str]:
    """Find attempts that were executed again though nobody was killed while they were open."""
    problems: list[str] = []
    repeats: Counter[int] = Counter()
    for attempt, processes in executors(effects).items():
        cut = processes[:-1]
        repeats.update(cut)
        if len(set(processes)) < len(processes) or not killed.issuperset(cut):
            problems.append(f"attempt {attempt} was executed by the processes {processes}")
    for process, count in repeats.items():
        if count > SLOTS * BRANCHES:
            problems.append(f"{count} attempts of the killed process {process} were repeated")
    return problems

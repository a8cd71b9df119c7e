"""What is looked for in workflow code; docs/reference/check.md shows each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Rule:
    """`wrong` follows the code that was found; `remedy` is said unless there is a closer one."""

    id: str
    wrong: str
    remedy: str


_ALL: Final = (
    Rule(
        "clock",
        "reads the clock, which says something else when the run is replayed",
        "use stepwell.now()",
    ),
    Rule(
        "random",
        "is another value each time, so a replay may take another way",
        "use stepwell.random() or stepwell.uuid4(), or make it in a @step",
    ),
    Rule(
        "environment",
        "depends on the process and machine, and the next worker may be another one",
        "read it in a @step, or pass it as an argument of the workflow",
    ),
    Rule(
        "io",
        "reaches outside of the run, and is done anew at each replay",
        "do it in a @step, whose result is journaled",
    ),
    Rule(
        "event-loop",
        "needs the event loop, which workflow code does not have: the run would be stuck",
        "use await parallel(...), race(...), sleep(...) or wait_for_signal(...)",
    ),
    Rule(
        "blocking",
        "blocks the worker or leaves the thread, and no journal knows of it",
        "do it in a plain def @step, which runs in a thread",
    ),
    Rule(
        "set-order",
        "is a set, whose order differs from process to process",
        "go through sorted(...), or keep a list or dict",
    ),
    Rule(
        "global-state",
        "is shared by all runs of the process, and a replay finds or leaves it different",
        "keep it in local variables, return it from a @step, or pass it as an argument",
    ),
    Rule(
        "forgotten-call",
        "is built and never awaited, so it does not happen",
        "put await before it, or hand it to parallel, race, compensate or start",
    ),
    Rule(
        "unjournaled",
        "runs at once, and no journal knows of it, so each replay does it again",
        "await the call itself, or do this in a @step",
    ),
    Rule(
        "finally-effect",
        "is in a finally block, which does not run exactly once",
        "make it a @step and await it there, or register it with compensate(...)",
    ),
    Rule(
        "swallowed-cancel",
        "swallows Cancelled, so that the run goes on although it was cancelled",
        "catch Exception, or raise again at the end of the handler",
    ),
    Rule(
        "lost-exception",
        "never comes out of a step as this class: it arrives as StepFailed",
        "catch StepFailed, or change the class",
    ),
    Rule(
        "foreign-await",
        "is no durable operation: the run would be stuck",
        "do it in a @step; a workflow awaits steps, tasks, workflows and what stepwell offers",
    ),
    Rule(
        "generator",
        "makes a generator of the workflow, which nobody iterates over",
        "return the values, or publish them from steps",
    ),
    Rule(
        "allow",
        "does not allow anything",
        "take the comment out, or write # stepwell: allow[rule-id] reason on the line it is about",
    ),
)
RULES: Final = {rule.id: rule for rule in _ALL}

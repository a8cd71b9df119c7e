"""Comments that allow on their line what is otherwise reported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from stepwell.checking.problems import Problem
from stepwell.checking.rules import RULES
from stepwell.checking.sources import Source

_ALLOW = re.compile(r"#\s*stepwell:\s*allow\b(?:\[([^\]]*)\])?\s*(.*)")


def without_allowed(
    problems: Iterable[Problem], given: Iterable[Source], all_sources: Iterable[Source]
) -> Iterator[Problem]:
    """Leave out what comments allow, and add comments of the given modules that allow nothing."""
    allowed = {source.path: _allowed(source) for source in all_sources}
    used: set[tuple[object, int, str]] = set()
    for one in problems:
        rules, reason = allowed.get(one.file, {}).get(one.line, ((), ""))
        if one.rule in rules:
            used.add((one.file, one.line, one.rule))
        if one.rule not in rules or not reason:
            yield one
    for source in given:
        for line, (rules, reason) in allowed[source.path].items():
            for text in _idle(source, line, rules, reason, used):
                yield Problem(
                    source.path,
                    line,
                    source.text.splitlines()[line - 1].find("#") + 1,
                    "allow",
                    text,
                    RULES["allow"].remedy,
                )


def _allowed(source: Source) -> dict[int, tuple[tuple[str, ...], str]]:
    found: dict[int, tuple[tuple[str, ...], str]] = {}
    for line, comment in source.comments.items():
        allow = _ALLOW.search(comment)
        if allow is not None:
            rules = tuple(rule.strip() for rule in (allow[1] or "").split(",") if rule.strip())
            found[line] = rules, allow[2].strip()
    return found


def _idle(
    source: Source,
    line: int,
    rules: tuple[str, ...],
    reason: str,
    used: set[tuple[object, int, str]],
) -> Iterator[str]:
    if not rules:
        yield "the comment names no rule, so it does not allow anything"
    for rule in rules:
        if rule not in RULES or rule == "allow":
            yield f"allow[{rule}] does not allow anything: there is no such rule"
        elif (source.path, line, rule) not in used:
            yield f"allow[{rule}] does not allow anything: nothing is found on this line"
        elif not reason:
            yield f"allow[{rule}] gives no reason, so it does not allow anything"

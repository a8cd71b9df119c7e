"""What was found, and where."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from stepwell.checking.bodies import Body
from stepwell.checking.rules import RULES


@dataclass(frozen=True, order=True, slots=True)
class Problem:
    """One place that breaks a rule. `line` and `column` count from 1.

    `workflow`: the workflow that executes it; None = it is no workflow code.
    """

    file: Path
    line: int
    column: int
    rule: str
    message: str
    remedy: str
    workflow: str | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}"
        return f"{place}: {self.rule}: {self.message}; {self.remedy}"


def problem(
    body: Body,
    node: ast.expr | ast.stmt | ast.ExceptHandler,
    rule: str,
    what: str,
    remedy: str | None = None,
    wrong: str | None = None,
) -> Problem:
    known = RULES[rule]
    where = "" if body.is_workflow else f" (here executed by {body.workflow})"
    return Problem(
        body.source.path,
        node.lineno,
        node.col_offset + 1,
        rule,
        f"{what} {wrong or known.wrong}{where}",
        remedy or known.remedy,
        body.workflow,
    )


def shown(node: ast.AST, longest: int = 50) -> str:
    """Return code as one line."""
    try:
        text = " ".join(ast.unparse(node).split())
    except RecursionError:
        text = type(node).__name__
    return text if len(text) <= longest else f"{text[: longest - 1]}…"

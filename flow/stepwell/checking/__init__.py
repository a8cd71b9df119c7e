"""The static check of workflow code: `stepwell check`."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.checking.allowing import without_allowed
from stepwell.checking.bodies import Bodies
from stepwell.checking.check_state import Changes
from stepwell.checking.checks import problems_of
from stepwell.checking.problems import Problem
from stepwell.checking.resolving import Resolver
from stepwell.checking.rules import RULES, Rule
from stepwell.checking.sources import CannotCheck, Library

__all__ = ["RULES", "CannotCheck", "Problem", "Rule", "check_module", "check_modules"]


def check_module(name: str, path: Sequence[str] | None = None) -> list[Problem]:
    """Return what is wrong in the workflows of a module, or of all modules of a package.

    It is read and not imported. `path`: folders where modules are looked for; None = sys.path.
    Raises CannotCheck.
    """
    return check_modules([name], path)


def check_modules(names: Sequence[str], path: Sequence[str] | None = None) -> list[Problem]:
    """Return what is wrong in the workflows of several modules, in the order of files and lines."""
    library = Library(path)
    given = [source for name in names for source in library.given(name)]
    given = list(dict.fromkeys(given))
    resolver = Resolver(library)
    changes = Changes(resolver)
    problems = {one for body in Bodies(resolver).of(given) for one in problems_of(body, changes)}
    return sorted(set(without_allowed(sorted(problems), given, library.own())))

"""All checks of one body."""

from __future__ import annotations

from collections.abc import Iterator

from stepwell.checking.bodies import Body
from stepwell.checking.check_calls import check_awaits, check_calls
from stepwell.checking.check_errors import check_errors
from stepwell.checking.check_names import check_names
from stepwell.checking.check_sets import check_sets
from stepwell.checking.check_state import Changes, check_state
from stepwell.checking.problems import Problem


def problems_of(body: Body, changes: Changes) -> Iterator[Problem]:
    yield from check_names(body)
    yield from check_sets(body)
    yield from check_state(body, changes)
    yield from check_calls(body)
    yield from check_awaits(body)
    yield from check_errors(body)

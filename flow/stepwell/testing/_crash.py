"""Crash tests: the same run again and again, with a crash behind each of its writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import ModuleType
from typing import Any

from stepwell import _options as checks
from stepwell._app.settings import Lifespan
from stepwell._calls import TaskCall, WorkflowCall
from stepwell.testing._clock import NothingDue
from stepwell.testing._lives import (
    Lived,
    Plan,
    Setup,
    Subject,
    subject,
)
from stepwell.testing._outcome import RunOutcome, Send
from stepwell_runtime.codec import Codec, SerializationError
from stepwell_runtime.middleware import Middleware


@dataclass(frozen=True, slots=True)
class Repeated:
    """A step or task whose function was executed more than once by one attempt.

    That is as promised (at least once): the one that runs when the process dies is executed again,
    with the same `current_job().key`, by which the outside can tell.
    """

    name: str
    path: str
    """Where in the code of its workflow a step stands; empty for a task."""
    crashes: int
    """After how many of the crashes that were tried."""
    most: int
    """How often it was executed at most."""


@dataclass(frozen=True)
class CrashReport:
    """What a crash test has found: the same outcome after every crash, and what it cost."""

    outcome: RunOutcome
    writes: int
    """Transactions that an undisturbed run needs."""
    crashed_after: tuple[int, ...]
    """The writes behind which there was a crash: all but the last, or as many as `limit` says."""
    repeated: tuple[Repeated, ...]
    """The steps and tasks whose effects may happen more than once, in the order of their code."""

    def __str__(self) -> str:
        tried = len(self.crashed_after)
        which = "each" if tried == self.writes - 1 else f"{tried} (limit=…)"
        lines = [
            f"{self.outcome}",
            f"the same after a crash behind {which} of its {self.writes} writes but the last",
        ]
        if self.repeated:
            lines.append("executed more than once, so they must be idempotent:")
        for one in self.repeated:
            where = f" at path {one.path}" if one.path else ""
            crashes = f"{one.crashes} of {tried} crashes"
            lines.append(f"  {one.name}{where}: up to {one.most} times, after {crashes}")
        return "\n".join(lines)


async def crash_test(
    call: WorkflowCall[Any] | TaskCall[Any],
    /,
    *,
    signals: Sequence[Send] = (),
    setup: Setup | None = None,
    check: Callable[[RunOutcome], object] | None = None,
    same_result: bool = True,
    limit: int = 200,
    include: Iterable[ModuleType | str] | None = None,
    lifespan: Lifespan | None = None,
    middleware: Sequence[Middleware] = (),
    queues: Sequence[str] = (),
    start: datetime | None = None,
) -> CrashReport:
    """Run a call undisturbed, then with a crash behind each write, and expect the same outcome.

    `signals`: what it is sent, and when; without `after=` at once. `setup`: called with the app
    before each of these runs, to put the outside back to where it was, and to stub; may be async.
    `check`: called with each outcome; it may raise. `same_result`: the result must be equal, too,
    and not only the status, the error, the rollback and what was undone. `limit`: how many crashes
    at most, evenly spread. The rest is as for TestApp. Raises AssertionError if a crash makes a
    difference.
    """
    checks.whole(limit, "limit", 1)
    counts: dict[tuple[str, str], list[int]] = {}
    async with subject(
        call, signals, setup, include, lifespan, middleware, queues, start
    ) as tested:
        sends = tuple(after or 0.0 for after in tested.afters)
        first = await tested.live(Plan(sends))
        if check is not None:
            check(first.outcome)
        points = spread(first.commits - 1, limit)
        for point in points:
            lived = await _crashed(tested, Plan(sends, (point,)))
            _compare(first, lived, point, check, same_result)
            for place, times in repeats(lived).items():
                counts.setdefault(place, []).append(times)
    order = list(dict.fromkeys((one.name, one.path) for one in first.executed))
    repeated = [
        Repeated(*place, len(times), max(times))
        for place, times in sorted(counts.items(), key=lambda one: _place_in(order, one[0]))
    ]
    return CrashReport(first.outcome, first.commits, tuple(points), tuple(repeated))


async def _crashed(tested: Subject, plan: Plan) -> Lived:
    try:
        return await tested.live(plan)
    except NothingDue as never:
        raise AssertionError(f"after a crash behind write {plan.crashes[0]}, {never}") from None


def _compare(
    first: Lived,
    lived: Lived,
    point: int,
    check: Callable[[RunOutcome], object] | None,
    same_result: bool,
) -> None:
    """Raise AssertionError if the crash has made a difference."""
    where = f"after a crash behind write {point} of {first.commits}{_last_begun(lived)}"
    found = difference(first.outcome, lived.outcome, same_result)
    if found:
        raise AssertionError(f"{where}, {found}")
    twice = [path for path, times in lived.undos.items() if times > 1]
    if twice:
        raise AssertionError(f"{where}, an undo was done twice: at path {', '.join(twice)}")
    if check is not None:
        try:
            check(lived.outcome)
        except AssertionError as failed:
            failed.add_note(where)
            raise


def _place_in(order: list[tuple[str, str]], place: tuple[str, str]) -> int:
    return order.index(place) if place in order else len(order)


def spread(writes: int, limit: int) -> list[int]:
    """Return 1 to `writes`, or of these `limit`, evenly, with the last."""
    if writes <= limit:
        return list(range(1, writes + 1))
    return sorted({max(1, round(writes * number / limit)) for number in range(1, limit + 1)})


def _last_begun(lived: Lived) -> str:
    if not lived.begun or not lived.begun[0]:
        return " (nothing had been executed)"
    last = lived.executed[lived.begun[0] - 1]
    where = f" at path {last.path}" if last.path else ""
    return f" (begun last: {last.name}{where})"


def repeats(lived: Lived) -> dict[tuple[str, str], int]:
    """Return how often the attempts that were executed more than once were, at most."""
    counted: dict[tuple[str, str], int] = {}
    for execution, times in Counter(lived.executed).items():
        if times > 1:
            place = execution.name, execution.path
            counted[place] = max(times, counted.get(place, 0))
    return counted


def difference(expected: RunOutcome, found: RunOutcome, same_result: bool) -> str:
    """Return what differs between two outcomes; empty = nothing."""
    if found.status == "stuck" != expected.status:
        return (
            "the run got stuck, since its code did not do again what it had done before: "
            f"{found.error}\nWithout a crash: {expected}"
        )
    names = ["status", "result", "error", "rollback", "undone"]
    if not same_result:
        names.remove("result")
    for name in names:
        before, after = getattr(expected, name), getattr(found, name)
        if not same(before, after):
            return f"{name} is {after!r}, and without a crash {before!r}\n{found}\n{expected}"
    return ""


def same(one: object, other: object) -> bool:
    """Whether two values of an outcome are equal, if not by `==` then by what is stored of them."""
    if isinstance(one, BaseException) or isinstance(other, BaseException):
        return type(one) is type(other) and str(one) == str(other)
    if one == other:
        return True
    try:
        return Codec().encode(one, "") == Codec().encode(other, "")
    except SerializationError:
        return False

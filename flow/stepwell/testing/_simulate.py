"""Simulation: one seed, one schedule of durations, late timers, signals and crashes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random
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
from stepwell.testing._probe import Execution
from stepwell_runtime.definitions import Seconds
from stepwell_runtime.middleware import Middleware

LATEST = 1.0  # seconds that a timer fires too late at most
MOST_SHRINKS = 60  # executions that are spent to find a simpler schedule


@dataclass(frozen=True)
class Schedule:
    """What a seed makes of the world; `str` says it in words."""

    seed: int
    sends: tuple[float, ...]
    crashes: tuple[int, ...]
    longest_step: float
    slow: frozenset[str] | None = None
    """The paths of the steps that take time; None = all."""
    late: bool = True

    def plan(self, seen: dict[str, tuple[str, float]]) -> Plan:
        """Return what is to happen; `seen` gets the names and durations of slow steps, by path."""
        timers = Random(f"{self.seed} timers")

        def delays(execution: Execution) -> tuple[float, float]:
            if self.slow is not None and execution.path not in self.slow:
                return 0.0, 0.0
            chance = Random(f"{self.seed} {execution.place}")
            before, after = (
                chance.choice((0.0, 0.01, 1.0)) * chance.uniform(0.0, self.longest_step / 2)
                for _ in range(2)
            )
            if before + after:
                seen[execution.path] = execution.name, before + after
            return before, after

        def late() -> float:
            return timers.uniform(0.0, LATEST) if timers.random() < 0.25 else 0.0

        return Plan(self.sends, self.crashes, delays, late if self.late else _in_time)

    def simpler(self, seen: dict[str, tuple[str, float]]) -> Iterator[Schedule]:
        """Yield schedules that have a little less in them."""
        for index in range(len(self.crashes)):
            yield replace(self, crashes=self.crashes[:index] + self.crashes[index + 1 :])
        if self.late:
            yield replace(self, late=False)
        slow = frozenset(seen) if self.slow is None else self.slow
        if slow:
            yield replace(self, slow=frozenset())
            for path in sorted(slow):
                yield replace(self, slow=slow - {path})

    def described(self, seen: dict[str, tuple[str, float]]) -> str:
        parts = [f"a crash {_ordinal(n)} {count} writes" for n, count in enumerate(self.crashes)]
        parts += [
            f"{name} at path {path or '-'} takes {s:.3f} s" for path, (name, s) in seen.items()
        ]
        parts += [f"what is sent comes after {after:.3f} s" for after in self.sends]
        if self.late:
            parts.append(f"timers are up to {LATEST:g} s late")
        return "; ".join(parts) or "nothing out of the ordinary"


def _ordinal(number: int) -> str:
    return "after" if number == 0 else "of the next process after"


def _in_time() -> float:
    return 0.0


@dataclass(frozen=True)
class SimulationReport:
    """What became of a call under all seeds."""

    seeds: int
    outcomes: dict[str, int]
    """How often it ended how: status, and the type of its error."""
    crashes: int
    executions: int
    """Of steps and tasks, in all."""

    def __str__(self) -> str:
        ends = ", ".join(f"{count} {how}" for how, count in self.outcomes.items())
        return (
            f"{self.seeds} seeds, {self.crashes} crashes, {self.executions} executions of steps: "
            f"{ends}"
        )


async def simulate(
    call: WorkflowCall[Any] | TaskCall[Any],
    /,
    *,
    seeds: int | Iterable[int] = 200,
    signals: Sequence[Send] = (),
    within: Seconds = 60.0,
    setup: Setup | None = None,
    check: Callable[[RunOutcome], object] | None = None,
    same_outcome: bool = True,
    crashes: int = 2,
    longest_step: Seconds = 1.0,
    include: Iterable[ModuleType | str] | None = None,
    lifespan: Lifespan | None = None,
    middleware: Sequence[Middleware] = (),
    queues: Sequence[str] = (),
    start: datetime | None = None,
) -> SimulationReport:
    """Run a call once for each seed, in a world that the seed makes up, always in the same way.

    The seed decides how long each execution takes (up to `longest_step` seconds of virtual time),
    so which branch ends first; how late timers are; when `signals` without `after=` come (`within`
    so many seconds); and when the process dies, at most `crashes` times. `seeds`: how many, from
    0, or which. `same_outcome`: each must end with the status, the type of error and the rollback
    of an undisturbed run. `check`: called with each outcome; it may raise. `setup`: called with the
    app before each run, as in `crash_test`. The rest is as for TestApp. Raises AssertionError,
    which names the seed and the simplest schedule that was found to fail.
    """
    checks.whole(crashes, "crashes", 0, 100)
    longest = checks.span(longest_step, "longest_step") or 0.0
    window = checks.span(within, "within") or 0.0
    numbers = range(seeds) if isinstance(seeds, int) else list(seeds)
    ends: Counter[str] = Counter()
    crashed = executed = 0
    async with subject(
        call, signals, setup, include, lifespan, middleware, queues, start
    ) as tested:
        given = tested.afters
        first = await tested.live(Plan(tuple(after or 0.0 for after in given)))
        expected = outcome_class(first.outcome) if same_outcome else None
        for seed in numbers:
            chance = Random(seed)
            schedule = Schedule(
                seed,
                tuple(chance.uniform(0.0, window) if after is None else after for after in given),
                tuple(chance.randint(1, first.commits) for _ in range(chance.randint(0, crashes))),
                longest,
            )
            trial = Trial(tested, expected, check)
            lived = await trial.of(schedule)
            if lived is None:
                raise AssertionError(await trial.report(schedule)) from trial.error
            ends[" ".join(filter(None, outcome_class(lived.outcome)[:2]))] += 1
            crashed += len(lived.begun)
            executed += len(lived.executed)
    return SimulationReport(sum(ends.values()), dict(ends), crashed, executed)


def outcome_class(outcome: RunOutcome) -> tuple[str, str, str]:
    """Return what all seeds must have in common."""
    error = "" if outcome.error is None else type(outcome.error).__name__
    return outcome.status, error, outcome.rollback


class Trial:
    """Executes schedules of one seed, and finds the simplest one that fails."""

    def __init__(
        self,
        tested: Subject,
        expected: tuple[str, str, str] | None,
        check: Callable[[RunOutcome], object] | None,
    ) -> None:
        self._tested, self._expected, self._check = tested, expected, check
        self.reason = ""
        self.error: BaseException | None = None
        self.seen: dict[str, tuple[str, float]] = {}

    async def of(self, schedule: Schedule) -> Lived | None:
        """Execute a schedule; None: it failed, for `reason`."""
        seen: dict[str, tuple[str, float]] = {}
        error: BaseException | None = None
        try:
            lived = await self._tested.live(schedule.plan(seen))
            reason, error = self._wrong(lived)
        except NothingDue as never:
            lived, reason = None, str(never)
        if not reason:
            return lived
        self.reason, self.error, self.seen = reason, error, seen
        return None

    def _wrong(self, lived: Lived) -> tuple[str, BaseException | None]:
        outcome = lived.outcome
        if outcome.status == "stuck":
            return f"the run got stuck: {outcome.error}", None
        if self._expected is not None and outcome_class(outcome) != self._expected:
            status, error, rollback = self._expected
            how = f"{status} {error}".rstrip()
            return f"{outcome}\nundisturbed: {how}, rollback {rollback}", None
        twice = [path for path, times in lived.undos.items() if times > 1]
        if twice:
            return f"an undo was done twice, at path {', '.join(twice)}: {outcome}", None
        if self._check is not None:
            try:
                self._check(outcome)
            except AssertionError as failed:
                return f"the check failed: {failed}\n{outcome}", failed
        return "", None

    async def report(self, schedule: Schedule) -> str:
        """Return what to say of a schedule that failed, after looking for a simpler one."""
        left, simplest = MOST_SHRINKS, schedule
        shrinking = True
        while shrinking:
            shrinking = False
            for simpler in simplest.simpler(self.seen):
                if left == 0:
                    break
                left -= 1
                if await self.of(simpler) is None:
                    simplest, shrinking = simpler, True
                    break
        return (
            f"seed {schedule.seed}: {self.reason}\n"
            f"the simplest schedule that fails: {simplest.described(self.seen)}\n"
            f"repeat it with simulate(…, seeds=[{schedule.seed}])"
        )

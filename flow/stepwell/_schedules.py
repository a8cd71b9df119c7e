"""`@schedule`, and what may be said of a schedule."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

from stepwell import _options as check
from stepwell._calls import TaskCall, WorkflowCall
from stepwell._decorated import Step, Task, Workflow
from stepwell_runtime.definitions import CallOptions, Definition, Seconds
from stepwell_runtime.errors import DefinitionError

if TYPE_CHECKING:
    from stepwell_runtime.schedules.plans import Declaration
    from stepwell_runtime.schedules.rules import Rule

ScheduleOverlap: TypeAlias = Literal["skip", "queue", "allow"]
ScheduleMissed: TypeAlias = Literal["skip", "once"] | int

Schedulable = TypeVar(
    "Schedulable",
    bound=Callable[[], TaskCall[Any] | WorkflowCall[Any]] | TaskCall[Any] | WorkflowCall[Any],
)
OVERLAPS = ("skip", "queue", "allow")
LONGEST_ID = 100
LONGEST_JITTER = 86_400.0  # seconds, where ticks have no fixed distance


class ScheduleDecorator(Protocol):
    """What `schedule(…)` returns: it takes a task or workflow, or a call of one."""

    def __call__(self, target: Schedulable, /) -> Schedulable: ...


def schedule(
    *,
    cron: str | None = None,
    tz: str | None = None,
    every: Seconds | None = None,
    at: datetime | None = None,
    id: str | None = None,
    overlap: ScheduleOverlap = "skip",
    missed: ScheduleMissed = "once",
    jitter: Seconds | None = None,
) -> ScheduleDecorator:
    """Declare that a task or workflow is started at certain times; stands above its decorator.

    `cron`: five fields, or six with seconds first, in the time zone `tz` (None = "UTC"). `every`:
    so many seconds, from `at` on (None = at multiples since 1970). `at` alone, an aware datetime:
    once. `id`: None = its name. `overlap`: what becomes of a tick while an earlier run goes on.
    `missed`: what becomes of ticks that no worker was there for; a number = so many of the latest.
    `jitter`: a run starts up to so many seconds later, less than `every`, else at most a day;
    None = none. Workers make the schedule when they start. Raises DefinitionError.
    """

    def decorate(target: Schedulable) -> Schedulable:
        definition, call = _target(target)
        try:
            declared = declaration(
                definition.name if id is None else id,
                call,
                rule_of(cron, tz, every, at),
                overlap,
                missed,
                jitter,
            )
        except (TypeError, ValueError) as error:
            raise DefinitionError(f"@schedule {definition.name}: {error}") from None
        if any(one.id == declared.id for one in definition.schedules):
            raise DefinitionError(
                f"@schedule {definition.name}: it has a schedule {declared.id!r} already; give "
                "this one another id=…"
            )
        definition.schedules.append(declared)
        return target

    return decorate


def _target(target: Any) -> tuple[Definition, TaskCall[Any] | WorkflowCall[Any]]:
    call = _called(target)
    return call.definition, call.hand_on()


def _called(
    target: Task[[], Any, Any]
    | Workflow[[], Any]
    | TaskCall[Any]
    | WorkflowCall[Any]
    | Step[..., Any, Any]
    | None,  # for anything else
) -> TaskCall[Any] | WorkflowCall[Any]:
    if isinstance(target, Step):
        raise DefinitionError(
            f"@schedule {target.name}: a step runs in a workflow; make it a task to schedule it"
        )
    if isinstance(target, (Task, Workflow)):
        try:
            return target()
        except TypeError as error:
            raise DefinitionError(
                f"@schedule {target.name}: it cannot be called without arguments: {error}; "
                f"schedule a call of it instead: schedule(…)({target.name}(…))"
            ) from None
    if isinstance(target, (TaskCall, WorkflowCall)):
        return target
    raise DefinitionError(
        f"@schedule takes a task or workflow, or a call of one, not {target!r}: put @schedule "
        "above @task or @workflow"
    )


def declaration(
    id: str,
    call: TaskCall[Any] | WorkflowCall[Any],
    rule: Rule,
    overlap: ScheduleOverlap,
    missed: ScheduleMissed,
    jitter: Seconds | None,
) -> Declaration:
    """Check what is asked of a schedule. Raises TypeError, ValueError."""
    from stepwell_queue.contract import Overlap
    from stepwell_runtime.schedules.plans import Declaration

    if check.text(id, "id", LONGEST_ID) is None:
        raise TypeError("id= takes a string, not None")
    check.one_of(overlap, "overlap", OVERLAPS)
    made_up = _missed(missed)
    if made_up > 1 and overlap != "allow":
        raise ValueError(
            f"missed={missed!r} starts several runs at once, which overlap={overlap!r} would not "
            'let happen: it needs overlap="allow"'
        )
    _refuse_options(call.options)
    late = check.span(jitter, "jitter") or 0.0
    _refuse_jitter(late, rule)
    return Declaration(
        id,
        rule,
        Overlap[overlap.upper()],
        made_up,
        late,
        call.args,
        call.kwargs,
        call.options,
    )


def _refuse_jitter(jitter: float, rule: Rule) -> None:
    """Raise ValueError for a jitter by which a run could start long after it is meant to."""
    from stepwell_runtime.schedules.rules import Every

    if isinstance(rule, Every):
        if jitter and jitter >= rule.period:
            raise ValueError(
                f"jitter= must be below the {rule.period:g} seconds from tick to tick, not "
                f"{jitter:g}: a run would start after the next tick"
            )
    elif jitter > LONGEST_JITTER:
        raise ValueError(f"jitter= is at most {LONGEST_JITTER:g} seconds (a day), not {jitter:g}")


def _missed(missed: ScheduleMissed) -> int:
    from stepwell_runtime.schedules.plans import MOST_MISSED

    given: Any = missed
    if given == "skip":
        return 0
    if given == "once":
        return 1
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(
            "missed= is 'skip', 'once', or a number: so many of the latest missed ticks; not "
            f"{missed!r}"
        )
    return check.whole(given, "missed", 1, MOST_MISSED) or 1


def missed_word(made_up: int) -> ScheduleMissed:
    return "skip" if made_up == 0 else "once" if made_up == 1 else made_up


def _refuse_options(options: CallOptions) -> None:
    if isinstance(options.expires, datetime):
        raise ValueError(
            "the call has expires= as a moment, which would be the same for all runs of a "
            "schedule: write the seconds in which each must have been started"
        )
    for name in ("id", "delay", "at", "after"):
        if getattr(options, name) is not None:
            raise ValueError(
                f"the call has {name}=, which each run of a schedule has of its own: take it away"
            )


def rule_of(cron: str | None, tz: str | None, every: Seconds | None, at: datetime | None) -> Rule:
    """Return when a schedule ticks; it may read a time zone from disk.

    Raises TypeError, ValueError.
    """
    from stepwell_runtime.schedules.rules import Cron, Every, Once

    start = None if at is None else check.wall_time(at, "at=")
    if tz is not None and cron is None:
        raise ValueError("tz= is the time zone of a cron pattern, and there is no cron=")
    if cron is not None:
        if every is not None or at is not None:
            raise ValueError("cron= says when: give neither every= nor at= beside it")
        for value, what in ((cron, "cron"), (tz, "tz")):
            given: Any = value
            if given is not None and not isinstance(given, str):
                raise TypeError(f"{what}= takes a string, not {value!r}")
        return Cron(" ".join(cron.split()), "UTC" if tz is None else tz)
    if every is not None:
        period = check.positive_seconds(every, "every")
        assert period is not None
        return Every(period, start)
    if start is None:
        raise ValueError("say when: cron=, every= or at=")
    return Once(start)

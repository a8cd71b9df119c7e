"""What is stored of a schedule: its rule and what it starts, and the verbs that start it."""

from __future__ import annotations

import dataclasses
import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from stepwell_queue.clock import Timer
from stepwell_queue.contract import NewRun, Overlap, PutSchedule, ScheduleRow, Tick
from stepwell_queue.errors import StepwellError
from stepwell_runtime.definitions import DEFAULT_OPTIONS, CallOptions, Definition
from stepwell_runtime.launch import Launcher, derived_nonce
from stepwell_runtime.policy import with_scheduled
from stepwell_runtime.schedules.rules import Rule, latest

ON_TIME: Final = 10.0
"""Seconds after a tick until which it is dealt with as if nothing had been; then it is missed."""
MOST_MISSED: Final = 1000
"""Ticks that are made up for, at most."""


@dataclass(frozen=True)
class Declaration:
    """A schedule as code asks for it, checked.

    `missed`: how many missed ticks are made up for, the latest ones. `jitter`: seconds by which a
    run starts later, at most.
    """

    id: str
    rule: Rule
    overlap: Overlap = Overlap.SKIP
    missed: int = 1
    jitter: float = 0.0
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    options: CallOptions = DEFAULT_OPTIONS


class StandingClock:
    """Stands at zero: times that are made with it are spans."""

    def now(self) -> float:
        return 0.0

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        raise NotImplementedError


class Plan(msgspec.Struct, frozen=True):
    """What the store keeps of a declaration, without knowing what it says.

    The times of `run` count from its start, and it has no id yet: see `StandingClock`.
    """

    rule: Rule
    run: NewRun
    missed: int = 1
    jitter: float = 0.0

    def run_at(self, id: str, nonce: int, due: float | None, now: float) -> NewRun:
        """Return a run to be started at `due`, or now."""
        start = now if due is None else max(due, now)
        terms = self.run.terms
        if terms is not None:
            expires, until = _later(terms.expires, start), _later(terms.held_until, start)
            terms = replace(terms, expires=expires, held_until=until)
        deadline = _later(self.run.deadline, start)
        return replace(
            self.run, id=id, nonce=nonce, at=now, due=due, deadline=deadline, terms=terms
        )


def _later(span: float | None, start: float) -> float | None:
    return None if span is None else start + span


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Plan).decode


def read_plan(data: bytes) -> Plan:
    """Return a plan that was stored. Raises StepwellError where this code cannot read it."""
    try:
        return _decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise StepwellError(
            f"it cannot be read here: {error}; it was made by a newer Stepwell, or on a machine "
            "that knows more time zones"
        ) from error


def put_verb(
    declared: Declaration, definition: Definition, launcher: Launcher, source: str, now: float
) -> PutSchedule:
    """Return what makes this schedule; the launcher's clock stands. Raises SerializationError."""
    options = dataclasses.replace(declared.options, id="schedule")  # so that there is a digest
    new = launcher.new_run(definition, declared.args, declared.kwargs, options)
    run = replace(new, id="", nonce=0)
    plan = Plan(declared.rule, run, declared.missed, declared.jitter)
    # Equal arguments may be written in more ways than one, so their own digest stands for them.
    told = _encode((replace(plan, run=replace(run, args=b"")), int(declared.overlap), source))
    return PutSchedule(
        declared.id,
        hashlib.blake2b(told, digest_size=16).digest(),
        _encode(plan),
        int(declared.overlap),
        source,
        declared.rule.first(now),
        now,
    )


def tick_verbs(row: ScheduleRow, plan: Plan, now: float, chance: random.Random) -> list[Tick]:
    """Return what deals with all ticks of a schedule that have come."""
    first, rule = row.next, plan.rule
    assert first is not None
    late = now - first > ON_TIME
    ticks = latest(rule, first, now, plan.missed if late else MOST_MISSED)
    why = "" if ticks and ticks[0] == first else f"missed from {rule.label(first)} on"
    if not ticks:
        return [Tick(row.id, row.digest, first, first, rule.next_after(now), None, why, now)]
    verbs: list[Tick] = []
    expected = first
    for tick, following in zip(ticks, (*ticks[1:], rule.next_after(now)), strict=True):
        id = f"schedule:{row.id}@{rule.label(tick)}"
        due = tick + chance.uniform(0.0, plan.jitter) if plan.jitter else tick
        run = plan.run_at(id, derived_nonce(id, "tick"), due, now)
        if due != tick:  # the run tells which tick it is for, however late it starts
            run = replace(run, options=with_scheduled(run.options, tick))
        verbs.append(Tick(row.id, row.digest, expected, tick, following, run, why, now))
        expected, why = following or tick, ""
    return verbs

"""What is said to schedules, and the starting of their runs."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from stepwell_queue.contract import (
    DropSchedule,
    NewRun,
    Overlap,
    PauseSchedule,
    PutSchedule,
    ResumeSchedule,
    RunSchedule,
    Start,
    Started,
    Terms,
    Tick,
)
from stepwell_queue.errors import RequestRefused, ScheduleNotFound, StepwellError
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import Tx
from stepwell_queue.sqlite.verbs_start import start

_FIND, _INSERT, _CHANGE = SQL["find_schedule"], SQL["insert_schedule"], SQL["change_schedule"]
_PAUSE, _RESUME, _ADVANCE = SQL["pause_schedule"], SQL["resume_schedule"], SQL["advance_schedule"]
_FIND_TICK, _INSERT_TICK = SQL["find_tick"], SQL["insert_tick"]
_FIND_MANUAL, _UNENDED, _FORGET = (
    SQL["find_manual"], SQL["unended_of_schedule"], SQL["forget_ticks"],
)  # fmt: skip
KEPT: Final = 100
"""How many ticks of a schedule are remembered, beside those whose runs have not ended."""


LARGEST_PLAN: Final = 64 * 1024


def put_schedule(tx: Tx, verb: PutSchedule) -> None:
    if len(verb.plan) > LARGEST_PLAN:
        raise RequestRefused(
            f"schedule {verb.id!r} has {len(verb.plan)} bytes with its arguments, and the limit is "
            f"{LARGEST_PLAN}: keep large values elsewhere and pass a reference"
        )
    found = tx.one(_FIND, (verb.id,))
    fields = verb.digest, verb.plan, int(verb.overlap), verb.source
    if found is None:
        tx.execute(_INSERT, (verb.id, *fields, verb.at, verb.at, verb.next))
        return
    number, digest, _, source, _, _ = found
    if bool(source) != bool(verb.source):
        raise RequestRefused(_said_elsewhere(verb, source))
    if digest != verb.digest:
        tx.execute(_CHANGE, (*fields, verb.at, verb.next, number))


def _said_elsewhere(verb: PutSchedule, source: str) -> str:
    there = f"is declared in the module {source}" if source else "was made at run time"
    asker = f"the module {verb.source}" if verb.source else "an app at run time"
    return (
        f"schedule {verb.id!r} {there}, and {asker} asks for another one of this id: use another "
        "id, or delete the one that is there"
    )


def drop_schedule(tx: Tx, verb: DropSchedule) -> None:
    tx.execute(SQL["drop_ticks"], (verb.id,))
    tx.execute(SQL["drop_schedule"], (verb.id,))


def pause_schedule(tx: Tx, verb: PauseSchedule) -> None:
    tx.execute(_PAUSE, (_found(tx, verb.id)[0],))


def resume_schedule(tx: Tx, verb: ResumeSchedule) -> None:
    tx.execute(_RESUME, (verb.next, _found(tx, verb.id)[0]))


def _found(tx: Tx, id: str) -> Any:
    found = tx.one(_FIND, (id,))
    if found is None:
        raise ScheduleNotFound(id)
    return found


def tick(tx: Tx, verb: Tick) -> str | None:
    found = tx.one(_FIND, (verb.id,))
    if found is None:
        return None
    number, _, overlap, _, _, _ = found
    tx.execute(_ADVANCE, (verb.tick, verb.following, number, verb.expected, verb.digest))
    if tx.cursor.rowcount == 0:  # somebody else was first, or this is said again
        done = tx.one(_FIND_TICK, (number, verb.tick))
        return None if done is None else done[0]
    started, why = (None, verb.why) if verb.run is None else _started(tx, number, overlap, verb)
    run, run_id = (None, None) if started is None else (started.run, started.id)
    tx.execute(_INSERT_TICK, (number, verb.tick, verb.at, run, run_id, why, 0))
    tx.execute(_FORGET, (number, number, KEPT, overlap == Overlap.ALLOW))
    return run_id


def _started(tx: Tx, number: int, overlap: int, verb: Tick) -> tuple[Started | None, str]:
    """Start the run of a tick, unless the one before is in the way; and what is to be said."""
    new, why = verb.run, verb.why
    assert new is not None
    if overlap != Overlap.ALLOW:
        unended = tx.execute(_UNENDED, (number,)).fetchall()
        if unended and overlap == Overlap.SKIP:
            return None, _also(why, f"run {unended[-1][0]} had not ended")
        waiting = [id for id, fence in unended if fence == 0]
        if waiting:
            return None, _also(why, f"run {waiting[-1]} was waiting already")
        if unended:
            new = _after(new, [id for id, _ in unended])
    try:
        return start(tx, Start(new)), why
    except StepwellError as refused:  # the schedule goes on, and its history says why
        return None, _also(why, str(refused))


def _after(new: NewRun, ids: list[str]) -> NewRun:
    return replace(new, terms=replace(new.terms or Terms(), after=ids, anyhow=True))


def _also(why: str, more: str) -> str:
    return f"{why}; {more}" if why else more


def run_schedule(tx: Tx, verb: RunSchedule) -> Started:
    number, _, overlap, _, _, _ = _found(tx, verb.id)
    started = start(tx, Start(verb.run))
    if tx.one(_FIND_MANUAL, (number, started.run)) is None:
        at = verb.run.at
        tx.execute(_INSERT_TICK, (number, at, at, started.run, started.id, "", 1))
        tx.execute(_FORGET, (number, number, KEPT, overlap == Overlap.ALLOW))
    return started

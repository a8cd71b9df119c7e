"""Checks at submit: the type and the size of each verb."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from stepwell_queue.contract import (
    AnyVerb,
    Append,
    Ask,
    CancelRun,
    Claim,
    DropSchedule,
    Emit,
    Finish,
    Fork,
    ImportRuns,
    KeepNames,
    LeaseUpkeep,
    NewRun,
    Park,
    PauseName,
    PauseQueue,
    PauseSchedule,
    Prune,
    PurgeDeadLetters,
    PurgeQueue,
    PutQuestion,
    PutSchedule,
    Report,
    Requeue,
    Reschedule,
    ResumeName,
    ResumeQueue,
    ResumeSchedule,
    RunSchedule,
    SayState,
    SendSignal,
    SetQueue,
    Settle,
    Start,
    StartMany,
    Terminate,
    Terms,
    Tick,
)
from stepwell_queue.contract.continuing import Continue
from stepwell_queue.contract.copies import MOST_COPIES
from stepwell_queue.contract.dead_letters import MOST_DEAD_LETTERS
from stepwell_queue.contract.notes import ITEMS_AT_ONCE
from stepwell_queue.contract.reports import MOST_LINES
from stepwell_queue.contract.retention import MOST_TREES

MAX_BYTES: Final = 64 * 1024 * 1024
MAX_RUNS: Final = 100_000
SMALL: Final = 256  # what a row weighs beside its values


def _terms(terms: Terms) -> int:
    return SMALL * len(terms.after) + sum([len(failure) for failure in terms.failures])


def _start(verb: Start) -> int:
    new = verb.run
    size = SMALL + len(new.args)
    return size if new.terms is None else size + _terms(new.terms)


def _new(new: NewRun) -> int:
    return SMALL + len(new.args) + (0 if new.terms is None else _terms(new.terms))


def _start_many(verb: StartMany) -> int:
    runs = verb.runs
    if len(runs) > MAX_RUNS:
        raise ValueError(f"StartMany takes at most {MAX_RUNS} runs at once, got {len(runs)}")
    size = SMALL * len(runs) + sum([len(new.args) for new in runs])
    return size + sum([_terms(new.terms) for new in runs if new.terms is not None])


def _append(verb: Append) -> int:
    size = SMALL
    for record in verb.records:
        size += SMALL + len(record.value)
    if verb.opened or verb.children:
        size += sum([SMALL + len(op.value) for op in verb.opened])
        size += sum([_new(child) for _, child in verb.children])
    if verb.notes:
        size += sum([SMALL + len(note.value) for note in verb.notes])
    return size


def _park(verb: Park) -> int:
    return SMALL + sum([len(op.value) for op in verb.opened])


def _finish(verb: Finish) -> int:
    return SMALL + len(verb.value)


def _settle(verb: Settle) -> int:
    return SMALL + len(verb.error)


def _reschedule(verb: Reschedule) -> int:
    return SMALL + len(verb.error or b"")


def _continue(verb: Continue) -> int:
    return SMALL * (1 + len(verb.unread)) + len(verb.args)


def _signal(verb: SendSignal) -> int:
    return SMALL + len(verb.value)


def _cancel(verb: CancelRun) -> int:
    return SMALL + len(verb.reason)


def _fork(verb: Fork) -> int:
    # the records that are copied weigh, too
    return SMALL * (2 + min(verb.length, MAX_RUNS)) + _new(verb.run)


def _terminate(verb: Terminate) -> int:
    # It may have many children, which nobody knows here: enough not to be done on the loop.
    return SMALL * 600 + len(verb.value)


def _put_schedule(verb: PutSchedule) -> int:
    return SMALL + len(verb.plan)


def _tick(verb: Tick) -> int:
    return SMALL if verb.run is None else SMALL + _new(verb.run)


def _run_schedule(verb: RunSchedule) -> int:
    return SMALL + _new(verb.run)


def _report(verb: Report) -> int:
    if len(verb.lines) > MOST_LINES:
        raise ValueError(f"Report takes at most {MOST_LINES} lines at once, got {len(verb.lines)}")
    return SMALL + sum([SMALL + len(line.text) + len(line.fields) for line in verb.lines])


def _import_runs(verb: ImportRuns) -> int:
    if len(verb.runs) > MOST_COPIES:
        raise ValueError(f"ImportRuns takes at most {MOST_COPIES} runs, got {len(verb.runs)}")
    size = SMALL
    for copy in verb.runs:
        size += 2 * SMALL + len(copy.run.args) + len(copy.value)
        for rows in (copy.journal, copy.open_ops, copy.inbox, copy.absorbed):
            size += sum([SMALL + len(row.value) for row in rows])
        for said in (copy.values, copy.items, copy.answers):
            size += sum([SMALL + len(row.value) for row in said])
        size += sum([SMALL + len(row.error) for row in copy.failures])
        size += SMALL * len(copy.audit)
    return size


def _emit(verb: Emit) -> int:
    if len(verb.items) > ITEMS_AT_ONCE:
        raise ValueError(f"Emit takes at most {ITEMS_AT_ONCE} items at once, got {len(verb.items)}")
    return SMALL + sum([SMALL + len(item.value) for item in verb.items])


def _question(verb: PutQuestion) -> int:
    return SMALL + len(verb.value)


def _dead_letters(verb: Requeue | PurgeDeadLetters) -> int:
    count, kind = len(verb.ids), type(verb).__name__
    if count > MOST_DEAD_LETTERS:
        raise ValueError(f"{kind} takes at most {MOST_DEAD_LETTERS} ids at once, got {count}")
    return SMALL * (count + 1)


def _purge(verb: PurgeQueue) -> int:
    return SMALL * (1 + max(0, min(verb.limit, MAX_RUNS)))


def _prune(verb: Prune) -> int:
    """A run has rows in several tables."""
    if len(verb.trees) > MOST_TREES:
        raise ValueError(f"Prune takes at most {MOST_TREES} trees, got {len(verb.trees)}")
    runs = sum([tree.size for tree in verb.trees])
    return 4 * SMALL * (1 + max(0, min(runs, MAX_RUNS // 4)))


def _keep_names(verb: KeepNames) -> int:
    return SMALL * (1 + len(verb.names))


def _other(verb: AnyVerb) -> int:
    return SMALL


# how many bytes a verb adds to its batch
WEIGHTS: Final[dict[type[AnyVerb], Callable[[Any], int]]] = {
    Start: _start,
    StartMany: _start_many,
    SendSignal: _signal,
    CancelRun: _cancel,
    Ask: _other,
    Terminate: _terminate,
    Fork: _fork,
    PauseName: _other,
    ResumeName: _other,
    Prune: _prune,
    KeepNames: _keep_names,
    LeaseUpkeep: _other,
    Claim: _other,
    Append: _append,
    Park: _park,
    Finish: _finish,
    Settle: _settle,
    Reschedule: _reschedule,
    Continue: _continue,
    SetQueue: _other,
    PauseQueue: _other,
    ResumeQueue: _other,
    PurgeQueue: _purge,
    Report: _report,
    Emit: _emit,
    PutQuestion: _question,
    Requeue: _dead_letters,
    PurgeDeadLetters: _dead_letters,
    SayState: _other,
    PutSchedule: _put_schedule,
    DropSchedule: _other,
    PauseSchedule: _other,
    ResumeSchedule: _other,
    Tick: _tick,
    RunSchedule: _run_schedule,
    ImportRuns: _import_runs,
}


def refuse(verb: object, weight: int) -> NoReturn:
    """Say why a verb is not taken; what weighs less than nothing is none."""
    if weight < 0:
        raise TypeError(f"{type(verb).__name__} is not a verb of the store contract")
    raise ValueError(
        f"{type(verb).__name__} of {weight} bytes is over the limit of {MAX_BYTES}: "
        "send it in parts, or keep large values elsewhere and pass a reference"
    )

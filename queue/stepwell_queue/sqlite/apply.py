"""Applying one batch: one function, one transaction, on whichever thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final

from stepwell_queue.contract import (
    AnyVerb,
    Append,
    Ask,
    CancelRun,
    Claim,
    Continue,
    DropSchedule,
    Emit,
    Finish,
    Fork,
    ImportRuns,
    KeepNames,
    LeaseUpkeep,
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
    Tick,
)
from stepwell_queue.errors import StepwellError
from stepwell_queue.sqlite import (
    verbs_claim,
    verbs_client,
    verbs_continue,
    verbs_copy,
    verbs_dead_letter,
    verbs_fork,
    verbs_note,
    verbs_prune,
    verbs_queue,
    verbs_remote,
    verbs_report,
    verbs_run,
    verbs_schedule,
    verbs_start,
    verbs_steer,
    verbs_worker,
)
from stepwell_queue.sqlite.tx import Context, Effects, NotAll, Tx

_HANDLERS: Final[dict[type[AnyVerb], Callable[[Tx, Any], object]]] = {
    Start: verbs_start.start,
    StartMany: verbs_start.start_many,
    Append: verbs_run.append,
    Park: verbs_run.park,
    Finish: verbs_run.finish,
    Settle: verbs_run.settle,
    Reschedule: verbs_run.reschedule,
    Continue: verbs_continue.continue_run,
    Claim: verbs_claim.claim,
    SendSignal: verbs_client.send_signal,
    CancelRun: verbs_client.cancel_run,
    Ask: verbs_client.ask,
    Terminate: verbs_steer.terminate,
    Fork: verbs_fork.fork,
    PauseName: verbs_steer.pause_name,
    ResumeName: verbs_steer.resume_name,
    Prune: verbs_prune.prune,
    KeepNames: verbs_prune.keep_names,
    LeaseUpkeep: verbs_prune.lease_upkeep,
    SetQueue: verbs_queue.set_queue,
    PauseQueue: verbs_queue.pause_queue,
    ResumeQueue: verbs_queue.resume_queue,
    PurgeQueue: verbs_queue.purge_queue,
    Report: verbs_report.report,
    Emit: verbs_note.emit,
    PutQuestion: verbs_note.put_question,
    Requeue: verbs_dead_letter.requeue,
    PurgeDeadLetters: verbs_dead_letter.purge,
    SayState: verbs_worker.say_state,
    PutSchedule: verbs_schedule.put_schedule,
    DropSchedule: verbs_schedule.drop_schedule,
    PauseSchedule: verbs_schedule.pause_schedule,
    ResumeSchedule: verbs_schedule.resume_schedule,
    Tick: verbs_schedule.tick,
    RunSchedule: verbs_schedule.run_schedule,
    ImportRuns: verbs_copy.import_runs,
    verbs_worker.Watch: verbs_worker.watch,
    verbs_worker.Register: verbs_worker.register,
    verbs_worker.Release: verbs_worker.release,
    verbs_worker.Promote: verbs_worker.promote,
    verbs_worker.Sweep: verbs_worker.sweep,
    verbs_remote.Adopt: verbs_remote.adopt,
    verbs_remote.Attach: verbs_remote.attach,
    verbs_remote.Lapse: verbs_remote.lapse,
    verbs_remote.SweepRemote: verbs_remote.sweep_remote,
}

# Plain verbs of a kind that follow one another are applied together: which are plain, and how.
_TOGETHER: Final[
    dict[
        type[AnyVerb],
        tuple[Callable[[Any], bool], Callable[[Tx, Sequence[Any]], Sequence[Any] | None]],
    ]
] = {
    Append: (verbs_run.is_plain, verbs_run.append_some),
    Finish: (verbs_run.is_plain_end, verbs_run.finish_some),
    SendSignal: (lambda verb: True, verbs_client.send_some),
}

# With these it stays known how many runs are ready, or they say that it is not.
_COUNTING: Final = frozenset(
    (Start, StartMany, Append, Park, Finish, Settle, Reschedule, Continue, Claim, Report, Emit)
)

# These are about the store or the transaction, not about one verb's content.
_OUTAGES = (sqlite3.OperationalError, sqlite3.InternalError, MemoryError)


Batch = Sequence[tuple[AnyVerb, object, int]]  # verb, and what the loop knows of it


class Outage(Exception):
    """The batch was rolled back as a whole; `__cause__` says why."""


class Busy(Exception):
    """Another connection holds the write lock."""


def apply(db: sqlite3.Connection, context: Context, batch: Batch) -> tuple[list[Any], Effects]:
    """Apply the verbs in order and commit; each result is an answer or what refused the verb.

    Raises Busy if the write lock is taken, Outage if nothing could be committed.
    """
    refused: dict[int, Exception] = {}
    together = True
    while True:
        tx = Tx(db.cursor(), context)
        results: list[Any] = []
        try:
            begin(tx.execute)
            _apply_each(tx, batch, refused, together, results)
            tx.execute("COMMIT")
            return results, tx.effects
        except NotAll:
            _roll_back(db, tx)
            together = False  # which ones shows when each is alone
        except (Busy, Outage):
            _roll_back(db, tx)
            raise
        except Exception as error:
            _roll_back(db, tx)
            if _is_outage(error) or len(results) == len(batch):
                raise Outage(str(error)) from error
            # the verb may have left a part of it: the batch is done again without it
            refused[len(results)] = error
        except BaseException:
            _roll_back(db, tx)
            raise


def _apply_each(
    tx: Tx,
    batch: Batch,
    refused: dict[int, Exception],
    together: bool,
    results: list[Any],
) -> None:
    plain: list[AnyVerb] = []  # of one kind, still to be applied
    for verb, _, _ in batch:
        if refused and len(results) in refused:
            results.append(refused[len(results)])
            continue
        kind = type(verb)
        if together and kind in _TOGETHER and _TOGETHER[kind][0](verb):
            if plain and type(plain[0]) is not kind:
                _apply_some(tx, plain, results)
                plain = []
            plain.append(verb)
            results.append(None)
            continue
        if plain:
            _apply_some(tx, plain, results)
            plain = []
        if tx.lengths and kind not in _COUNTING:
            tx.lengths.clear()
        try:
            results.append(_HANDLERS[kind](tx, verb))
        except StepwellError as error:
            results.append(error)
    if plain:
        _apply_some(tx, plain, results)


def _apply_some(tx: Tx, plain: list[AnyVerb], results: list[Any]) -> None:
    try:
        answers = _TOGETHER[type(plain[0])][1](tx, plain)
    except Exception as error:
        if _is_outage(error):
            raise
        raise NotAll from error
    if answers is not None:
        results[-len(plain) :] = answers


def _is_outage(error: Exception) -> bool:
    # The bare class is what corruption and the like raise; its subclasses name faults of the verb.
    return isinstance(error, _OUTAGES) or type(error) is sqlite3.DatabaseError


def begin(execute: Callable[[str], object]) -> None:
    try:
        execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            raise Busy from error
        raise Outage(str(error)) from error


def _roll_back(db: sqlite3.Connection, tx: Tx) -> None:
    # A connection whose cursor keeps a statement stays open when it is closed, with its lock.
    tx.cursor.close()
    context = tx.context
    for session in context.sessions.values():
        session.drained = False
    # what is due, expires or opens may have been dealt with in what was rolled back
    context.next_due = context.next_expiry = context.opens_at = 0.0
    context.gates_stale = True
    context.targets.clear()
    if db.in_transaction:  # a full disk or an I/O error may have ended it already
        db.execute("ROLLBACK")

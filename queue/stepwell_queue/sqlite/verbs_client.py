"""What clients and operators say to a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, NoReturn

from stepwell_queue.contract import (
    Ask,
    CancelRun,
    InboxKind,
    InboxRow,
    Kind,
    Phase,
    Rollback,
    SendSignal,
    Status,
)
from stepwell_queue.errors import RequestRefused, RunEnded, RunNotFound, StepwellError
from stepwell_queue.sqlite.dependents import is_untold
from stepwell_queue.sqlite.pauses import resume
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tell import cancel, tell
from stepwell_queue.sqlite.tx import AT_ONCE, NotAll, Tx
from stepwell_queue.sqlite.verbs_steer import may_not_pause, pause

_ADDRESS, _TOLD, _AUDIT = SQL["address"], SQL["told_already"], SQL["audit"]
_AUDITED, _FORGET, _READY = SQL["audited"], SQL["forget"], SQL["make_ready"]
_HOLD_AGAIN: Final = SQL["take_unique_again"]
_STATUS_OF, _SIGNAL, _COMPLETED = SQL["status_of"], int(InboxKind.SIGNAL), int(Status.COMPLETED)
_RUNNING, _PARKED = int(Status.RUNNING), int(Status.PARKED)
_ALL_STAND, _WAKE_SOME, _TELL = SQL["all_stand"], SQL["wake_some"], SQL["tell"]
_HOLDER, _FRESH, _TAKE_ALL = SQL["holder_of_its_key"], SQL["fresh_budget"], SQL["take_all"]
_TELL_SOME: Final = SQL["tell_some"].format(
    rows=", ".join(["(?, ?, ?, ?, ?, ?, ?, ?)"] * AT_ONCE),
)
_FORGET_PAUSE, _PAUSE_WAITS = SQL["forget_pause"], SQL["pause_waits"]
_PAUSABLE: Final = (int(Status.RUNNING), int(Status.PAUSED))
_INBOX_KINDS = {
    "retry": InboxKind.RETRY,
    "roll_back": InboxKind.ROLL_BACK,
    "resume_rollback": InboxKind.RESUME_ROLLBACK,
    "pause": None,
    "resume": None,
    "requeue": None,
}


class _Address(NamedTuple):
    run: int
    status: int
    worker: int | None
    fence: int
    kind: int
    parent: int | None
    parent_path: str | None
    id: str
    phase: int
    rollback: int


def _find(tx: Tx, id: str) -> _Address:
    row = tx.one(_ADDRESS, (id,))
    if row is None:
        raise RunNotFound(id)
    return _Address(*row)


def send_signal(tx: Tx, verb: SendSignal) -> None:
    found = tx.one(_STATUS_OF, (verb.id,))
    if found is None:
        raise RunNotFound(verb.id)
    run, status = found
    if status >= _COMPLETED:
        if tx.one(_TOLD, (run, verb.uid)) is not None:
            return
        raise RunEnded(verb.id, Status(status).name.lower(), f"the signal {verb.name!r}")
    tell(tx, run, _SIGNAL, verb.uid, verb.name, "", 0, verb.value, verb.at)


def send_some(tx: Tx, verbs: Sequence[SendSignal]) -> list[StepwellError | None]:
    """Answers what refused each signal. Raises NotAll if some are repetitions."""
    key = json.dumps([verb.id for verb in verbs])
    found = {id: stands for id, *stands in tx.execute(_ALL_STAND, (key,)).fetchall()}
    heard: list[tuple[SendSignal, list[Any]]] = []
    answers: list[StepwellError | None] = []
    for verb in verbs:
        stands = found.get(verb.id)
        refusal = None
        if stands is not None and stands[1] < _COMPLETED:
            heard.append((verb, stands))
        else:
            try:
                send_signal(tx, verb)
            except StepwellError as error:
                refusal = error
        answers.append(refusal)
    if heard:
        _tell_some(tx, heard)
    return answers


def _tell_some(tx: Tx, heard: list[tuple[SendSignal, list[Any]]]) -> None:
    rows = [
        (run, _SIGNAL, verb.uid, verb.name, "", 0, bytearray(verb.value), verb.at)
        for verb, (run, *_) in heard
    ]
    took = tx.insert(_TELL_SOME, _TELL, rows)
    if took != len(rows):
        raise NotAll
    # consecutive, since nobody else writes in between
    number = (tx.cursor.lastrowid or 0) - took
    parked: list[int] = []
    for verb, (run, status, worker, target) in heard:
        number += 1
        if status == _PARKED:
            parked.append(run)
            tx.made_ready(target)
        elif status == _RUNNING:
            news = InboxRow(number, run, _SIGNAL, verb.uid, verb.name, "", 0, verb.value, verb.at)
            tx.effects.told.append((worker, news))
    if parked:
        tx.execute(_WAKE_SOME, (tx.now, json.dumps(parked)))


def cancel_run(tx: Tx, verb: CancelRun) -> int:
    found = _find(tx, verb.id)
    if found.status >= Status.COMPLETED:
        return found.status
    tx.execute(_AUDIT, (found.run, verb.uid, verb.at, "cancel", verb.actor, verb.why))
    return cancel(tx, found.run, verb.uid, verb.reason, verb.at)


def ask(tx: Tx, verb: Ask) -> int:
    if verb.action not in _INBOX_KINDS:
        allowed = ", ".join(_INBOX_KINDS)
        raise RequestRefused(f"unknown request {verb.action!r}: use one of {allowed}")
    found = _find(tx, verb.id)
    if tx.one(_AUDITED, (found.run, verb.uid)) is not None:
        return found.status  # said before
    _check(tx, verb, found)
    if verb.action == "pause" or found.status in _PAUSABLE:
        return _pause_or_resume(tx, verb, found)
    if found.status >= Status.COMPLETED:
        if is_untold(tx, found.run):
            _refuse(verb, found, "not all that wait for its end know it: try again in a moment")
        _refuse_second_holder(tx, verb, found)
        _take_back(tx, verb, found)
        tx.execute(_HOLD_AGAIN, (found.run,))
    phase = Phase.ROLLING_BACK if verb.action == "resume_rollback" else found.phase
    reopened = found.status >= Status.COMPLETED
    tx.execute(_FORGET_PAUSE, (found.run,))
    row = (tx.now, int(reopened), int(phase), found.run, found.status)
    ((target,),) = tx.execute(_READY, row).fetchall()
    if verb.action == "requeue":
        tx.execute(_FRESH, (verb.at, found.run))
        tx.execute(_TAKE_ALL, (found.run,))
    kind = _INBOX_KINDS[verb.action]
    if kind is not None:
        tell(tx, found.run, kind, verb.uid, verb.action, "", 0, b"", verb.at)
    tx.execute(_AUDIT, (found.run, verb.uid, verb.at, verb.action, verb.actor, verb.reason))
    tx.made_ready(target)
    return int(Status.READY)


def _pause_or_resume(tx: Tx, verb: Ask, found: _Address) -> int:
    status = found.status
    asked = status == Status.PAUSED or tx.one(_PAUSE_WAITS, (found.run,)) is not None
    # also where nothing changes: said again later, it must not take back what came in between
    tx.execute(_AUDIT, (found.run, verb.uid, verb.at, verb.action, verb.actor, verb.reason))
    if asked == (verb.action == "pause"):
        return status
    if verb.action == "pause":
        return pause(tx, found.run, status, verb.uid, verb.at)
    return resume(tx, found.run, status)


def _check(tx: Tx, verb: Ask, found: _Address) -> None:
    status, action = found.status, verb.action
    if action == "pause":
        why = may_not_pause(tx, found.run, status)
        if why:
            _refuse(verb, found, why)
    if action == "requeue" and not (status == Status.FAILED and found.kind == Kind.TASK):
        _refuse(verb, found, "only a failed task can be requeued")
    if action == "retry":
        if found.kind == Kind.TASK:
            _refuse(verb, found, "a task is no workflow run: requeue it once it has failed")
        if status == Status.HELD or (status == Status.FAILED and found.rollback == Rollback.NONE):
            return
        if status == Status.FAILED:
            why = "its undos have run, so its steps cannot be taken up again"
            _refuse(verb, found, f"{why}: fork it, from the oldest undone step or before")
        _refuse(verb, found, "only a held run, or a failed one without undos, can be retried")
    if action == "roll_back" and status != Status.HELD:
        _refuse(verb, found, "only a held run can be rolled back")
    if action == "resume" and not (
        status in (Status.STUCK, Status.PAUSED)
        or (status == Status.RUNNING and tx.one(_PAUSE_WAITS, (found.run,)) is not None)
    ):
        _refuse(verb, found, "only a stuck or paused run can be resumed")
    if action == "resume_rollback" and not (
        status in (Status.FAILED, Status.CANCELLED) and found.rollback == Rollback.INCOMPLETE
    ):
        _refuse(verb, found, "only an ended run whose rollback is incomplete can resume it")
    if found.kind == Kind.STEP:
        _refuse(verb, found, "it is a step of another run: ask that run")


def _refuse(verb: Ask, found: _Address, why: str) -> NoReturn:
    status = Status(found.status).name.lower()
    raise RequestRefused(f"run {verb.id!r} is {status}: {verb.action} was refused, since {why}")


def _refuse_second_holder(tx: Tx, verb: Ask, found: _Address) -> None:
    (holder,) = tx.one(_HOLDER, (found.run, tx.now))
    if holder is not None:
        _refuse(verb, found, f"run {holder!r} has its unique key by now")


def _take_back(tx: Tx, verb: Ask, found: _Address) -> None:
    """Withdraw the outcome from the parent's inbox; refused if the parent took it, or may have."""
    if found.parent is None:
        return
    told = tx.one(_TOLD, (found.parent, found.id))
    parent = tx.one(SQL["where_held"], (found.parent,))
    if told is None and (parent is None or parent[0] >= _COMPLETED):
        return  # it had ended before, so nobody told it
    if told is None or told[0]:  # a run that has continued as new forgets what it has taken
        _refuse(verb, found, "its parent has taken its outcome already")
    if parent[0] == Status.RUNNING:
        _refuse(verb, found, "its parent is taking its outcome just now")
    tx.execute(_FORGET, (found.parent, found.id))

"""Inserting runs on terms: with keys, by ageing, unique, after others, into queues with an end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from stepwell_queue.contract import Ended, Hold, NewRun, Started, Status, Terms
from stepwell_queue.errors import QueueFull, RequestRefused, RunNotFound
from stepwell_queue.sqlite.dependents import fail, release
from stepwell_queue.sqlite.gate import close, lane_of, refresh
from stepwell_queue.sqlite.inserts import ARGS, VALUE, existing, future, row_of
from stepwell_queue.sqlite.lengths import came_ready, ready_in
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import INLINE, Tx

_INSERT, _BLOB, _DROP_BLOB = SQL["insert_with_terms"], SQL["put_blob"], SQL["drop_blob"]
_PUT_TERMS: Final = SQL["put_terms"]
_HOLDER, _LEAVE, _REPLACE = SQL["unique_holder"], SQL["leave_unique"], SQL["replace_run"]
_REPLACED, _AUDIT, _FORGET = SQL["replaced_by"], SQL["audit"], SQL["forget_replacements"]
_STANDS, _DEPEND, _AWAIT = SQL["all_stand"], SQL["insert_dependency"], SQL["have_awaited"]
_WAITS, _CIRCLE = SQL["any_dependency"], SQL["waits_for"]
_SCHEDULED, _READY = int(Status.SCHEDULED), int(Status.READY)
_COMPLETED, _FAILED = int(Status.COMPLETED), int(Status.FAILED)
NO_TERMS: Final = Terms()
_REPLACEMENTS_KEPT: Final = 100
_NAMED: Final = 3
"""Runs that are named where people see what a run waits for."""


class Need(NamedTuple):
    """A run whose end is waited for."""

    run: int
    id: str
    status: int
    anyhow: bool
    failure: bytes


class Plan(NamedTuple):
    """How a run stands once it is inserted."""

    status: int
    due: float | None
    waiting: str
    needs: Sequence[Need]  # that have not ended
    failure: bytes = b""  # for a run that fails by what it waits for


class Columns(NamedTuple):
    """What terms and the settings of a queue are as columns."""

    target: int
    priority: int
    lane: int
    unique: str | None
    terms: tuple[str | float | None, ...]
    special: bool  # what is claimed for the target has to be looked at one by one


def is_bound(tx: Tx, queue: str) -> bool:
    """Whether this queue has settings that concern the inserting of runs."""
    context = tx.context
    if context.gates_stale:
        refresh(tx)
    gate = context.gates.get(queue)
    return gate is not None and (
        gate.settings.ageing is not None or gate.settings.max_length is not None
    )


def start_on_terms(tx: Tx, new: NewRun) -> Started:
    """Insert a run, or find the same one, or that which has its unique key.

    Raises IdConflict, RunNotFound, QueueFull; then nothing has changed.
    """
    terms = new.terms or NO_TERMS
    if terms.unique or terms.after or _is_full(tx, new.queue):
        found = existing(tx, new)
        if found is not None:
            return found
    needs = needs_of(terms, standing(tx, terms.after)) if terms.after else []
    if terms.unique:
        columns = columns_of(tx, new, terms)
        assert columns.unique is not None
        said_before = tx.one(_REPLACED, (said(new),)) if terms.replace else None
        if said_before is not None:
            return Started(said_before[0], said_before[1], False, said_before[2])
        holder = tx.one(_HOLDER, (columns.unique, tx.now))
        if holder is not None:
            run, id, status, fence, hold, is_large = holder
            waits = fence == 0 and status <= _READY
            if terms.replace and waits:
                return _replace(tx, run, id, new, columns, needs, is_large=bool(is_large))
            if not terms.replace or hold != Hold.UNENDED:
                return Started(run, id, False, status)
            # It runs with what it was given, so this call starts after it: no update is lost.
            needs = [*needs, Need(run, id, status, True, b"")]
        _refuse_full(tx, new.queue)
        tx.execute(_LEAVE, (columns.unique, tx.now))
    else:
        _refuse_full(tx, new.queue)
        columns = columns_of(tx, new, terms)
    return _insert(tx, new, columns, plan_of(tx, new, needs))


def child_on_terms(tx: Tx, parent: int, path: str, new: NewRun) -> bool:
    """Insert a child, however long the queue is; False: its id is taken."""
    terms = new.terms or NO_TERMS
    if terms.unique or terms.after:
        raise RequestRefused(
            f"run {new.id!r} is a child, whose end its parent waits for: it cannot have a unique "
            "key or wait for other runs"
        )
    columns, plan = columns_of(tx, new, terms), plan_of(tx, new, ())
    run = _put(tx, new, columns, plan, parent, path)
    if run is None:
        return False
    announce(tx, columns.target, plan, terms.expires)
    if plan.status == _READY:
        came_ready(tx, new.queue)
    return True


def _insert(tx: Tx, new: NewRun, columns: Columns, plan: Plan) -> Started:
    run = _put(tx, new, columns, plan)
    if run is None:
        found = existing(tx, new)
        assert found is not None
        return found
    if plan.status == _FAILED:
        tx.effects.rested.append(Ended(run, _FAILED, plan.failure))
        return Started(run, new.id, True, _FAILED)
    depend(tx, [(run, need) for need in plan.needs])
    announce(tx, columns.target, plan, None if new.terms is None else new.terms.expires)
    if plan.status == _READY:
        came_ready(tx, new.queue)
    return Started(run, new.id, True, plan.status)


def _put(
    tx: Tx,
    new: NewRun,
    columns: Columns,
    plan: Plan,
    parent: int | None = None,
    path: str | None = None,
) -> int | None:
    """Insert the row; answers its number, or None if the id is taken."""
    row = list(row_of(new, columns.target, tx.now))
    row[2] = columns.priority
    failed, large = plan.status == _FAILED, len(plan.failure) > INLINE
    tx.execute(
        _INSERT,
        (
            *row, plan.status, plan.due, new.due, new.deadline, columns.lane, plan.waiting,
            None if large else plan.failure, tx.now if failed else None, parent, path, parent,
        ),
    )  # fmt: skip
    if tx.cursor.rowcount == 0:
        return None
    run = tx.cursor.lastrowid or 0
    if len(new.args) > INLINE:
        tx.execute(_BLOB, (run, ARGS, new.args))
    if large:
        tx.execute(_BLOB, (run, VALUE, plan.failure))
    if columns.special:
        close(tx, columns.target)
    if any(one is not None for one in columns.terms):
        tx.execute(_PUT_TERMS, (run, *columns.terms))
    return run


def columns_of(tx: Tx, new: NewRun, terms: Terms) -> Columns:
    priority, asked = _aged(tx, new)
    unique = f"{new.kind} {new.name}\n{terms.unique}" if terms.unique else None
    return Columns(
        tx.target(new.queue, new.kind, new.name, new.version),
        priority,
        lane_of(new.queue, terms.key) if terms.key else 0,
        unique,
        (
            terms.key or None, asked, terms.expires, unique,
            None if unique is None else terms.hold,
            terms.held_until if unique is not None and terms.hold == Hold.UNTIL else None,
        ),
        bool(terms.key) or terms.expires is not None,
    )  # fmt: skip


def _aged(tx: Tx, new: NewRun) -> tuple[int, int | None]:
    """The priority by which it is claimed, and that which was asked for, if it is another.

    Both of two runs that wait gain at the same pace, so their order never changes: each is counted
    from one time for all, and what came later has less.
    """
    if tx.context.gates_stale:
        refresh(tx)
    gate = tx.context.gates.get(new.queue)
    if gate is None or gate.settings.ageing is None or gate.ageing_since is None:
        return new.priority, None
    waits_from = max(tx.now, new.due or tx.now)
    steps = int(max(waits_from - gate.ageing_since, 0.0) // gate.settings.ageing)
    return new.priority - steps, new.priority


def standing(tx: Tx, ids: Sequence[str]) -> dict[str, tuple[int, int]]:
    """The numbers and statuses of those of these runs that are there, by id."""
    rows = tx.execute(_STANDS, (json.dumps(list(ids)),)).fetchall()
    return {id: (run, status) for id, run, status, _, _ in rows}


def needs_of(terms: Terms, found: Mapping[str, tuple[int, int]]) -> list[Need]:
    """The runs to wait for; `found`: how each stands. Raises RunNotFound."""
    needs: dict[int, Need] = {}
    for place, id in enumerate(terms.after):
        if id not in found:
            raise RunNotFound(id)
        run, status = found[id]
        failure = terms.failures[place] if place < len(terms.failures) else b""
        needs.setdefault(run, Need(run, id, status, terms.anyhow, failure))
    return list(needs.values())


def plan_of(tx: Tx, new: NewRun, needs: Sequence[Need], *, waits: bool = False) -> Plan:
    """`waits`: it waits for other runs beside these."""
    for need in needs:
        if need.status > _COMPLETED and not need.anyhow:
            return Plan(_FAILED, None, "", (), need.failure)
    unended = [need for need in needs if need.status < _COMPLETED]
    if unended or waits:
        names = ", ".join(need.id for need in unended[:_NAMED])
        more = f" and {len(unended) - _NAMED} more" if len(unended) > _NAMED else ""
        return Plan(_SCHEDULED, None, f"the end of {names}{more}" if names else "", unended)
    due = future(new, tx.now)
    return Plan(_READY if due is None else _SCHEDULED, due, "", ())


def depend(tx: Tx, waits: Sequence[tuple[int, Need]]) -> None:
    """Have runs wait for others, each given with that for which it does."""
    if waits:
        tx.executemany(
            _DEPEND, [(run, need.run, need.anyhow, bytearray(need.failure)) for run, need in waits]
        )
        tx.execute(_AWAIT, (json.dumps([need.run for _, need in waits]),))


def announce(tx: Tx, target: int, plan: Plan, expires: float | None) -> None:
    if plan.status == _READY:
        tx.wake(target)
    elif plan.due is not None:
        tx.made_due(plan.due)
    if expires is not None:
        tx.made_expiring(expires)


def _replace(
    tx: Tx,
    run: int,
    id: str,
    new: NewRun,
    columns: Columns,
    needs: Sequence[Need],
    *,
    is_large: bool,
) -> Started:
    """Give a run that nobody has claimed what this call would execute, and when."""
    if needs and tx.one(_CIRCLE, (json.dumps([need.run for need in needs]), run)) is not None:
        raise RequestRefused(
            f"run {id!r}, which has the unique key, cannot wait for itself or for what waits for "
            "it, so it was not replaced: leave that out of after=, or use another key"
        )
    waits = tx.one(_WAITS, (run,)) is not None
    plan = plan_of(tx, new, needs, waits=waits)
    fails = plan.status == _FAILED
    status = _SCHEDULED if fails else plan.status
    large = len(new.args) > INLINE
    tx.execute(
        _REPLACE,
        (
            columns.target, columns.priority, tx.now, bytearray(new.digest),
            bytearray(new.options), None if large else bytearray(new.args), status, plan.due,
            new.due, new.deadline, columns.lane,
            None if waits and not plan.waiting else plan.waiting, run,
        ),
    )  # fmt: skip
    tx.lengths.clear()
    tx.execute(_PUT_TERMS, (run, *columns.terms))
    if large:
        tx.execute(_BLOB, (run, ARGS, new.args))
    elif is_large:
        tx.execute(_DROP_BLOB, (run, ARGS))
    if columns.special:
        close(tx, columns.target)
    tx.execute(_AUDIT, (run, said(new), tx.now, "replace", "", ""))
    tx.execute(_FORGET, (run, run, _REPLACEMENTS_KEPT))
    if fails:
        fail(tx, run, plan.failure)
        release(tx, run, _FAILED)
        return Started(run, id, False, _FAILED)
    depend(tx, [(run, need) for need in plan.needs])
    announce(tx, columns.target, plan, None if new.terms is None else new.terms.expires)
    return Started(run, id, False, plan.status)


def said(new: NewRun) -> str:
    """Names a call that replaced a run, so that it is known when it is said again."""
    return f"replace-{new.nonce}"


def _is_full(tx: Tx, queue: str) -> bool:
    """Whether as many runs are ready as may be."""
    limit = longest(tx, queue)
    return limit is not None and ready_in(tx, queue, limit) >= limit


def _refuse_full(tx: Tx, queue: str) -> None:
    """Raise QueueFull if a queue is full."""
    if _is_full(tx, queue):
        raise QueueFull(queue, longest(tx, queue) or 0)


def longest(tx: Tx, queue: str) -> int | None:
    """How many runs may be ready in a queue; None = any number."""
    refresh(tx)
    gate = tx.context.gates.get(queue)
    return None if gate is None else gate.settings.max_length

"""Compares what a sample claims with what is in its store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.checks import check_together
from bench.pending import FREE
from bench.spec import DRAINS, Measured, Spec, Unreconciled
from bench.workloads import order_of
from stepwell import Stepwell
from stepwell_queue.contract import (
    CountRuns,
    History,
    RecordKind,
    Rollback,
    RunFilter,
    RunInfo,
    Status,
)

_PAGE: Final = 10_000
Decode = Callable[[bytes], Any]


class Shape(msgspec.Struct, frozen=True):
    """What must hold of one run. `steps` and `undos` in the order of their records."""

    status: str
    steps: tuple[str, ...] = ()
    undos: tuple[str, ...] = ()
    failed_step: str = ""
    rollback: str = "none"
    signals: tuple[str, ...] = ()
    claims: int = 1


_BRANCHES: Final = ("price", "route", "stock")
SHAPES: Final = {
    "linear": Shape("completed", ("validate", "transform", "persist")),
    "parallel": Shape("completed", ("prepare", *_BRANCHES, "join")),
    "compensation": Shape(
        "failed",
        ("reserve", "charge"),
        undos=("refund", "release"),
        failed_step="decline",
        rollback="complete",
    ),
    # Claimed once when it started and once when the signal woke it: it was parked once.
    "signal": Shape("completed", ("request", "finish"), signals=("approved",), claims=2),
}


def shape_of(history: History) -> Shape:
    """What the store says of a run."""
    done = [record for record in history.journal if record.kind == RecordKind.STEP_OK]
    forward = [record.name for record in done if not record.path.startswith("~")]
    failed = [record.name for record in history.journal if record.kind == RecordKind.STEP_FAILED]
    return Shape(
        history.run.status_name,
        _branches_in_order(forward),
        tuple(record.name for record in done if record.path.startswith("~")),
        ",".join(failed),
        Rollback(history.run.rollback).name.lower(),
        tuple(r.name for r in history.journal if r.kind == RecordKind.SIGNAL),
        history.run.fence,
    )


def _branches_in_order(steps: Sequence[str]) -> tuple[str, ...]:
    """Branches may end in any order."""
    branches = sorted(name for name in steps if name in _BRANCHES)
    return tuple(branches.pop(0) if name in _BRANCHES else name for name in steps)


async def reconcile(spec: Spec, file: Path, measured: Measured) -> list[float]:
    """Return the claim-to-end times of the runs; raise Unreconciled when anything differs."""
    async with Stepwell(file) as app:
        runs = await all_runs(app, ["completed"] if spec.name == "pending" else None)
        _same_runs(spec, measured, runs)
        findings = await app.doctor()
        if findings:
            raise Unreconciled(f"the store is not sound: {findings[0]} ({len(findings)} findings)")
        if spec.is_workflow:
            numbers = [await _workflow(app, spec, run.id) for run in runs]
        elif spec.name in DRAINS:
            numbers = [_task(spec, run, app.codec.decode) for run in runs]
            check_together(spec, runs, numbers)
        elif spec.name == "pending":
            await _beside_pending(app, spec, runs)
            return []
        else:
            _untouched(runs)
            return []
    if sorted(numbers) != list(range(spec.executions)):
        raise Unreconciled("the results are not those of the orders, each once")
    return [run.ended - run.started for run in runs if run.ended and run.started]


async def all_runs(app: Stepwell, statuses: Sequence[str] | None = None) -> list[RunInfo]:
    found: list[RunInfo] = []
    while True:
        after = found[-1].run if found else None
        wanted = RunFilter(statuses, after=after, limit=_PAGE)
        page = await app.engine.store.list_runs(wanted)
        found += page
        if len(page) < _PAGE:
            return found


def _same_runs(spec: Spec, measured: Measured, runs: Sequence[RunInfo]) -> None:
    """Every run that was acknowledged is stored, and no other."""
    stored, acknowledged = {run.id for run in runs}, set(measured.ids)
    if len(measured.ids) != spec.executions or len(acknowledged) != spec.executions:
        raise Unreconciled(f"{spec.executions} executions were asked for, {len(acknowledged)} made")
    if stored != acknowledged:
        raise Unreconciled(
            f"{len(acknowledged - stored)} acknowledged runs are missing in the store, "
            f"{len(stored - acknowledged)} in it were never acknowledged"
        )


async def _workflow(app: Stepwell, spec: Spec, id: str) -> int:
    """The number of the order that a workflow was about."""
    history = await app.engine.store.history(id)
    if history is None:
        raise Unreconciled(f"run {id} has no history")
    found, wanted = shape_of(history), SHAPES[spec.name]
    if found != wanted:
        raise Unreconciled(f"run {id} must be {wanted}, the store has {found}")
    if history.inbox or history.open_ops or history.children:
        raise Unreconciled(f"run {id} has ended and left something open")
    decode = app.codec.decode
    values = [decode(r.value) for r in history.journal if r.kind == RecordKind.STEP_OK]
    if history.run.status == Status.COMPLETED:
        values.append(decode(history.run.value))
    if any(value != values[0] for value in values):
        raise Unreconciled(f"the steps and the result of run {id} are about different orders")
    return int(values[0]["id"])


def _task(spec: Spec, run: RunInfo, decode: Decode) -> int:
    _first_claim(run)
    result = decode(run.value)
    number = int(result["id"])
    if result != order_of(spec, number):
        raise Unreconciled(f"the result of task {run.id} is not its argument")
    return number


def _first_claim(run: RunInfo) -> None:
    if run.status != Status.COMPLETED or run.fence != 1 or run.attempts:
        raise Unreconciled(
            f"task {run.id} must be completed by its first claim; it is {run.status_name} "
            f"after {run.fence} claims and {run.attempts} failures"
        )


async def _beside_pending(app: Stepwell, spec: Spec, runs: Sequence[RunInfo]) -> None:
    """Those that were claimed have ended, and as many others wait as there must be."""
    for run in runs:
        _first_claim(run)
        if spec.blocked and run.key != FREE:
            raise Unreconciled(
                f"task {run.id} was claimed, and its key {run.key!r} was at its limit"
            )
    found = {Status(row.status): row.count for row in await app.engine.store.read(CountRuns())}
    waiting = found.pop(Status.READY, 0)
    if waiting != spec.pending or found.keys() != {Status.COMPLETED}:
        raise Unreconciled(
            f"{spec.pending} tasks must wait beside those that ended; {waiting} do, of {found}"
        )


def _untouched(runs: Sequence[RunInfo]) -> None:
    for run in runs:
        if run.status != Status.READY or run.fence:
            raise Unreconciled(
                f"task {run.id} must be ready and never claimed; it is {run.status_name} "
                f"after {run.fence} claims"
            )

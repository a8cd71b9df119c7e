"""What must be true of a store, and of the outside world, whatever was killed on the way."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from stepwell_queue import (
    History,
    RandomIds,
    RecordKind,
    Rollback,
    RunFilter,
    SystemClock,
    open_store,
)
from tests.crash.expected import differences, unexplained_repeats
from tests.crash.flows import Effect


async def read_all(file: Path) -> tuple[list[History], list[str]]:
    """Return every run that is in the store, and what `doctor` finds."""
    clock = SystemClock()
    store = await open_store(file, clock=clock, ids=RandomIds(clock))
    try:
        findings = await store.doctor()
        histories: list[History] = []
        after: int | None = None
        while page := await store.list_runs(RunFilter(after=after, limit=500)):
            found = [await store.history(info.id) for info in page]
            histories += [history for history in found if history is not None]
            after = page[-1].run
        return histories, [str(finding) for finding in findings]
    finally:
        await store.close()


def contradictions(
    histories: list[History], effects: list[Effect], killed: set[int]
) -> Iterable[str]:
    """Find what is wrong with runs that must all have ended; `killed` are processes of workers."""
    yield from _wrong_journals(histories)
    yield from _wrong_effects(histories, effects)
    yield from unexplained_repeats(effects, killed)


def _wrong_journals(histories: list[History]) -> Iterable[str]:
    for history in histories:
        steps = Counter(
            record.path
            for record in history.journal
            if record.kind in (RecordKind.STEP_OK, RecordKind.STEP_FAILED)
        )
        yield from (f"{history.run.id}: {p} recorded {n} times" for p, n in steps.items() if n > 1)
        if [record.seq for record in history.journal] != list(range(len(history.journal))):
            yield f"{history.run.id}: the journal has a gap"
        if not history.run.status >= 10:
            yield f"{history.run.id} is {history.run.status_name}"
        if history.run.rollback == Rollback.INCOMPLETE:
            yield f"{history.run.id}: its rollback is incomplete"


def _wrong_effects(histories: list[History], effects: list[Effect]) -> Iterable[str]:
    by_run: defaultdict[str, list[Effect]] = defaultdict(list)
    for effect in effects:
        by_run[effect.run].append(effect)
    for history in histories:
        kind = history.run.name
        for problem in differences(kind, by_run.pop(history.run.id, [])):
            yield f"{history.run.id} ({kind}): {problem}"
    yield from (f"effects of a run that nobody knows: {id}" for id in by_run)

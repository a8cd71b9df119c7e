"""A run as it stands in a store, all of it from one moment."""

from __future__ import annotations

from typing import Final

import msgspec

from stepwell_queue.contract import (
    AnswerCopy,
    Aside,
    History,
    Item,
    ListAnswers,
    ListStreams,
    NewRun,
    ReadAside,
    ReadStream,
    ReadValues,
    RunCopy,
    RunInfo,
    Status,
    Store,
    Terms,
)
from stepwell_queue.errors import RunNotFound, StepwellError

_TRIES: Final = 50
_RESTS: Final = frozenset((Status.SCHEDULED, Status.PARKED))
_MOVING: Final = frozenset((Status.READY, Status.RUNNING))


async def standing_history(store: Store, id: str) -> History | None:
    """Return everything that is known of a run; None = there is no such run.

    A store reads the rows of a run one table after the other, and a run that is executed moves on
    meanwhile: so it is read until it stood still. Raises StepwellError if it never does.
    """
    for _ in range(_TRIES):
        found = await store.history(id)
        if found is None:
            return None
        after = await store.info(id)
        if after is None:
            return None
        if _mark(found.run) != _mark(after):
            continue
        if found.run.status not in _MOVING:
            return found
        again = await store.history(id)
        if again is not None and _same(found, again):
            return again
    raise _restless(id)


async def standing_copy(store: Store, id: str) -> tuple[RunCopy, list[str]]:
    """Return a run with all that it has said, and the ids of its children.

    Raises RunNotFound, and StepwellError as above.
    """
    for _ in range(_TRIES):
        before = await store.read(ReadAside(id))
        found = await standing_history(store, id)
        if found is None:
            raise RunNotFound(id)
        copy = msgspec.structs.replace(
            _with_aside(copy_of(found), found.run, before),
            values=await store.read(ReadValues(id)),
            items=await _items(store, id),
            answers=await _answers(store, id),
        )
        # What its code says goes together with what it records.
        after = await standing_history(store, id)
        if after is None or not _same(found, after):
            continue
        if before == await store.read(ReadAside(id)):
            return copy, [child.id for child in found.children]
    raise _restless(id)


def _with_aside(copy: RunCopy, run: RunInfo, aside: Aside) -> RunCopy:
    again, due = (run.status, run.due) if run.status in _RESTS else (aside.again, aside.due)
    return msgspec.structs.replace(
        copy, said=aside.said, again=again if again in _RESTS else None, due=due
    )


async def _items(store: Store, id: str) -> list[Item]:
    found: list[Item] = []
    for stream in await store.read(ListStreams(id)):
        after = 0
        while page := await store.read(ReadStream(id, stream.stream, after)):
            after = page[-1].offset
            found += [Item(stream.stream, one.value, one.at, one.path, one.attempt) for one in page]
    return found


async def _answers(store: Store, id: str) -> list[AnswerCopy]:
    found: list[AnswerCopy] = []
    while page := await store.read(ListAnswers(id, found[-1].uid if found else "")):
        found += page
    return found


def _restless(id: str) -> StepwellError:
    return StepwellError(f"run {id!r} moves on faster than it can be read: try again, or pause it")


def _mark(run: RunInfo) -> tuple[int, int, int, float]:
    return run.status, run.phase, run.fence, run.updated


def _same(one: History, other: History) -> bool:
    return (
        _mark(one.run) == _mark(other.run)
        and len(one.journal) == len(other.journal)
        and one.open_ops == other.open_ops
        and one.inbox == other.inbox
    )


def copy_of(found: History) -> RunCopy:
    """Return a run as a copy of it is stored elsewhere."""
    run = found.run
    return RunCopy(
        NewRun(
            run.id, run.kind, run.name, run.version, run.queue, run.args, run.digest, run.nonce,
            run.created, run.priority, run.scheduled, run.deadline, run.options,
            None if run.key is None else Terms(key=run.key),
        ),
        run.status, run.phase, run.rollback, run.attempts, run.crashes, run.fence, run.generation,
        run.started, run.ended, run.waiting, run.parent_id, run.parent_path, run.value,
        found.journal, found.open_ops, found.inbox, found.audit,
        [one for one in found.failures if not one.path],
    )  # fmt: skip

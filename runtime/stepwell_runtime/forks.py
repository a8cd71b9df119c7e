"""Forks: new runs that take over a part of the journal of another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from stepwell_queue.clock import Clock, Ids
from stepwell_queue.contract import (
    Fork,
    History,
    Identity,
    Kind,
    NewRun,
    Record,
    RecordKind,
    RunInfo,
    Started,
    Store,
)
from stepwell_queue.errors import RequestRefused, RunNotFound
from stepwell_runtime.codec import Codec
from stepwell_runtime.definitions import Definition
from stepwell_runtime.fitting import refuse_unfit
from stepwell_runtime.launch import Arguments, checked_id, pack_arguments
from stepwell_runtime.policy import forked_options

_seqs: Final = msgspec.msgpack.Decoder(list[int]).decode
_arguments: Final = msgspec.msgpack.Decoder(Arguments).decode
_NAMED: Final = frozenset(
    (
        RecordKind.STEP_OK, RecordKind.STEP_FAILED, RecordKind.STEP_CUT, RecordKind.CHILD_OK,
        RecordKind.CHILD_FAILED, RecordKind.CHILD_CANCELLED, RecordKind.STARTED,
    )
)  # fmt: skip
_MOST_NAMED: Final = 10


class Forks:
    """Makes them."""

    def __init__(self, store: Store, codec: Codec, clock: Clock, ids: Ids) -> None:
        self._store, self._codec, self._clock, self._ids = store, codec, clock, ids

    async def fork(
        self,
        id: str,
        from_step: str,
        *,
        new_id: str | None,
        changes: Mapping[str, Any],
        definitions: Mapping[Identity, Definition],
        actor: str,
        reason: str,
    ) -> Started:
        """Start a run with what another one has recorded before a step.

        Raises RunNotFound, RequestRefused, IdConflict, TypeError.
        """
        if new_id == id:
            raise RequestRefused(
                f"run {id!r} cannot be forked into itself: give the fork an id of its own, or none"
            )
        found = await self._store.history(id)
        if found is None:
            raise RunNotFound(id)
        source = found.run
        if source.kind != Kind.WORKFLOW:
            raise RequestRefused(f"run {id!r} is no workflow run: fork was refused")
        length = length_before(found, from_step)
        args = source.args
        if changes:
            identity = Identity(source.kind, source.name, source.version)
            args = self._changed(source, definitions.get(identity), changes)
        now = self._clock.now()
        new = NewRun(
            self._ids.run_id() if new_id is None else checked_id(new_id),
            source.kind,
            source.name,
            source.version,
            source.queue,
            args,
            b"",
            self._ids.nonce(),
            now,
            source.priority,
            options=forked_options(source),
        )
        verb = Fork(id, length, new, self._ids.run_id(), now, actor, reason)
        return await self._store.do(verb)

    def _changed(
        self, source: RunInfo, definition: Definition | None, changes: Mapping[str, Any]
    ) -> bytes:
        if definition is None:
            raise RequestRefused(
                f"changes= needs the code of {source.name!r} (version {source.version}), to know "
                "its arguments: import its module, or include it in the app"
            )
        parameters = definition.signature.parameters
        places = list(parameters)
        positional, named = _arguments(source.args)
        for name, value in changes.items():
            if name not in parameters or parameters[name].kind in (
                parameters[name].VAR_POSITIONAL,
                parameters[name].VAR_KEYWORD,
            ):
                raise TypeError(
                    f"changes= names {name!r}, which is no argument of {source.name}: it has "
                    f"{', '.join(places) or 'none'}"
                )
            where = f"argument {name!r} of {source.name}"
            refuse_unfit(value, definition.parameter_types.get(name, Any), where)
            data = self._codec.encode(value, where)
            if places.index(name) < len(positional):
                positional[places.index(name)] = data
            else:
                named[name] = data
        return pack_arguments((positional, named))


def length_before(found: History, from_step: str) -> int:
    """Return how many records there are before a step, by path or by name."""
    id, journal = found.run.id, found.journal
    if from_step.startswith("~"):
        raise RequestRefused(
            f"run {id!r}: fork from {from_step!r} was refused, since that is in an undo"
        )
    voided = {
        seq
        for record in journal
        if record.kind == RecordKind.REOPEN and record.value
        for seq in _seqs(record.value)
    }
    steps = [one for one in journal if _is_step(one) and one.seq not in voided]
    there = [one.seq for one in steps if one.path == from_step]
    if not there:
        same = [one for one in steps if one.name == from_step]
        there = [one.seq for one in same]
        opened = [op.path for op in found.open_ops if from_step in (op.path, op.name)]
        if len(same) + len(opened) > 1:
            _refuse_ambiguous(id, from_step, [*(one.path for one in same), *opened])
        if not same and opened:
            return len(journal)
    if not there:
        names = list(dict.fromkeys(one.name for one in steps))[:_MOST_NAMED]
        raise RequestRefused(
            f"run {id!r} has recorded no step {from_step!r}: fork was refused; the first ones that "
            f"it has are {', '.join(names) or 'none'}"
        )
    return there[-1]


def _is_step(record: Record) -> bool:
    return record.kind in _NAMED and not record.path.startswith("~")


def _refuse_ambiguous(id: str, name: str, paths: Sequence[str]) -> None:
    more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
    raise RequestRefused(
        f"run {id!r} has step {name!r} at several paths: fork from one of them, "
        f"{', '.join(paths[:_MOST_NAMED])}{more}"
    )

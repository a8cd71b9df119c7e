"""What the answers of a server become: the values that those who asked are to get."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stepwell_queue.contract import (
    Ask,
    CancelRun,
    Claim,
    Emit,
    Fork,
    ImportRuns,
    InboxRow,
    LeaseUpkeep,
    Park,
    Prune,
    PurgeDeadLetters,
    PurgeQueue,
    Requeue,
    RunSchedule,
    Start,
    Started,
    StartMany,
    Terminate,
    Terminated,
    Tick,
    born,
)
from stepwell_queue.errors import StepwellError
from stepwell_queue.tcp.client.link import Done
from stepwell_queue.tcp.protocol import Jobs

if TYPE_CHECKING:
    from stepwell_queue.tcp.client.store import TcpStore


class StartedThere(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The answer to a Start."""

    run: int
    created: bool
    status: int
    claimed: bool
    id: str | None = None  # None = that which was asked for


def decoded(type: Any, done: Done) -> Done:
    """Return a callback that hands on the value of an answer as this type; None: there is none."""
    return done if type is None else partial(_hand_on, decoder(type), done)


@functools.cache
def decoder(type: Any) -> Callable[[Any], object]:
    return msgspec.msgpack.Decoder(type).decode


def _hand_on(decode: Callable[[Any], object], done: Done, value: object) -> None:
    """Nothing and exceptions are handed on as they are."""
    if value is not None and not isinstance(value, Exception):
        try:
            value = decode(value)
        except msgspec.DecodeError as error:
            value = StepwellError(f"the answer of the server cannot be read: {error}")
    done(value)


# What a verb answers, if it is not just done: how the value becomes what `done` is to get.


def _number(store: TcpStore, verb: Any, done: Done) -> Done:
    return decoded(int, done)


def _text(store: TcpStore, verb: Any, done: Done) -> Done:
    return decoded(str, done)


def _flag(store: TcpStore, verb: Any, done: Done) -> Done:
    return decoded(bool, done)


def _terminated(store: TcpStore, verb: Any, done: Done) -> Done:
    return decoded(Terminated, done)


def _started_whole(store: TcpStore, verb: Any, done: Done) -> Done:
    return decoded(Started, done)


def _started_many(store: TcpStore, verb: Any, done: Done) -> Done:
    return decoded(list[Started], done)


def _started(store: TcpStore, verb: Start, done: Done) -> Done:
    def heard(answer: StartedThere | Exception) -> None:
        if isinstance(answer, Exception):
            done(answer)
            return
        run, id = answer.run, answer.id or verb.run.id
        claimed = born(run, verb.run) if answer.claimed else None
        done(Started(run, id, answer.created, answer.status, claimed))

    return decoded(StartedThere, heard)


def _parked(store: TcpStore, verb: Any, done: Done) -> Done:
    return decoded(list[InboxRow], partial(_rows, done))


def _rows(done: Done, answer: list[InboxRow] | Exception | None) -> None:
    done(() if answer is None else answer)


def _claim(store: TcpStore, verb: Claim, done: Done) -> Done:
    return decoded(Jobs, partial(store.claimed, verb.worker, done))


ANSWERS: Final[dict[Any, Callable[[TcpStore, Any, Done], Done]]] = {
    Start: _started,
    StartMany: _started_many,
    CancelRun: _number,
    Ask: _number,
    Terminate: _terminated,
    Fork: _started_whole,
    Prune: _number,
    LeaseUpkeep: _flag,
    PurgeQueue: _number,
    Requeue: _number,
    Emit: _flag,
    PurgeDeadLetters: _number,
    Tick: _text,
    RunSchedule: _started_whole,
    ImportRuns: _number,
    Park: _parked,
    Claim: _claim,
}

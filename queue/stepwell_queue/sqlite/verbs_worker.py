"""Verbs of the store itself: sessions, leases, due rows."""

from __future__ import annotations

import os
import socket

import msgspec

from stepwell_queue.contract import Hello, Verb
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import Tx
from stepwell_queue.sqlite.verbs_claim import promote as promote_due

_REGISTER, _UNREGISTER, _HAND_BACK = SQL["register"], SQL["unregister"], SQL["hand_back"]


class Register(Verb[int], frozen=True, array_like=True):
    """Insert the worker's row; answers its number."""

    hello: Hello


class Release(Verb[None], frozen=True, array_like=True):
    """Unregister a worker; what it still holds becomes ready."""

    worker: int


class Promote(Verb[None], frozen=True, array_like=True):
    """Make ready what is due."""


def register(tx: Tx, verb: Register) -> int:
    hello, context = verb.hello, tx.context
    tx.execute(
        _REGISTER,
        (
            context.token, hello.name, socket.gethostname(), context.boot, os.getpid(), tx.now,
            tx.monotonic + context.lease, msgspec.json.encode(hello.queues).decode(),
            msgspec.json.encode(hello.serves).decode(),
        ),
    )  # fmt: skip
    worker = tx.cursor.lastrowid or 0
    promote_due(tx)
    return worker


def release(tx: Tx, verb: Release) -> None:
    for *target, run in tx.execute(_HAND_BACK, (tx.now, verb.worker)).fetchall():
        tx.made_ready(*target)
        tx.effects.moves.append((run, None))
    tx.execute(_UNREGISTER, (verb.worker,))


def promote(tx: Tx, verb: Promote) -> None:
    promote_due(tx)

"""What a store opens off the loop: the file, its lock files, the writing connection."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

from stepwell_queue.clock import Clock, Ids
from stepwell_queue.sqlite.connection import Connect, Durability, connect
from stepwell_queue.sqlite.machine import boot_id
from stepwell_queue.sqlite.presence import Presence, folder_of
from stepwell_queue.sqlite.schema import prepare
from stepwell_queue.sqlite.turn import Turn
from stepwell_queue.sqlite.tx import Context
from stepwell_queue.sqlite.writer import Writer


class Files(NamedTuple):
    """The open parts of one store."""

    presence: Presence
    turn: Turn
    context: Context
    writer: Writer


def open_files(
    path: Path, durability: Durability, clock: Clock, ids: Ids, lease: float, factory: Connect
) -> Files:
    turn = Turn(path)
    try:
        with turn.taken(True):  # one process at a time makes or migrates the file
            first = prepare(path, durability)
            try:
                return _claim_files(path, durability, clock, ids, lease, factory, turn)
            finally:
                first.close()
    except BaseException:
        turn.close()
        raise


def _claim_files(
    path: Path,
    durability: Durability,
    clock: Clock,
    ids: Ids,
    lease: float,
    factory: Connect,
    turn: Turn,
) -> Files:
    presence = Presence(folder_of(path), ids.nonce())
    presence.register()
    try:
        context = Context(clock, boot_id(), presence.token, lease)
        writer = Writer(partial(connect, path, durability, factory=factory), context, turn)
    except BaseException:
        presence.unregister()
        raise
    return Files(presence, turn, context, writer)

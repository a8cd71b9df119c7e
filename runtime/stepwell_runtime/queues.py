"""Queues as code declares them."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from stepwell_queue.contract import QueueSettings, SetQueue, Store
from stepwell_queue.errors import StoreUnavailable
from stepwell_runtime.errors import DefinitionError


@dataclass(frozen=True)
class DeclaredQueue:
    """What code says of a queue, and where."""

    name: str
    settings: QueueSettings
    place: str

    @functools.cached_property
    def digest(self) -> str:
        """The same for equal settings, in every process and version."""
        said = msgspec.json.encode(self.settings, order="sorted")
        return hashlib.blake2b(said, digest_size=16).hexdigest()


def settled(declared: Iterable[DeclaredQueue | None]) -> dict[str, DeclaredQueue]:
    """Return the declared queues by name; raise DefinitionError when two of one name differ."""
    found: dict[str, DeclaredQueue] = {}
    for one in declared:
        if one is None:
            continue
        known = found.setdefault(one.name, one)
        if known.settings != one.settings:
            raise DefinitionError(
                f"queue {one.name!r} is declared in two ways: {known.place} and {one.place}; "
                "declare it once, and use that Queue in both places"
            )
    return found


class Declarations:
    """Tells a store what code declares: each declaration once, as the store remembers it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._said: dict[str, DeclaredQueue] = {}

    async def say(self, queue: DeclaredQueue) -> None:
        """Have the store apply a declaration, unless it was the last one. Raises RequestRefused."""
        if not self._is_said(queue):
            await self._store.do(SetQueue(queue.name, queue.settings, queue.digest))
            self._said[queue.name] = queue

    def note(self, queue: DeclaredQueue) -> None:
        """Do as `say`, ahead of what is submitted after this, and do not wait for it."""
        if self._is_said(queue):
            return
        self._said[queue.name] = queue

        def done(answer: object) -> None:
            if isinstance(answer, Exception):
                self._said.pop(queue.name, None)  # and again with the next run

        try:
            self._store.submit(SetQueue(queue.name, queue.settings, queue.digest), done)
        except StoreUnavailable as closed:
            done(closed)

    def _is_said(self, queue: DeclaredQueue) -> bool:
        known = self._said.get(queue.name)
        return known is queue or (known is not None and known.settings == queue.settings)

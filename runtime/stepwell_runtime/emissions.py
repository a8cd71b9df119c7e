"""What attempts emit to the streams of their run: gathered in any thread, stored bit by bit."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from stepwell_queue.contract import Emit, Item
from stepwell_queue.contract.notes import (
    ITEMS_AT_ONCE,
    MOST_ITEMS,
    MOST_SAID,
    MOST_STREAM_BYTES,
)
from stepwell_queue.errors import StaleFence
from stepwell_runtime.errors import StreamFull

if TYPE_CHECKING:
    from stepwell_runtime.codec import Codec
    from stepwell_runtime.worker import Worker

SPACING: Final = 0.1
"""Seconds between two reports of a run, so that one that talks a lot does not keep disks busy."""
_BYTES_AT_ONCE: Final = 1024 * 1024


class Held(Protocol):
    """A run in the hands of its worker."""

    run: int
    worker: Worker

    @property
    def fence(self) -> int: ...


def encode_said(codec: Codec, value: object, where: str) -> bytes:
    """Return what a run says as it is stored. Raises SerializationError, PayloadTooLarge."""
    data = codec.encode(value, where)
    if len(data) > MOST_SAID:
        from stepwell_runtime.codec import PayloadTooLarge

        raise PayloadTooLarge(where, type(value).__name__, len(data), MOST_SAID)
    return data


class Allowance:
    """How much one held run may still emit; not kept for the next that holds it."""

    __slots__ = ("_bytes", "_items", "full")

    def __init__(self) -> None:
        self._items, self._bytes = MOST_ITEMS, MOST_STREAM_BYTES
        self.full = False  # says the store

    def take(self, stream: str, size: int) -> None:
        """Count an item. Raises StreamFull."""
        if self.full or not self._items or size > self._bytes:
            raise StreamFull(stream, MOST_ITEMS, "the steps of a run, or a task,")
        self._items -= 1
        self._bytes -= size


class Emissions:
    """What is emitted for one held run. One batch is on its way, and what is left when an attempt
    ends.

    So the items of an attempt are stored in order, and before its outcome.
    """

    def __init__(self, held: Held) -> None:
        self._held = held
        self._lock = threading.Lock()
        self._items: deque[Item] = deque()
        self._allowance = Allowance()
        self._asked = False  # for what there is to be sent
        self._number = 0

    def add(self, stream: str, value: object, path: str, attempt: int) -> None:
        """Take an item, in any thread. Raises SerializationError, StreamFull."""
        data = encode_said(self._held.worker.codec, value, f"an item of stream {stream!r}")
        with self._lock:
            self._allowance.take(stream, len(data))
        self.put(stream, data, path, attempt)

    def put(self, stream: str, data: bytes, path: str, attempt: int) -> None:
        """Take an item that is encoded, and was allowed for."""
        worker = self._held.worker
        with self._lock:
            self._items.append(Item(stream, data, worker.clock.now(), path, attempt))
            asks, self._asked = not self._asked, True
        if asks:
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody works there
                worker.loop.call_soon_threadsafe(self._send)

    def _take(self) -> list[Item]:
        items: list[Item] = []
        size = 0
        while self._items and len(items) < ITEMS_AT_ONCE and size < _BYTES_AT_ONCE:
            items.append(self._items.popleft())
            size += len(items[-1].value)
        return items

    def _send(self) -> None:
        with self._lock:
            items = self._take()
            if not items:
                self._asked = False
                return
        self._submit(items, last=False)

    def flush(self) -> None:
        """Send all there is: an attempt is about to end."""
        while True:
            with self._lock:
                items = self._take()
            if not items:
                return
            self._submit(items, last=True)

    def _submit(self, items: list[Item], *, last: bool) -> None:
        held = self._held
        self._number += 1

        def done(answer: bool | Exception) -> None:
            self._stored(answer)
            if not last:  # a full batch has more behind it, which does not wait
                delay = 0.0 if len(self._items) >= ITEMS_AT_ONCE else SPACING
                held.worker.loop.call_later(delay, self._send)

        try:
            held.worker.store.submit(Emit(held.run, held.fence, self._number, items), done)
        except Exception as refused:  # noqa: BLE001 - it is logged there
            done(refused)

    def _stored(self, answer: bool | Exception) -> None:
        if answer is True:
            self._allowance.full = True
        elif isinstance(answer, Exception) and not isinstance(answer, StaleFence):
            from stepwell_runtime.log import log  # `import stepwell` does not load structlog

            log.error("items_lost", error=str(answer))

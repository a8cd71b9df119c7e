"""Frames out of a stream of bytes."""

from __future__ import annotations

from collections.abc import Callable

_HEADER = 4


class FrameTooLong(Exception):
    """A frame was announced that is over the limit."""


class Frames:
    """Cuts what comes in into frames; each is handed on as soon as it is whole.

    `limit` is checked when a frame is announced, before anything is kept of it.
    """

    def __init__(self, limit: int, on_frame: Callable[[memoryview], None]) -> None:
        self.limit, self._on_frame = limit, on_frame
        self._buffer = bytearray()
        self._needed = _HEADER
        self.stopped = False

    @property
    def started(self) -> bool:
        """Whether a part of a frame is there."""
        return bool(self._buffer)

    @property
    def announced(self) -> int:
        """Bytes of the frame that has begun; 0 while that is not known."""
        return self._needed if self._needed > _HEADER else 0

    def feed(self, data: bytes) -> None:
        """Take bytes in. Raises FrameTooLong."""
        whole: bytes | bytearray = data
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed and self._needed > _HEADER:
                return
            whole, self._buffer = self._buffer, bytearray()
        view = memoryview(whole)
        at, end = 0, len(whole)
        self._needed = _HEADER
        while end - at >= _HEADER and not self.stopped:
            size = int.from_bytes(view[at : at + _HEADER], "big")
            if size > self.limit:
                raise FrameTooLong(
                    f"a frame of {size} bytes was announced, and the limit is {self.limit}"
                )
            if end - at - _HEADER < size:
                self._needed = _HEADER + size
                break
            at += _HEADER
            self._on_frame(view[at : at + size])
            at += size
        if at < end:
            self._buffer += view[at:]

"""One connection to a server, from the greeting on."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Any

import msgspec

from stepwell_queue.errors import StoreRefused
from stepwell_queue.tcp.access import Access
from stepwell_queue.tcp.frames import Frames, FrameTooLong
from stepwell_queue.tcp.protocol import (
    FRAME_LIMIT,
    GREETING_LIMIT,
    MAGIC,
    VERSION,
    Greeting,
    Welcome,
    decode_welcome,
    encode,
    framed,
)


def greeting(client: str, access: Access, channel: str) -> bytes:
    """Return the first frame of a client."""
    return framed(encode(Greeting(MAGIC, VERSION, (), client, channel, access.token or "")))


def welcomed(body: memoryview | bytes) -> Welcome:
    """Read the first frame of a server. Raises StoreRefused if it does not let the client in."""
    try:
        said = decode_welcome(body)
    except msgspec.DecodeError as error:
        raise StoreRefused(f"what answers there is no Stepwell server ({error})") from error
    if not isinstance(said, Welcome):
        raise StoreRefused(said.reason)
    return said


class HungUp(ConnectionError):
    """There was somebody, who closed the connection without a word, as TLS does on plain bytes."""


class Channel(asyncio.Protocol):
    """Greets, then hands on each frame that comes in.

    `welcome` is set to what the server said first, or to why there will be none. `on_frame` and
    `on_lost` are called from then on; `on_writable` when what was written has gone out.
    """

    def __init__(
        self,
        hello: bytes,
        on_frame: Callable[[memoryview], None],
        on_lost: Callable[[Channel, Exception | None], None],
        on_writable: Callable[[], None],
    ) -> None:
        self._hello, self._on_frame, self._on_lost = hello, on_frame, on_lost
        self._on_writable = on_writable
        self._frames = Frames(GREETING_LIMIT, self._first)
        self.welcome: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        self.heard = 0  # bytes
        self.writable = True
        self.lost = False
        self._transport: asyncio.Transport | None = None
        self._broken: Exception | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=4 * 1024 * 1024)
        transport.write(self._hello)

    def _first(self, body: memoryview) -> None:
        if self.welcome.done():
            self._on_frame(body)
            return
        try:
            said = welcomed(body)
        except StoreRefused as refused:
            self.welcome.set_exception(refused)
            self.abort()
            return
        self._frames.limit = FRAME_LIMIT
        self.welcome.set_result(said)

    def data_received(self, data: bytes) -> None:
        self.heard += len(data)
        try:
            self._frames.feed(data)
        except (FrameTooLong, msgspec.DecodeError, RecursionError) as error:
            self._broken = error
            self.abort()

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._on_writable()

    def abort(self) -> None:
        """Break the connection off; `on_lost` follows."""
        self._frames.stopped = True
        if self._transport is not None:
            self._transport.abort()

    def let_go(self) -> None:
        """In a forked child: close its copy of the socket, which is not to be used there."""
        if self._transport is not None:
            with contextlib.suppress(OSError):
                os.close(self._transport.get_extra_info("socket").fileno())

    def close(self) -> None:
        """Send what was written, then close."""
        if self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._frames.stopped = self.lost = True
        error = self._broken or exc
        if self.welcome.cancelled():
            return  # it took too long
        if not self.welcome.done():
            why = "what answers there is no Stepwell server" if self._broken else "it hung up"
            kind = ConnectionError if self._broken else HungUp
            self.welcome.set_exception(kind(f"{why} ({error})" if error else why))
            self.welcome.exception()  # it may be that nobody asks any more
            return
        if self.welcome.exception() is None:
            self._on_lost(self, error)

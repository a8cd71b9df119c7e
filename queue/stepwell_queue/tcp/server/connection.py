"""One connection: who is at the other end, what is asked, and what is still to be said."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stepwell_queue.errors import StaleFence, StepwellError
from stepwell_queue.tcp.frames import Frames, FrameTooLong
from stepwell_queue.tcp.protocol import (
    BEATS,
    FRAME_LIMIT,
    GREETING_LIMIT,
    MAGIC,
    MOST_AT_ONCE,
    NOTE,
    REQUESTS,
    VERSION,
    Closing,
    Event,
    OpenSession,
    Turned,
    decode_greeting,
    decode_keys,
    decode_requests,
    encode,
    framed,
    length_of,
    refusal,
)
from stepwell_queue.tcp.server.malformed import one_by_one
from stepwell_queue.tcp.server.requests import HANDLERS

if TYPE_CHECKING:
    from stepwell_queue.sqlite.followers import Listener
    from stepwell_queue.sqlite.hub import Watcher
    from stepwell_queue.sqlite.store import SqliteStore
    from stepwell_queue.tcp.server.jobs import RemoteWorker
    from stepwell_queue.tcp.server.server import Server

_log = logging.getLogger("stepwell.server")

GREET_WITHIN: Final = 5.0
SILENT_IN_FRAME: Final = 30.0
SILENT: Final = 60.0
"""Seconds without a byte after which a connection without a worker is closed."""
UNREAD: Final = 30.0
"""Seconds after which a peer that reads nothing of what waits for it is given up."""
LARGE: Final = 1024 * 1024
"""Bytes from which on a frame needs a share of what all connections may keep at once."""
_HIGH_WATER: Final = 1024 * 1024


class Connection(asyncio.Protocol):
    """Takes frames in, and sends what is said in one turn of the loop as one frame."""

    def __init__(self, server: Server) -> None:
        self.server, self._config = server, server.config
        self.store: SqliteStore = server.store
        self._loop = asyncio.get_running_loop()
        self._frames = Frames(GREETING_LIMIT, self._greet)
        self.sessions: dict[int, RemoteWorker] = {}
        self.watchers: dict[int, Watcher] = {}
        self.listeners: dict[int, Listener] = {}
        self.leaving: dict[RemoteWorker, int] = {}  # how many runs each has just given up
        self._answers: list[object] = []
        self._events: list[Event] = []
        self._later: deque[tuple[int, int, Any]] = deque()
        self._gated = False
        self._in_flight = self._in_flight_bytes = 0
        self._paused: set[str] = set()
        self._reserved = 0
        self._dirty = False
        self.greeted = self.closing = self._beats = False
        self.peer = "somebody"
        self._heard_at = self._moved_at = self._loop.time()
        self._unread = 0
        self._transport: asyncio.Transport

    # --- life ---

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=_HIGH_WATER)
        name = transport.get_extra_info("peername")
        self.peer = f"{name[0]}:{name[1]}" if name else "somebody"
        refused = self.server.joined(self)
        if refused is not None:
            self._turn_away(refused)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closing = self._frames.stopped = True
        self._later.clear()
        self.server.release(self, self._reserved)
        self._reserved = 0
        for watcher in self.watchers.values():
            self.store.forget(watcher)
        self.watchers.clear()
        for listener in self.listeners.values():
            listener.leave()
        self.listeners.clear()
        self.server.left(self)
        if exc is not None and self.greeted and not isinstance(exc, ConnectionError):
            _log.warning("the connection of %s broke: %s", self.peer, exc)

    def _turn_away(self, reason: str) -> None:
        """Refuse somebody who has not been let in."""
        _log.warning("%s is turned away: %s", self.peer, reason)
        self._transport.write(framed(encode(Turned(reason))))
        self._end()

    def hang_up(self, reason: str) -> None:
        """Close the connection for a reason, which goes into the log and to the peer."""
        if self.closing:
            return
        _log.warning("the connection of %s is closed: %s", self.peer, reason)
        if self.greeted:
            self.tell(Closing(reason))
            self.flush()
        self._end()

    def _end(self) -> None:
        self.closing = self._frames.stopped = True
        self._transport.close()
        if self._transport.get_write_buffer_size():  # of one who does not read, nothing would leave
            self._loop.call_later(GREET_WITHIN, self._transport.abort)

    def abort(self) -> None:
        self.closing = self._frames.stopped = True
        self._transport.abort()

    # --- what comes in ---

    def data_received(self, data: bytes) -> None:
        if self.closing:
            return
        self._heard_at = self._loop.time()
        try:
            self._frames.feed(data)
        except FrameTooLong as error:
            self._malformed(str(error))
        except (msgspec.DecodeError, RecursionError) as error:
            self._malformed(f"a frame that is not understood: {error}")
        else:
            self._reserve()

    def _malformed(self, why: str) -> None:
        if self.greeted:
            self.hang_up(why)
        else:
            self._turn_away(f"this is a Stepwell server, and it got {why}")

    def _reserve(self) -> None:
        """Read a large frame only while there is room for it beside those of others."""
        size = self._frames.announced
        if size > LARGE and not self._reserved and not self.closing:
            if self.server.reserve(self, size):
                self._reserved = size
                self._resume("room")
            else:
                self._pause("room")

    def go_on(self) -> None:
        """There may be room now for the frame that waits."""
        self._reserve()

    def _greet(self, body: memoryview) -> None:
        if self.greeted:  # more frames came with the greeting
            self._take(body)
            return
        greeting = decode_greeting(body)
        if greeting.magic != MAGIC:
            self._turn_away("this is a Stepwell server, and it was greeted as something else")
        elif greeting.version != VERSION:
            self._turn_away(
                f"this server speaks version {VERSION} of the protocol, "
                f"and the client version {greeting.version}: bring both to one release"
            )
        elif not self._lets_in(greeting.token):
            self._turn_away("the token is missing or wrong")
        elif greeting.channel not in (BEATS, REQUESTS):
            self._turn_away(f"it asked for a channel {greeting.channel!r}, which there is not")
        else:
            self.greeted = True
            self._beats = greeting.channel == BEATS
            self._frames.limit = GREETING_LIMIT if self._beats else FRAME_LIMIT
            self._take = self._on_beats if self._beats else self._on_requests
            self._transport.write(framed(encode(self.server.welcome())))

    def _lets_in(self, token: str) -> bool:
        wanted = self._config.token
        return wanted is None or hmac.compare_digest(token.encode(), wanted.encode())

    _take: Callable[[memoryview], None]

    def _on_beats(self, body: memoryview) -> None:
        beat = self.store.remote.beat
        unknown = [key for key in decode_keys(body) if not beat(key)]
        self._transport.write(framed(encode(unknown)))

    def _on_requests(self, body: memoryview) -> None:
        self.server.release(self, self._reserved)
        self._reserved = 0
        if length_of(body) > MOST_AT_ONCE:
            self._malformed(f"a frame of {length_of(body)} requests; {MOST_AT_ONCE} are the limit")
            return
        messages: Sequence[tuple[int, object]]
        try:
            messages = decode_requests(body)
        except msgspec.DecodeError:
            messages = one_by_one(body)
        share = len(body) // (len(messages) or 1)
        self._in_flight += len(messages)
        self._in_flight_bytes += share * len(messages)
        for number, request in messages:
            if self._gated:
                self._later.append((number, share, request))
            else:
                self._do(number, share, request)
        self._fill()
        if (
            self._in_flight > self._config.max_in_flight
            or self._in_flight_bytes > self._config.max_queued
        ):
            self._pause("in flight")

    def _do(self, number: int, share: int, request: Any) -> None:
        handler = HANDLERS.get(type(request))
        try:
            if handler is None:
                self.store.submit(request, partial(self.answer, number, share))
            else:
                if type(request) is OpenSession:
                    self._gated = True  # what follows was said in the knowledge of its answer
                handler(self, number, share, request)
        except (TypeError, ValueError, StepwellError) as error:
            self.answer(number, share, error)
        except Exception as error:  # noqa: BLE001  costs nobody more than this answer
            _log.exception("%s of %s failed", type(request).__name__, self.peer)
            self.answer(number, share, error)

    def _fill(self) -> None:
        """What follows is claimed in the transaction in which other runs end."""
        if self.leaving:
            leaving, self.leaving = self.leaving, {}
            for worker, count in leaving.items():
                worker.leaves(count)

    def open_gate(self) -> None:
        """Go on with what waited for a session to be opened."""
        self._gated = False
        later = self._later
        while later and not self._gated and not self.closing:
            self._do(*later.popleft())
        self._fill()

    # --- what goes out ---

    def answer(self, number: int, share: int, value: object) -> None:
        """Answer a request with a value, None, or the exception that refused it."""
        self.settled(share)
        if number == NOTE or self.closing:
            return
        if value is None:
            self._answers.append(number)
        elif isinstance(value, Exception):
            if isinstance(value, StaleFence):  # its worker drops the run without another word
                for worker in self.sessions.values():
                    worker.gave_up(value.run)
            self._answers.append(refusal(number, value))
        else:
            self._answers.append((0, number, value))
        if not self._dirty:
            self._dirty = True
            self.server.has_something(self)

    def answer_unasked(self, number: int, value: object) -> None:
        """Answer what does not count as being on its way, since it may take for ever."""
        self._in_flight += 1
        self.answer(number, 0, value)

    def holder(self, run: int) -> RemoteWorker | None:
        """Return the worker of this connection that holds a run, as far as that is known."""
        sessions = self.sessions
        if len(sessions) == 1:
            return next(iter(sessions.values()))
        return next((one for one in sessions.values() if run in one.held), None)

    def settled(self, share: int) -> None:
        """A request is off the hands of this connection."""
        self._in_flight -= 1
        self._in_flight_bytes -= share
        if (
            "in flight" in self._paused
            and self._in_flight * 2 <= self._config.max_in_flight
            and self._in_flight_bytes * 2 <= self._config.max_queued
        ):
            self._resume("in flight")

    @property
    def busy(self) -> bool:
        """Whether something that was asked is not answered yet, waits for ends aside."""
        return self._in_flight > 0

    def tell(self, event: Event) -> None:
        """Have the peer told, after the answers of this turn."""
        if self.closing or self._beats:  # that channel has answers to beats only
            return
        self._events.append(event)
        if not self._dirty:
            self._dirty = True
            self.server.has_something(self)

    def flush(self) -> None:
        """Send what there is to say in one frame."""
        self._dirty = False
        answers, events = self._answers, self._events
        if not (answers or events) or self._transport.is_closing():
            return
        self._answers, self._events = [], []
        queued = self._transport.get_write_buffer_size()
        self._send(answers, events)
        if queued > self._config.max_queued and not self.closing:
            _log.warning(
                "the connection of %s is closed: it does not read, and %d bytes wait for it",
                self.peer,
                queued,
            )
            self.abort()

    def _send(self, answers: list[Any], events: list[Event]) -> None:
        body = encode((answers, events))
        if len(body) <= FRAME_LIMIT:
            self._transport.write(framed(body))
        elif answers and events:
            self._send(answers, [])
            self._send([], events)
        elif len(answers) > 1:
            middle = len(answers) // 2
            self._send(answers[:middle], [])
            self._send(answers[middle:], [])
        elif len(events) > 1:
            middle = len(events) // 2
            self._send([], events[:middle])
            self._send([], events[middle:])
        elif answers:
            number = answers[0][1]
            error = StepwellError(
                f"the answer has {len(body)} bytes, and the limit is {FRAME_LIMIT}"
            )
            self._send([refusal(number, error)], [])
        else:
            _log.error("%s cannot be told something of %d bytes", self.peer, len(body))

    # --- bounds ---

    def pause_writing(self) -> None:
        """A slow reader is not read from either: it would only ask for more."""
        self._pause("unread")

    def resume_writing(self) -> None:
        self._resume("unread")

    def _pause(self, why: str) -> None:
        if not self._paused and not self._transport.is_closing():
            self._transport.pause_reading()
        self._paused.add(why)

    def _resume(self, why: str) -> None:
        if why in self._paused:
            self._paused.discard(why)
            if not self._paused and not self._transport.is_closing():
                self._heard_at = self._loop.time()
                self._transport.resume_reading()

    def stop_reading(self) -> None:
        """Take no more requests."""
        self._pause("stopping")

    def tick(self, now: float) -> None:
        """Close what keeps a place for nothing."""
        if self.closing:
            return
        unread = self._transport.get_write_buffer_size()
        if not unread or unread < self._unread:
            self._moved_at = now
        self._unread = unread
        silent = 0.0 if self._paused - {"room"} else now - self._heard_at
        if now - self._moved_at > UNREAD:
            _log.warning("%s has read nothing for %d seconds", self.peer, UNREAD)
            self.abort()
        elif not self.greeted:
            if silent > GREET_WITHIN:
                self._turn_away(f"it did not greet within {GREET_WITHIN:g} seconds")
        elif self._frames.started and silent > SILENT_IN_FRAME:
            what = "had to wait for room" if "room" in self._paused else "stopped"
            self.hang_up(f"it {what} within a frame for {SILENT_IN_FRAME:g} seconds")
        elif silent > self._patience() and not self.sessions:
            self.hang_up(f"it was silent for {silent:.0f} seconds")

    def _patience(self) -> float:
        return max(SILENT, self._config.lease) if self._beats else SILENT

    def finish(self, reason: str) -> None:
        """Send what was written, and why that is all, then close."""
        if self.greeted:
            self.tell(Closing(reason))
            self.flush()
            self._end()
        elif not self.closing:
            self._turn_away(reason)

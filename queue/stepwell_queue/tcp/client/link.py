"""What keeps a client in touch: requests on their way, reconnecting, and saying again."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from stepwell_queue.errors import StoreRefused, StoreUnavailable
from stepwell_queue.tcp.access import Access, Address
from stepwell_queue.tcp.client.channel import Channel, HungUp, greeting
from stepwell_queue.tcp.client.clock import ServerClock
from stepwell_queue.tcp.protocol import (
    AT_ONCE,
    CHUNK,
    FRAME_LIMIT,
    MOST_AT_ONCE,
    NOTE,
    REQUESTS,
    Event,
    Ping,
    Reply,
    Request,
    Welcome,
    decode_answers,
    decode_time,
    encode,
    framed,
    rebuilt,
)

_log = logging.getLogger("stepwell.store")

Done = Callable[[Any], None]
_FIRST_RETRY, _LAST_RETRY = 0.05, 2.0
_CONNECT_WITHIN: Final = 10.0
_PING_EVERY: Final = 5.0
"""Seconds after which the server is asked for its time, which is a sign of life; after the third
time that nothing at all has come since the last one, the connection is broken off."""
FOREVER: Final = float("inf")


class Waiting(msgspec.Struct, frozen=True):
    """A request that is not answered yet."""

    request: Request
    done: Done
    weight: int
    expires: float  # by the clock of the loop; FOREVER = said again until it is answered
    late: Done | None = None  # called instead of `done` if the answer comes after that


class Link:
    """One client's requests to one server, over as many connections as it takes."""

    def __init__(
        self,
        address: Address,
        access: Access,
        client: str,
        *,
        timeout: float,
        clock: ServerClock,
        on_event: Callable[[Event], None],
        on_answered: Callable[[], None],
        reintroduce: Callable[[], None],
    ) -> None:
        """`reintroduce` asks what a new connection must be told before all else is said again."""
        self.address, self._access, self._client = address, access, client
        self._clock = clock
        self.context: ssl.SSLContext | None = None
        self._timeout, self._on_event, self._on_answered = timeout, on_event, on_answered
        self._reintroduce = reintroduce
        self._loop = asyncio.get_running_loop()
        self._chance = random.Random()
        self._channel: Channel | None = None
        self.welcome: Welcome
        self.waiting: dict[int, Waiting] = {}
        self._late: dict[int, tuple[Request, Done]] = {}
        self.bytes = 0
        self._outbox: list[tuple[int, Request]] = []
        self._outbox_bytes = self._number = 0
        self._scheduled = False
        self._ticker: asyncio.TimerHandle | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        self._idle: asyncio.Future[None] | None = None
        self._heard = self._silent = 0
        self.closed_because: str | None = None

    # --- life ---

    async def open(self) -> None:
        """Connect for the first time. Raises StoreUnavailable, StoreRefused."""
        self.context = await asyncio.to_thread(self._access.context, self.address)
        try:
            await self._connect()
        except StoreRefused as refused:
            raise StoreRefused(f"{self.address} does not let this client in: {refused}") from None
        except OSError as error:
            secured = isinstance(error, HungUp) and not self.address.tls
            hint = " If it has a certificate, write tls://." if secured else ""
            raise StoreUnavailable(
                f"cannot connect to {self.address} ({error}): "
                f"is `stepwell server` running there?{hint}"
            ) from error
        self._ticker = self._loop.call_later(_PING_EVERY, self._tick)

    async def _connect(self) -> None:
        hello = greeting(self._client, self._access, REQUESTS)
        asked = self._clock.local()
        channel = Channel(hello, self._on_frame, self._on_lost, self.flush)
        try:
            async with asyncio.timeout(_CONNECT_WITHIN):
                await self._loop.create_connection(
                    lambda: channel, self.address.host, self.address.port, ssl=self.context
                )
                self.welcome = await channel.welcome
        except TimeoutError:
            channel.abort()
            raise ConnectionError(f"no answer within {_CONNECT_WITHIN:g} seconds") from None
        except BaseException:
            channel.abort()
            raise
        if channel.lost:  # before anybody was there to hear of it
            raise ConnectionError("it hung up after it had let this client in")
        self._channel = channel
        self._clock.learn(asked, self.welcome.now)
        self._heard, self._silent = 0, 0

    def _on_lost(self, channel: Channel, error: Exception | None) -> None:
        if channel is not self._channel:
            return
        self._channel = None
        if self.closed_because is None:
            _log.warning(
                "the connection to %s broke (%s); connecting again", self.address, error or "closed"
            )
            self._reconnecting = self._loop.create_task(self._reconnect())
        elif self._idle is not None and not self._idle.done():
            self._idle.set_result(None)  # nothing more is going to be answered

    async def _reconnect(self) -> None:
        delay, said = _FIRST_RETRY, ""
        while self.closed_because is None:
            await asyncio.sleep(self._chance.uniform(0, delay))
            delay = min(delay * 2, _LAST_RETRY)
            try:
                await self._connect()
            except (OSError, StoreRefused) as error:
                if isinstance(error, StoreRefused) and str(error) != said:
                    said = str(error)
                    _log.error("%s does not let this client in: %s", self.address, said)
                continue
            _log.warning("connected to %s again", self.address)
            self._say_again()
            return

    def _say_again(self) -> None:
        """Repeat what was not answered, in order, after saying who is there."""
        self._outbox, self._outbox_bytes = [], 0
        self._late.clear()
        before = list(self.waiting)
        self._reintroduce()
        for number in before:
            entry = self.waiting.get(number)
            if entry is not None:
                self._put(number, entry.request, entry.weight)
        self.flush()

    def refuse(self, refusal: Callable[[Request], Exception | None]) -> None:
        """Answer with an exception what waits and is not to be said again."""
        for number, entry in list(self.waiting.items()):
            error = refusal(entry.request)
            if error is not None and self.forget(number):
                self._call(entry.request, entry.done, error)
        self._on_answered()

    @property
    def connected(self) -> bool:
        """Whether a connection is there."""
        return self._channel is not None

    def after_fork(self, why: str) -> None:
        """In a forked child: refuse all use, and leave the connection to the parent."""
        channel, self.closed_because = self._channel, why
        if channel is not None:
            channel.let_go()

    def hang_up(self) -> None:
        """Break the connection off, and connect again."""
        if self._channel is not None:
            self._channel.abort()

    async def close(self) -> None:
        """Wait for what is not answered yet as long as a request may take, then hang up."""
        if self.closed_because is not None:
            return
        self.closed_because = f"the store {self.address} is closed"
        try:
            if self._channel is not None and self.waiting:
                self.flush()
                self._idle = self._loop.create_future()
                async with asyncio.timeout(self._timeout):
                    await self._idle
        except TimeoutError:
            pass
        finally:
            self._end()

    def _end(self) -> None:
        channel, self._channel = self._channel, None
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        if self._ticker is not None:
            self._ticker.cancel()
        if channel is not None:
            channel.close()
        for number in list(self.waiting):
            self._give_up(number, f"the client was closed while {{}} to {self.address} was waiting")

    # --- requests ---

    def ask(
        self,
        request: Request,
        done: Done,
        weight: int,
        expires: float,
        late: Done | None = None,
    ) -> int:
        """Send a request; `done` is called with its value, or with what refused it.

        Returns its number. `weight` in bytes; `expires` as in `Waiting`.
        """
        self._number = number = self._number + 1
        self.waiting[number] = Waiting(request, done, weight, expires, late)
        self.bytes += weight
        self._put(number, request, weight)
        return number

    def note(self, request: Request) -> None:
        """Send what needs no answer; without a connection it is not said at all."""
        if self._channel is not None:
            self._put(NOTE, request, 0)

    def deadline(self) -> float:
        """When a request that is sent now has waited too long."""
        return self._loop.time() + self._timeout

    def forget(self, number: int) -> bool:
        """Nobody waits for this answer any more; False if it has come."""
        entry = self.waiting.pop(number, None)
        if entry is not None:
            self.bytes -= entry.weight
            self._check_idle()
        return entry is not None

    def _put(self, number: int, request: Request, weight: int) -> None:
        if self._channel is None:
            return  # what still waits then is said once there is a connection
        self._outbox.append((number, request))
        self._outbox_bytes += weight
        if len(self._outbox) >= AT_ONCE or self._outbox_bytes > CHUNK:
            self.flush()
        elif not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        self.flush()

    def flush(self) -> None:
        """Send what there is to say, in one frame if it is not too much."""
        channel, outbox = self._channel, self._outbox
        if channel is None or not channel.writable or not outbox:
            return
        self._outbox, self._outbox_bytes = [], 0
        for at in range(0, len(outbox), MOST_AT_ONCE):
            self._send(channel, outbox[at : at + MOST_AT_ONCE])

    def _send(self, channel: Channel, outbox: list[tuple[int, Request]]) -> None:
        try:
            body = encode(outbox)
            if len(body) > FRAME_LIMIT:
                raise OverflowError(f"a frame of {len(body)} bytes is over {FRAME_LIMIT}")
        except (OverflowError, ValueError, TypeError, RecursionError) as error:
            self._send_each(channel, outbox, error)
        else:
            channel.write(framed(body))

    def _send_each(
        self, channel: Channel, outbox: list[tuple[int, Request]], error: Exception
    ) -> None:
        """Of requests that cannot go as one frame, send those that can go alone."""
        if len(outbox) > 1:
            for one in outbox:
                self._send(channel, [one])
            return
        entry = self.waiting.pop(outbox[0][0], None)
        if entry is not None:
            self.bytes -= entry.weight
            error.add_note(f"{_name(entry.request)} could not be sent to {self.address}")
            self._call(entry.request, entry.done, error)

    # --- answers ---

    def _on_frame(self, body: memoryview) -> None:
        answers, events = decode_answers(body)
        waiting = self.waiting
        value: object
        for answer in answers:
            if isinstance(answer, int):
                number, value = answer, None
            else:
                number = answer.number
                value = answer.value if isinstance(answer, Reply) else rebuilt(answer)
            entry = waiting.pop(number, None)
            if entry is not None:
                self.bytes -= entry.weight
                self._call(entry.request, entry.done, value)
            elif number in self._late:
                self._call(*self._late.pop(number), value)
        if answers:
            self._on_answered()
        for event in events:
            try:
                self._on_event(event)
            except Exception:  # noqa: BLE001  a broken listener must not silence the others
                _log.exception("what %s told could not be taken", self.address)
        self._check_idle()

    def _call(self, request: Request, done: Done, value: object) -> None:
        try:
            done(value)
        except Exception:  # noqa: BLE001  as above
            _log.exception("the callback of %s failed", _name(request))

    def _check_idle(self) -> None:
        if self._idle is not None and not self.waiting and not self._idle.done():
            self._idle.set_result(None)

    def _tick(self) -> None:
        """Look for silence, and for requests that have waited too long."""
        self._ticker = self._loop.call_later(_PING_EVERY, self._tick)
        channel = self._channel
        if channel is not None:
            if channel.heard != self._heard:
                self._heard, self._silent = channel.heard, 0
            else:
                self._silent += 1
            if self._silent <= 2:
                told = partial(self._on_time, channel, self._clock.local())
                self.ask(Ping(), told, 0, self.deadline())
            else:
                channel.abort()
        self._expire()

    def _on_time(self, channel: Channel, asked: float, value: Any) -> None:
        """Compare clocks, unless the question had to be repeated."""
        if channel is self._channel and not isinstance(value, Exception):
            self._clock.learn(asked, decode_time(value))

    def _expire(self) -> None:
        now = self._loop.time()
        late = [number for number, entry in self.waiting.items() if entry.expires <= now]
        for number in late:
            self._give_up(
                number,
                f"{{}} to {self.address} was not answered within {self._timeout:g} seconds; "
                "it may have been carried out all the same, and may be said again",
            )
        if late:
            self._on_answered()

    def _give_up(self, number: int, why: str) -> None:
        entry = self.waiting.pop(number)
        self.bytes -= entry.weight
        if entry.late is not None:
            self._late[number] = (entry.request, entry.late)
        failure = StoreUnavailable(why.format(_name(entry.request)))
        self._call(entry.request, entry.done, failure)


def _name(request: Request) -> str:
    return type(request).__name__

"""Sessions of workers that reach this file through a server in this process.

A connection comes and goes; the session stays until its worker was not heard of for one lease. So
a worker that reconnects goes on with what it holds, also with the next server on this file.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

import msgspec

from stepwell_queue.contract import AnyVerb, ClaimResult, Hello, InboxRow, SessionEvents
from stepwell_queue.sqlite.hub import Hub
from stepwell_queue.sqlite.presence import Presence
from stepwell_queue.sqlite.tx import Context, SessionState
from stepwell_queue.sqlite.verbs_remote import Adopt, Attach, Attached, Lapse, Remote
from stepwell_queue.sqlite.verbs_worker import Release, Sweep, targets_of, worker_row

Push = Callable[[AnyVerb, Callable[[Any], None]], None]


class RemoteHello(msgspec.Struct, frozen=True):
    """How a remote worker introduces itself, again after each break of its connection."""

    key: str  # chosen by its process, the same for all its connections
    host: str
    pid: int
    hello: Hello
    holds: Mapping[int, int]  # run -> fence


class RemoteOpened(msgspec.Struct, frozen=True):
    """What the worker is registered as, and what it holds no longer."""

    worker: int
    lost: list[int]


class _Session:
    """A session, attached to a connection or not."""

    __slots__ = ("lapsed", "state")

    def __init__(self, state: SessionState, lapsed: Callable[[], None]) -> None:
        self.state, self.lapsed = state, lapsed


class RemoteSessions:
    """The remote workers of this store, by their keys."""

    def __init__(
        self, context: Context, presence: Presence, hub: Hub, push: Push, executor: Executor
    ) -> None:
        self._context, self._presence, self._hub = context, presence, hub
        self._push, self._executor = push, executor
        self._loop = asyncio.get_running_loop()
        self._sessions: dict[str, _Session] = {}
        self._opening: dict[str, SessionEvents] = {}  # the newest connection of each
        self._timer: asyncio.TimerHandle | None = None
        self._look_at = 0.0
        self._closed = False

    async def adopt(self) -> None:
        """Become the server of this file: its remote workers get one more lease.

        Raises StoreRefused if another process serves it, StoreUnavailable.
        """
        await self._loop.run_in_executor(self._executor, self._presence.serve)
        try:
            await self._say(Adopt(), self._adopted)
        except BaseException:
            self._presence.serve_no_more()
            raise

    def _adopted(self, remotes: Sequence[Remote]) -> None:
        for remote in remotes:
            self._sessions[remote.key] = _Session(self._enter(remote, _DETACHED, {}), _ignore)
        self._arm()

    async def open(
        self, hello: RemoteHello, events: SessionEvents, lapsed: Callable[[], None]
    ) -> RemoteOpened:
        """Register a worker, or attach the session that its key has to this connection.

        Of several connections the one that asked last has it. `lapsed` is called when the session
        is dropped, since nothing was heard of the worker for a lease. Raises StoreUnavailable.
        """
        row = worker_row(hello.hello, self._context, hello.host, hello.pid, hello.key)
        targets = targets_of(hello.hello.queues, hello.hello.serves)
        self.beat(hello.key)  # so that it does not lapse before this is committed
        self._opening[hello.key] = events
        self._push(Sweep(frozenset()), _ignore)
        attached = partial(self._attached, events, lapsed, hello.hello.limits)
        try:
            answer: Attached = await self._say(Attach(row, targets, hello.holds), attached)
        finally:
            if self._opening.get(hello.key) is events:
                del self._opening[hello.key]
        return RemoteOpened(answer.remote.worker, answer.lost)

    def _attached(
        self,
        events: SessionEvents,
        lapsed: Callable[[], None],
        limits: Mapping[str, int],
        answer: Attached,
    ) -> None:
        remote = answer.remote
        session = self._sessions.get(remote.key)
        if session is None:
            entered = self._enter(remote, events, limits)
            session = self._sessions[remote.key] = _Session(entered, lapsed)
        state, session.lapsed = session.state, lapsed
        if state.limits != limits:
            state.limits = limits
            state.gates_read, state.drained = -1, False  # more or less of a queue may be claimed
            self._hub.enter(state)
        if state.targets != remote.targets:
            state.serve(remote.targets)
        # a sweep before this one needs no telling: what it took is among what is answered as lost
        state.row, state.until, state.swept = remote.row, remote.until, remote.swept
        state.heard = time.monotonic()
        self._arm()
        if self._opening.get(remote.key) is not events:  # it has gone, or a newer one has come
            state.events = _DETACHED
            return
        state.events = events
        self._loop.call_soon(_catch_up, state, events, answer.inbox)  # once `open` has returned

    def _enter(
        self, remote: Remote, events: SessionEvents, limits: Mapping[str, int]
    ) -> SessionState:
        state = SessionState(remote.worker, remote.row, remote.targets, events, limits)
        state.until, state.swept, state.heard = remote.until, remote.swept, time.monotonic()
        self._hub.enter(state)
        return state

    async def _say(self, verb: AnyVerb, then: Callable[[Any], None]) -> Any:
        """Have it committed, and the answer dealt with before anything else happens."""
        answer: asyncio.Future[Any] = self._loop.create_future()

        def done(result: Any) -> None:
            if isinstance(result, Exception):
                if not answer.done():
                    answer.set_exception(result)
                return
            then(result)
            if not answer.done():
                answer.set_result(result)

        self._push(verb, done)
        return await answer

    def beat(self, key: str) -> bool:
        """Note that the worker lives; False if there is no such session (any more)."""
        session = self._sessions.get(key)
        if session is None:
            return False
        session.state.heard = time.monotonic()
        return True

    def is_alive(self, worker: int) -> bool:
        """Whether the lease of a remote worker of this process has not run out."""
        state = self._context.sessions.get(worker)
        return state is not None and not self._has_lapsed(state, time.monotonic())

    def detach(self, key: str) -> None:
        """The connection is gone; the worker keeps what it holds while its lease lasts."""
        self._opening.pop(key, None)
        session = self._sessions.get(key)
        if session is not None:
            session.state.events = _DETACHED

    async def close(self, key: str) -> None:
        """Unregister; whatever it still holds becomes ready at once, with no crash counted."""
        self._opening.pop(key, None)
        session = self._sessions.pop(key, None)
        if session is not None:
            worker = session.state.worker
            self._hub.leave(worker)
            await self._say(Release(worker), lambda answer: self._drop(key, worker))

    def _drop(self, key: str, worker: int) -> None:
        """Forget a session that was attached anew just before it was closed."""
        session = self._sessions.get(key)
        if session is not None and session.state.worker == worker:
            del self._sessions[key]
            self._hub.leave(worker)

    def _has_lapsed(self, state: SessionState, now: float) -> bool:
        return state.lease_end(now, self._context.lease) < now

    def _arm(self) -> None:
        if self._sessions and self._timer is None and not self._closed:
            self._look_at = time.monotonic() + self._context.lease / 3
            self._timer = self._loop.call_later(self._context.lease / 3, self._look)

    def _look(self) -> None:
        self._timer = None
        now = time.monotonic()
        # a process that was stopped itself has first to read what came in meanwhile
        if now - self._look_at < self._context.lease / 3:
            for key, session in list(self._sessions.items()):
                if self._has_lapsed(session.state, now):
                    self._lapse(key, session)
        self._arm()

    def _lapse(self, key: str, session: _Session) -> None:
        del self._sessions[key]
        self._hub.leave(session.state.worker)
        self._push(Lapse(session.state.worker), partial(self._lapsed, key, session))

    def _lapsed(self, key: str, session: _Session, answer: object) -> None:
        if key not in self._opening:  # else it has just come back, as a new worker
            session.lapsed()

    def stop(self) -> None:
        """Leave the rows and leases as they are: the next server goes on with them."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()


class _Detached:
    """Hears for a worker whose connection is gone; it is told the rest when it is back."""

    def on_ready(self) -> None: ...

    def on_inbox(self, rows: Sequence[InboxRow]) -> None: ...

    def on_lost(self, runs: Sequence[int]) -> None: ...

    def on_claimed(self, result: ClaimResult) -> None: ...

    def on_answered(self) -> None: ...

    def holds(self) -> Mapping[int, int]:
        return {}

    def keeps(self) -> Mapping[int, int]:
        return {}


_DETACHED = _Detached()


def _catch_up(state: SessionState, events: SessionEvents, inbox: list[InboxRow]) -> None:
    """Say what may have been told while nobody listened."""
    if state.events is events:
        if inbox:
            events.on_inbox(inbox)
        events.on_ready()


def _ignore(*answer: object) -> None:
    """Nobody asked."""

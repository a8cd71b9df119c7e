"""The server: owns the file, lets clients in, and stops in order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from importlib import metadata
from operator import attrgetter
from typing import Any, Final

from stepwell_queue.clock import Clock, Ids
from stepwell_queue.errors import RequestRefused
from stepwell_queue.sqlite.remote import RemoteHello
from stepwell_queue.sqlite.store import SqliteStore, open_sqlite
from stepwell_queue.tcp.protocol import VERSION, OpenSession, Welcome
from stepwell_queue.tcp.server.config import ServerConfig
from stepwell_queue.tcp.server.connection import GREET_WITHIN, Connection
from stepwell_queue.tcp.server.jobs import RemoteWorker

_log = logging.getLogger("stepwell.server")
_ROOM: Final = 256 * 1024 * 1024
"""Bytes of large frames that all connections together may be sending."""
_TICK: Final = 1.0
_BACKLOG: Final = 512
_STOPPING: Final = "the server is stopping"


class Server:
    """Serves one store to many connections."""

    store: SqliteStore

    def __init__(self, config: ServerConfig, release: str) -> None:
        self.config = config
        self._loop = asyncio.get_running_loop()
        self._connections: set[Connection] = set()
        self._sessions: dict[str, tuple[Connection, RemoteWorker]] = {}
        self._talkers: list[Connection] = []
        self._ready: set[RemoteWorker] = set()
        self._scheduled = False
        self._room = _ROOM
        self._queue: deque[Connection] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ticker: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._listener: asyncio.Server
        self._release = release

    async def bind(self) -> None:
        """Take the address, where nobody is let in yet. Raises OSError, ValueError."""
        context = await asyncio.to_thread(self.config.context)
        self._listener = await self._loop.create_server(
            lambda: Connection(self),
            self.config.host,
            self.config.port,
            ssl=context,
            ssl_handshake_timeout=GREET_WITHIN if context else None,
            backlog=_BACKLOG,
            start_serving=False,
        )

    def give_up(self) -> None:
        """Let the address go again."""
        self._listener.close()

    async def serve(self, store: SqliteStore) -> None:
        """Begin to let clients in."""
        self.store = store
        store.answered = self._flush
        await self._listener.start_serving()
        self._ticker = self._loop.call_later(_TICK, self._tick)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self._listener.sockets[0].getsockname()[:2]
        return host, port

    def welcome(self) -> Welcome:
        config = self.config
        return Welcome(
            VERSION,
            (),
            self._release,
            config.durability,
            config.lease,
            len(self._sessions),
            self.store.clock.now(),
            self.store.memory,
        )

    async def stop(self, grace: float = 10.0) -> None:
        """Take no more requests, answer those that are there within `grace` seconds, and close.

        Another call may shorten the grace. A call that is cancelled stops it all the same.
        """
        self._loop.call_later(grace, self._hurry.set)
        if self._stopping is None:
            self._stopping = self._loop.create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop_listening(self) -> None:
        # whoever is just being accepted must have got that far, or its socket is never closed
        for listener in self._listener.sockets:
            self._loop.remove_reader(listener.fileno())
        for _ in range(2):
            await asyncio.sleep(0)
        self._listener.close()

    async def _stop(self) -> None:
        await self._stop_listening()
        for _, worker in self._sessions.values():
            worker.detach()
        for connection in list(self._connections):
            connection.stop_reading()
        answered = self._loop.create_task(self._until_answered())
        hurry = self._loop.create_task(self._hurry.wait())
        await asyncio.wait((answered, hurry), return_when=asyncio.FIRST_COMPLETED)
        if not answered.done():
            _log.warning("some requests were not answered within the grace")
        for task in (answered, hurry):
            task.cancel()
        await asyncio.gather(answered, hurry, return_exceptions=True)
        for connection in list(self._connections):
            connection.finish(_STOPPING)
        await self._until_gone()
        if self._ticker is not None:
            self._ticker.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.store.close()

    async def _until_answered(self) -> None:
        while any(connection.busy for connection in self._connections):
            self._empty.clear()
            await self._empty.wait()

    async def _until_gone(self) -> None:
        try:
            async with asyncio.timeout(GREET_WITHIN):
                while self._connections:
                    self._empty.clear()
                    await self._empty.wait()
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort()

    # --- connections ---

    def joined(self, connection: Connection) -> str | None:
        """Note a connection; returns why it is not let in."""
        most = self.config.max_connections
        full = len(self._connections) >= most
        self._connections.add(connection)
        if self._stopping:
            return _STOPPING
        return f"the server has {most} connections, which is its limit" if full else None

    def left(self, connection: Connection) -> None:
        self._connections.discard(connection)
        for worker in connection.sessions.values():
            worker.detach()
            if self._sessions.get(worker.key) == (connection, worker):
                del self._sessions[worker.key]
                self.store.remote.detach(worker.key)
        connection.sessions.clear()
        self._empty.set()

    def has_something(self, connection: Connection) -> None:
        """Send it in this turn of the loop: after the batch that is being told, or else soon."""
        self._talkers.append(connection)
        self._flush_soon()

    def alone(self) -> bool:
        """Whether there is no more than one session."""
        return len(self._sessions) <= 1

    def is_ready(self, worker: RemoteWorker) -> None:
        """Claim for it at the end of this turn, after those that have less to do."""
        self._ready.add(worker)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush_late)

    def _flush_late(self) -> None:
        self._scheduled = False
        self._flush()

    def _flush(self) -> None:
        if self._ready:
            ready, self._ready = self._ready, set()
            for worker in sorted(ready, key=attrgetter("load", "worker")):
                worker.fill()
        talkers, self._talkers = self._talkers, []
        for connection in talkers:
            try:
                connection.flush()
            except Exception:  # noqa: BLE001  one that cannot be told must not silence the others
                _log.exception("%s cannot be told what there is to say", connection.peer)
                connection.abort()
        if self._stopping:
            self._empty.set()

    def reserve(self, connection: Connection, size: int) -> bool:
        """Take room for a large frame; False = wait for `go_on`."""
        if self._queue and connection is not self._queue[0]:
            if connection not in self._queue:
                self._queue.append(connection)
            return False
        if size > self._room:
            if connection not in self._queue:
                self._queue.append(connection)
            return False
        if self._queue:
            self._queue.popleft()
        self._room -= size
        if self._queue:  # there may be room for the next one, too
            self._loop.call_soon(self._queue[0].go_on)
        return True

    def release(self, connection: Connection, size: int) -> None:
        """Give room back; with 0, say only that this connection waits for none."""
        if connection.closing and connection in self._queue:
            self._queue.remove(connection)
        self._room += size
        if self._queue and (size or connection.closing):
            self._loop.call_soon(self._queue[0].go_on)

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(_TICK, self._tick)
        now = self._loop.time()
        for connection in list(self._connections):
            connection.tick(now)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- sessions ---

    async def open_session(
        self, connection: Connection, worker: RemoteWorker, request: OpenSession
    ) -> list[int]:
        """Register a worker, or attach one that comes back; returns what it holds no longer."""
        same = connection.sessions.get(worker.number)
        if same is not None and same.key != worker.key:
            raise RequestRefused(f"session {worker.number} of this connection is another worker")
        before = self._sessions.pop(worker.key, None)
        if before is not None:
            # Nothing more may be claimed for the connection that it left behind.
            old, left = before
            left.detach()
            old.sessions.pop(left.number, None)
            self.store.remote.detach(worker.key)
        self._sessions[worker.key] = (connection, worker)
        connection.sessions[worker.number] = worker
        worker.attach(connection)
        hello = RemoteHello(worker.key, request.host, request.pid, request.hello, request.holds)
        try:
            opened = await self.store.remote.open(hello, worker, lambda: self._lapsed(worker.key))
        except BaseException:
            worker.detach()
            connection.sessions.pop(worker.number, None)
            if self._sessions.get(worker.key) == (connection, worker):
                del self._sessions[worker.key]
            raise
        worker.registered(opened.worker, opened.lost)
        if self._sessions.get(worker.key) is None:  # the connection broke meanwhile
            self.store.remote.detach(worker.key)
        return opened.lost

    async def close_session(self, worker: RemoteWorker) -> None:
        worker.detach()
        self._sessions.pop(worker.key, None)
        await self.store.remote.close(worker.key)

    def _lapsed(self, key: str) -> None:
        found = self._sessions.pop(key, None)
        if found is not None:
            connection, worker = found
            worker.detach()
            connection.sessions.pop(worker.number, None)
            connection.hang_up("a worker on it has shown no life for as long as its lease")


async def open_server(config: ServerConfig, *, clock: Clock, ids: Ids) -> Server:
    """Open the store and listen.

    Raises ValueError for settings that cannot be, OSError if the port is taken, StoreRefused if the
    file cannot be used or another server serves it.
    """
    config.check()
    server = Server(config, await asyncio.to_thread(metadata.version, "stepwell"))
    await server.bind()  # first, so that a port that is taken leaves no new file behind
    try:
        store = await open_sqlite(
            config.store, durability=config.durability, clock=clock, ids=ids, lease=config.lease
        )
        try:
            await store.remote.adopt()
            await server.serve(store)
        except BaseException:
            await store.close()
            raise
    except BaseException:
        server.give_up()
        raise
    return server

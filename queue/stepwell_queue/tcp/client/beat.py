"""The heartbeat: a thread and a blocking socket of its own, so that a busy loop loses nothing."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import socket
import ssl
import threading
from collections.abc import Callable

import msgspec

from stepwell_queue.errors import StoreRefused
from stepwell_queue.tcp.access import Access, Address
from stepwell_queue.tcp.client.channel import greeting, welcomed
from stepwell_queue.tcp.protocol import BEATS, GREETING_LIMIT, decode_keys, encode, framed

_log = logging.getLogger("stepwell.store")
_LAST_RETRY = 2.0


class Beats:
    """Says every third of a lease that this process lives, for the sessions that it has."""

    def __init__(
        self,
        address: Address,
        access: Access,
        client: str,
        context: ssl.SSLContext | None,
        *,
        every: Callable[[], float],
        unknown: Callable[[list[str]], None],
    ) -> None:
        """`every` says how many seconds are between two beats.

        `unknown` is called, on the thread, with the keys that the server does not know.
        """
        self._address, self._access, self._client = address, access, client
        self._every, self._unknown = every, unknown
        self._context = context
        self._lock = threading.Condition()
        self._keys: set[str] = set()
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._chance = random.Random()

    def add(self, key: str) -> None:
        with self._lock:
            self._keys.add(key)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="stepwell-remote-beat", daemon=True
                )
                self._thread.start()
            self._lock.notify()

    def remove(self, key: str) -> None:
        with self._lock:
            self._keys.discard(key)

    def stop(self) -> None:
        """Ask the thread to end; it may take as long as a beat takes."""
        with self._lock:
            self._stopped = True
            self._lock.notify()
            if self._socket is not None:
                # wakes the thread, which closes it: the number of a closed one may be given out
                # again while the thread still reads from it
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def after_fork(self) -> None:
        """In a forked child, where the thread is not: close its copy of the socket."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                os.close(self._socket.fileno())

    def _run(self) -> None:
        failures = 0
        while True:
            keys = self._next(failures)
            if keys is None:
                break
            try:
                self._beat(keys)
                failures = 0
            except (OSError, StoreRefused, msgspec.DecodeError) as error:
                if not failures and not self._stopped:
                    _log.warning("the heartbeat to %s fails (%s); trying on", self._address, error)
                failures += 1
                self._hang_up()
        self._hang_up()

    def _next(self, failures: int) -> list[str] | None:
        """Wait until a beat is due; None = stop."""
        # A beat that is not due yet, one that waits in vain, and this: together less than a lease.
        longest = min(self._every() / 2, _LAST_RETRY, 0.05 * 2 ** min(failures, 10))
        wait = self._chance.uniform(0, longest) if failures else self._every()
        with self._lock:
            if self._socket is not None or failures:
                self._lock.wait_for(lambda: self._stopped, wait)
            self._lock.wait_for(lambda: self._stopped or self._keys)
            return None if self._stopped else sorted(self._keys)

    def _beat(self, keys: list[str]) -> None:
        line = self._socket or self._connect()
        line.sendall(framed(encode(keys)))
        unknown = decode_keys(_frame(line))
        if unknown:
            self._unknown(unknown)

    def _connect(self) -> socket.socket:
        address = self._address
        line = socket.create_connection((address.host, address.port), timeout=self._every())
        if self._context is not None:
            line = self._context.wrap_socket(line, server_hostname=address.host)
        with self._lock:
            self._socket = line
            if self._stopped:
                raise ConnectionAbortedError("stopped")
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line.sendall(greeting(self._client, self._access, BEATS))
        welcomed(_frame(line))
        return line

    def _hang_up(self) -> None:
        with self._lock:
            line, self._socket = self._socket, None
        if line is not None:
            line.close()


def _frame(line: socket.socket | ssl.SSLSocket) -> bytes:
    size = int.from_bytes(_exactly(line, 4), "big")
    if size > GREETING_LIMIT:
        raise ConnectionError(f"a frame of {size} bytes was announced on the beat channel")
    return _exactly(line, size)


def _exactly(line: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = line.recv(size - len(data))
        if not part:
            raise ConnectionError("the server hung up")
        data += part
    return bytes(data)

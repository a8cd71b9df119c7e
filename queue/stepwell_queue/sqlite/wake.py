"""Wake-ups between processes: one datagram socket each, poked after COMMIT."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import socket
from collections.abc import Callable, Iterable


class News(enum.IntFlag):
    """What has happened, as far as others may care; every bit is a hint."""

    READY = 1  # something can be claimed
    TOLD = 2  # a run that another process holds has a message
    RESTED = 4  # a run has ended, or is held or stuck
    DUE = 8  # the earliest due time may be another
    MEMBERS = 16  # a process came or left
    GATES = 32  # what is set for a queue is another
    SAID = 64  # a run has said something
    LOST = 128  # what another process holds was taken from it


class Mailbox:
    """Receives pokes on the loop and sends them without waiting."""

    def __init__(self, path: str, on_news: Callable[[News], None]) -> None:
        self._on_news = on_news
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(path)
        self._loop: asyncio.AbstractEventLoop | None = None

    def listen(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket.fileno(), self._receive)

    def _receive(self) -> None:
        news = News(0)
        with contextlib.suppress(BlockingIOError, InterruptedError):
            while data := self._socket.recv(16):
                news |= News(data[0])
        if news:
            self._on_news(news)

    def send(self, news: News, tokens: Iterable[str]) -> bool:
        """Poke these processes; False if one of them is gone."""
        all_there = True
        data = bytes((news,))
        for token in tokens:
            try:
                self._socket.sendto(data, f"{token}.sock")
            except (ConnectionRefusedError, FileNotFoundError):
                all_there = False
            except OSError:
                pass  # its queue is full, so it is awake; the second's look covers the rest
        return all_there

    def close(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()

    def let_go(self) -> None:
        """Close the descriptor alone, in a forked child."""
        self._socket.close()

"""Requests to stop, by SIGTERM and SIGINT."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from stepwell._app.log import log

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequests:
    """Catches the signals while it is entered, and puts the earlier handlers back."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self._second: Callable[[], object] | None = None
        self._insisted = False
        self.signals_insist = True
        """False: however many signals come, they ask once, and somebody else insists."""
        self._undo: list[Callable[[], Any]] = []

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        for number in SIGNALS:
            self._catch(number)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        while self._undo:
            self._undo.pop()()

    def _catch(self, number: signal.Signals) -> None:
        earlier = signal.getsignal(number)
        try:
            self._loop.add_signal_handler(number, self._request)
        except (NotImplementedError, RuntimeError, ValueError):
            self._catch_plainly(number, earlier)
            return
        self._undo.append(lambda: self._put_back(number, earlier))

    def _put_back(self, number: signal.Signals, earlier: Any) -> None:
        self._loop.remove_signal_handler(number)
        if earlier is not None:
            signal.signal(number, earlier)

    def _catch_plainly(self, number: signal.Signals, earlier: Any) -> None:
        def handle(_: int, frame: FrameType | None) -> None:
            self._loop.call_soon_threadsafe(self._request)

        try:
            signal.signal(number, handle)
        except ValueError:  # not the main thread
            log().warning("signal_not_caught", signal=number.name, hint="not the main thread")
            return
        self._undo.append(lambda: signal.signal(number, earlier))

    def on_second(self, callback: Callable[[], object]) -> None:
        """Call `callback` when there is one more request after the first, or was."""
        self._second = callback
        if self._insisted:
            self.insist()

    def ask(self) -> None:
        """Do what the first signal does; a repetition changes nothing."""
        self.first.set()

    def insist(self) -> None:
        """Do what the second signal does; a repetition changes nothing."""
        self._insisted = True
        self.first.set()
        if self._second is not None:
            self._second()
            self._second = None

    def _request(self) -> None:
        if self.first.is_set() and self.signals_insist:
            self.insist()
        else:
            self.ask()

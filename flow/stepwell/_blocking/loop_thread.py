"""An event loop in a thread of its own, in which an app is open."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any

from stepwell._app.app import Stepwell
from stepwell._blocking.waiting import running_loop
from stepwell_queue.errors import StepwellError


class Held:
    """An async context manager that a task in the loop holds open until it is told to leave."""

    def __init__(self, manager: AbstractAsyncContextManager[Any]) -> None:
        self._manager = manager
        # Done once it is open; has what kept it from opening.
        self.entered: Future[asyncio.AbstractEventLoop] = Future()
        self._leave = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def hold(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            async with self._manager:
                self.entered.set_result(self._loop)
                await self._leave.wait()
        except BaseException as error:
            if self.entered.done():
                raise
            self.entered.set_exception(error)

    def leave(self) -> None:
        """Tell it to leave, from another thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._leave.set)


class LoopThread:
    """Opens the app when made; raises what kept it from opening."""

    def __init__(self, app: Stepwell) -> None:
        self.app = app
        self._held = Held(app)
        self._error: BaseException | None = None
        # A daemon: a script that forgets to close must still be able to end.
        self._thread = threading.Thread(target=self._serve, name="stepwell", daemon=True)
        self._thread.start()
        self.loop = self._held.entered.result()

    def _serve(self) -> None:
        try:
            asyncio.run(self._held.hold())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that closes
            self._error = error

    def close(self) -> None:
        """Close the app and end the thread."""
        if running_loop() is self.loop:
            raise StepwellError("close() was called in the event loop that it would wait for")
        self._held.leave()
        self._thread.join()
        if self._error is not None:
            raise self._error

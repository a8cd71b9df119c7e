"""Group commit: what is submitted while a commit is on its way becomes the next transaction."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from stepwell_queue.contract import (
    AnyVerb,
    Append,
    Claim,
    Finish,
    Park,
    Reschedule,
    Settle,
    StartMany,
)
from stepwell_queue.errors import StoreUnavailable
from stepwell_queue.sqlite.apply import Busy, Outage
from stepwell_queue.sqlite.check import weigh
from stepwell_queue.sqlite.tx import Context, Effects
from stepwell_queue.sqlite.verbs_worker import Promote, Release, Sweep
from stepwell_queue.sqlite.writer import Applied, Writer

_log = logging.getLogger("stepwell.store")

Done = Callable[[Any], None]
Entry = tuple[AnyVerb, Done, int]

_MAX_ROWS: Final = 2000
_MAX_BYTES: Final = 16 * 1024 * 1024
MAX_WAITING: Final = 256 * 1024 * 1024  # bytes; workers' verbs are bounded by what they hold
_INLINE_ROWS: Final = 512
_INLINE_BYTES: Final = 1024 * 1024
_FIRST_RETRY, _LAST_RETRY = 0.05, 2.0
_KEPT: Final = frozenset((Append, Park, Finish, Settle, Reschedule, Claim, Promote, Release, Sweep))


class GroupCommit:
    """Collects verbs into batches and has them applied, one batch at a time."""

    def __init__(
        self,
        writer: Writer,
        context: Context,
        *,
        inline: bool,
        before: Callable[[Effects], None],
        after: Callable[[Effects, int, int], None],
        pause: Callable[[Callable[[], None]], bool],
    ) -> None:
        """`before` and `after` frame the callbacks of a batch; `pause` may stop the writing."""
        self._writer, self._context, self._inline = writer, context, inline
        self._before, self._after, self._pause = before, after, pause
        self._loop = asyncio.get_running_loop()
        self._open: deque[Entry] = deque()
        self._bytes = 0
        self._scheduled = self._busy = False
        self._retry: asyncio.TimerHandle | None = None
        self._delay = 0.0
        self.closed_because: str | None = None
        self._idle: asyncio.Future[None] | None = None
        self.commits = 0

    def submit(self, verb: AnyVerb, done: Done) -> None:
        self.push(verb, done, weigh(verb))

    def push(self, verb: AnyVerb, done: Done, weight: int = 0) -> None:
        if self.closed_because is not None:
            raise StoreUnavailable(self.closed_because)
        if self._bytes > MAX_WAITING and type(verb) not in _KEPT:
            raise StoreUnavailable(
                f"{self._bytes} bytes wait to be committed, and the limit is {MAX_WAITING}: "
                "await some of what was submitted before submitting more"
            )
        self._open.append((verb, done, weight))
        self._bytes += weight
        if not (self._scheduled or self._busy or self._retry):
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        self.flush()

    def flush(self) -> None:
        """Commit what is waiting now; does nothing while a commit is on its way."""
        if self._busy or self._retry or not self._open:
            return
        if self._pause(self._resume):
            self._busy = True
            return
        batch, size, rows = self._next_batch()
        verbs = [entry[0] for entry in batch]
        if (
            self._inline
            and self._context.alone
            and rows <= _INLINE_ROWS
            and size <= _INLINE_BYTES
            and not self._delay
        ):
            outcome = self._commit_inline(verbs)
            if outcome is not None:
                self._ended(batch, size, outcome)
                return
        self._busy = True
        self._writer.call(lambda: self._on_thread(batch, size, verbs))

    def _commit_inline(self, verbs: list[AnyVerb]) -> Applied | Outage | None:
        """Commit on the loop thread; None if another connection is writing.

        It costs less than a thread hop. This is the one place where the loop may block.
        """
        try:
            return self._writer.apply(verbs)
        except Busy:
            return None
        except Outage as outage:
            return outage

    def _next_batch(self) -> tuple[list[Entry], int, int]:
        waiting, size = self._open, self._bytes
        batch: list[Entry]
        if len(waiting) <= _INLINE_ROWS and size <= _INLINE_BYTES:
            batch = list(waiting)
            waiting.clear()
            self._bytes = 0
            rows = len(batch) + sum([len(e[0].runs) for e in batch if type(e[0]) is StartMany])
            return batch, size, rows
        batch = []
        size = rows = 0
        while waiting and rows < _MAX_ROWS and (not batch or size + waiting[0][2] <= _MAX_BYTES):
            entry = waiting.popleft()
            batch.append(entry)
            size += entry[2]
            rows += len(entry[0].runs) if type(entry[0]) is StartMany else 1
        self._bytes -= size
        return batch, size, rows

    def _on_thread(self, batch: list[Entry], size: int, verbs: list[AnyVerb]) -> None:
        outcome: Applied | BaseException
        try:
            outcome = self._writer.apply_waiting(verbs)
        except BaseException as error:  # noqa: BLE001  whatever it was, the callers hear of it
            outcome = error
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody is left to be told
            self._loop.call_soon_threadsafe(self._ended, batch, size, outcome)

    def _ended(self, batch: list[Entry], size: int, outcome: Applied | BaseException) -> None:
        self._busy = True  # until the last callback has run: a flush from within waits its turn
        try:
            if isinstance(outcome, BaseException):
                self._failed(batch, outcome)
            else:
                self._committed(batch, size, *outcome)
        finally:
            self._busy = False
            self._go_on()

    def _resume(self) -> None:
        self._busy = False
        self._go_on()

    def _committed(
        self, batch: list[Entry], size: int, results: list[Any], effects: Effects
    ) -> None:
        self.commits += 1
        if self._delay:
            self._delay = 0.0
            _log.warning("the store can be written again")
        self._before(effects)
        for (verb, done, _), result in zip(batch, results, strict=True):
            try:
                done(result)
            except Exception:  # noqa: BLE001  one broken callback must not silence the others
                _log.exception("the callback of %s failed", type(verb).__name__)
        self._after(effects, len(results), size)

    def _go_on(self) -> None:
        if self._open:
            if not (self._scheduled or self._busy or self._retry):
                self._scheduled = True
                self._loop.call_soon(self._turn)
        elif self._idle is not None and not self._busy and not self._idle.done():
            self._idle.set_result(None)

    def _failed(self, batch: list[Entry], error: BaseException) -> None:
        """Nothing was committed: clients hear it, what workers said is kept and tried again."""
        if not self._delay:
            _log.error("the store cannot be written (%s); trying again until it can", error)
        self._delay = min(self._delay * 2 or _FIRST_RETRY, _LAST_RETRY)
        kept = [entry for entry in batch if type(entry[0]) in _KEPT and self.closed_because is None]
        self._open.extendleft(reversed(kept))
        self._bytes += sum(entry[2] for entry in kept)
        if self._open:
            self._retry = self._loop.call_later(self._delay, self._try_again)
        for verb, done, weight in batch:
            if type(verb) not in _KEPT or self.closed_because is not None:
                self._refuse((verb, done, weight), error)

    def _refuse(self, entry: Entry, cause: BaseException) -> None:
        failure = StoreUnavailable(f"the store could not commit: {cause}; nothing was changed")
        failure.__cause__ = cause
        try:
            entry[1](failure)
        except Exception:  # noqa: BLE001  as above
            _log.exception("the callback of %s failed", type(entry[0]).__name__)

    def _try_again(self) -> None:
        self._retry = None
        self._go_on()

    async def close(self) -> None:
        """Commit what was submitted; in an outage try once more, then refuse what is left."""
        self.closed_because = "the store is closed: nothing can be changed through it any more"
        if self._retry is not None:
            self._retry.cancel()
            self._try_again()
        while self._open or self._busy:
            self._idle = self._loop.create_future()
            if self._retry is not None:
                self._retry.cancel()
                self._retry = None
            self._go_on()
            await self._idle

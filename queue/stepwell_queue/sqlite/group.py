"""Group commit: what is submitted while a commit is on its way becomes the next transaction."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from stepwell_queue.contract import (
    AnyVerb,
    Append,
    Claim,
    Continue,
    Emit,
    Finish,
    Fork,
    Park,
    Prune,
    PurgeDeadLetters,
    PurgeQueue,
    Report,
    Requeue,
    Reschedule,
    Settle,
    StartMany,
    Terminate,
)
from stepwell_queue.contract.check import MAX_BYTES, SMALL, WEIGHTS, refuse
from stepwell_queue.errors import StoreUnavailable
from stepwell_queue.sqlite.apply import Busy, Outage
from stepwell_queue.sqlite.tx import Context, Effects
from stepwell_queue.sqlite.verbs_remote import Lapse, SweepRemote
from stepwell_queue.sqlite.verbs_worker import Promote, Release, Sweep
from stepwell_queue.sqlite.writer import Applied, Writer

_log = logging.getLogger("stepwell.store")

Done = Callable[[Any], None]
Entry = tuple[AnyVerb, Done, int]
Batch = Sequence[Entry]

_MAX_ROWS: Final = 2000
_MAX_BYTES: Final = 16 * 1024 * 1024
MAX_WAITING: Final = 256 * 1024 * 1024  # bytes; workers' verbs are bounded by what they hold
_INLINE_ROWS: Final = 512
_INLINE_BYTES: Final = 1024 * 1024
_OF_MANY: Final = frozenset(  # they weigh by rows
    (Prune, PurgeQueue, Requeue, PurgeDeadLetters, Terminate, Fork)
)
_LITTLE: Final = _INLINE_ROWS * SMALL  # bytes, which cannot be more rows than that
_FIRST_RETRY, _LAST_RETRY = 0.05, 2.0
_KEPT: Final = frozenset(
    (
        Append, Park, Finish, Settle, Reschedule, Continue, Report, Emit, Claim, Promote, Release,
        Sweep, Lapse, SweepRemote,
    )
)  # fmt: skip


def _rows_of(verb: AnyVerb, done: Done, weight: int) -> int:
    if type(verb) is StartMany:
        return len(verb.runs)
    return weight // SMALL if type(verb) in _OF_MANY else 1


class GroupCommit:
    """Collects verbs into batches and has them applied, one batch at a time."""

    def __init__(
        self,
        writer: Writer,
        context: Context,
        *,
        inline: bool,
        before: Callable[[Effects], None],
        after: Callable[[Effects, Batch, int], None],
        pause: Callable[[Callable[[], None]], bool],
    ) -> None:
        """`before` and `after` frame the callbacks of a batch; `pause` may stop the writing."""
        self._writer, self._context, self._inline = writer, context, inline
        self._before, self._after, self._pause = before, after, pause
        self._loop = asyncio.get_running_loop()
        self._open: deque[Entry] = deque()
        self._bytes = 0
        self._sent: Batch = ()  # what the thread applies, which must not keep it when it is done
        self._sent_size = 0
        self._scheduled = self._busy = False
        self._retry: asyncio.TimerHandle | None = None
        self._delay = 0.0
        self.closed_because: str | None = None
        self._idle: asyncio.Future[None] | None = None
        self.commits = 0

    def submit(self, verb: AnyVerb, done: Done) -> None:
        """Put a verb of the contract into the open batch. Raises TypeError, ValueError."""
        weigh = WEIGHTS.get(type(verb))
        weight = -1 if weigh is None else weigh(verb)
        if not 0 <= weight <= MAX_BYTES:
            refuse(verb, weight)
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

    def push(self, verb: AnyVerb, done: Done) -> None:
        """Put a verb of the store itself into the open batch; it weighs nothing."""
        if self.closed_because is not None:
            raise StoreUnavailable(self.closed_because)
        self._open.append((verb, done, 0))
        self._go_on()

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
        batch, size, little = self._next_batch()
        if little and self._inline and self._context.alone and not self._delay:
            # It costs less than a thread hop. This is the one place where the loop may block.
            try:
                outcome = self._writer.apply(batch)
            except Outage as outage:
                self._ended(batch, size, outage)
                return
            except Busy:  # another connection is writing, and the thread can wait for that
                pass
            else:
                self._ended(batch, size, outcome)
                return
        self._busy = True
        self._sent, self._sent_size = batch, size
        self._writer.call(self._on_thread)

    def _next_batch(self) -> tuple[Batch, int, bool]:
        """What goes into the next transaction, its size, and whether that is little."""
        waiting, size = self._open, self._bytes
        if size <= _LITTLE and len(waiting) <= _INLINE_ROWS:
            self._open, self._bytes = deque(), 0
            return waiting, size, True
        batch: list[Entry] = []
        size = rows = 0
        while waiting and rows < _MAX_ROWS and (not batch or size + waiting[0][2] <= _MAX_BYTES):
            entry = waiting.popleft()
            batch.append(entry)
            size += entry[2]
            rows += _rows_of(*entry)
        self._bytes -= size
        return batch, size, rows <= _INLINE_ROWS and size <= _INLINE_BYTES

    def _on_thread(self) -> None:
        outcome: Applied | BaseException
        try:
            outcome = self._writer.apply_waiting(self._sent)
        except BaseException as error:  # noqa: BLE001  whatever it was, the callers hear of it
            outcome = error
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody is left to be told
            self._loop.call_soon_threadsafe(self._back, outcome)

    def _back(self, outcome: Applied | BaseException) -> None:
        batch, self._sent = self._sent, ()
        self._ended(batch, self._sent_size, outcome)

    def _ended(self, batch: Batch, size: int, outcome: Applied | BaseException) -> None:
        self._busy = True  # until the last callback has run: a flush from within waits its turn
        try:
            if isinstance(outcome, BaseException):
                self._failed(batch, outcome)
                return
            results, effects = outcome
            self.commits += 1
            if self._delay:
                self._delay = 0.0
                _log.warning("the store can be written again")
            if effects.moves:
                self._before(effects)
            for (verb, done, _), result in zip(batch, results, strict=True):
                try:
                    done(result)
                except Exception:  # noqa: BLE001  a broken callback must not silence the others
                    _log.exception("the callback of %s failed", type(verb).__name__)
            self._after(effects, batch, size)
        finally:
            self._busy = False
            if self._open or self._idle is not None:
                self._go_on()

    def _resume(self) -> None:
        self._busy = False
        self._go_on()

    def _go_on(self) -> None:
        if self._open:
            if not (self._scheduled or self._busy or self._retry):
                self._scheduled = True
                self._loop.call_soon(self._turn)
        elif self._idle is not None and not self._busy and not self._idle.done():
            self._idle.set_result(None)

    def _failed(self, batch: Batch, error: BaseException) -> None:
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

"""After COMMIT, on the loop: who holds what, who waits for which end, what wakes whom."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from stepwell_queue.answer import settle
from stepwell_queue.clock import Timer
from stepwell_queue.contract import AnyVerb, Ended, InboxRow
from stepwell_queue.errors import RunNotFound
from stepwell_queue.sqlite.followers import Followers
from stepwell_queue.sqlite.reads import Reads
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import Context, Effects, SessionState
from stepwell_queue.sqlite.verbs_worker import Promote, Watch, rests

_log = logging.getLogger("stepwell.store")


class Watcher:
    """Who waits for the end of a run."""

    __slots__ = ("done", "id", "run")

    def __init__(self, id: str, done: Callable[[Ended | Exception], None]) -> None:
        self.id = id
        self.done: Callable[[Ended | Exception], None] | None = done
        self.run: int | None = None

    def resolve(self, answer: Ended | Exception) -> None:
        done, self.done = self.done, None
        if done is not None:
            done(answer)


class Hub:
    """Turns the effects of a batch into calls of sessions and waiters."""

    def __init__(
        self,
        context: Context,
        reads: Reads,
        push: Callable[[AnyVerb, Callable[[Any], None]], None],
    ) -> None:
        self._context, self._reads, self._push = context, reads, push
        self.held: dict[int, tuple[str, int]] = {}  # run -> id, worker
        self._held_ids: dict[str, int] = {}
        self._watched: dict[int, list[Watcher]] = {}
        self._waiters: set[asyncio.Future[Ended]] = set()
        self.followers = Followers()
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    def before(self, effects: Effects) -> None:
        """What must be known before the callbacks of the batch run."""
        held, held_ids = self.held, self._held_ids
        for run, id, worker in effects.moves:
            if id is not None:
                held[run] = (id, worker)
                held_ids[id] = run
            elif run in held:
                del held_ids[held.pop(run)[0]]
        if self._context.limited:
            # the last move of each counts: it may have been claimed again in the same batch
            for run, id in {run: id for run, id, _ in effects.moves}.items():
                if id is None:
                    self._context.limited.pop(run, None)

    def after(self, effects: Effects) -> None:
        """What the callbacks should hear of after their own results."""
        if effects.told:
            self._tell(effects.told)
        if effects.lost:
            self._take_away(effects.lost)
        if effects.rested and self._watched:
            for ended in effects.rested:
                self._resolve(ended.run, ended)
        if effects.gates:
            self.wake_all()
        elif effects.ready:
            self._wake(effects.ready)
        if effects.due is not None:
            self.arm(effects.due, expires=effects.expires)

    def _tell(self, told: list[tuple[int, InboxRow]]) -> None:
        rows: dict[int, list[InboxRow]] = {}
        for worker, row in told:
            rows.setdefault(worker, []).append(row)
        for worker, some in rows.items():
            session = self._context.sessions.get(worker)
            if session is not None:
                session.events.on_inbox(some)

    def _take_away(self, lost: list[tuple[int | None, int]]) -> None:
        sessions = self._context.sessions
        for worker, run in lost:
            if worker is None:
                for session in sessions.values():
                    session.events.on_lost([run])
            elif worker in sessions:
                sessions[worker].events.on_lost([run])

    def _wake(self, ready: set[int]) -> None:
        for session in list(self._context.sessions.values()):
            if not ready.isdisjoint(session.targets):
                session.events.on_ready()

    def enter(self, session: SessionState) -> None:
        """A worker is here that may claim; what is due is made ready for it."""
        self._context.enter(session)
        if self._context.next_due != float("inf"):
            self.arm(self._context.next_due)

    def leave(self, worker: int) -> None:
        self._context.leave(worker)
        if not self._context.sessions:
            self.disarm()
            if self._context.next_expiry != float("inf"):
                self.arm(self._context.next_expiry, expires=True)

    def arm(self, due: float, *, expires: bool = False) -> None:
        """Have due rows promoted at this time, if a session here could care.

        `expires`: also without one, since runs end by that.
        """
        if not (self._context.sessions or expires):
            return
        if self._timer is not None and self._timer_at <= due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        self._timer = self._context.clock.call_at(due, self._fire)

    def _fire(self) -> None:
        self._timer = None
        if self._context.sessions or self._context.next_expiry != float("inf"):
            self.promote()

    def promote(self) -> None:
        """Make ready what is due."""
        self._push(Promote(), _ignore)

    def disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _resolve(self, run: int, ended: Ended | None) -> None:
        for watcher in self._watched.pop(run, ()):
            watcher.resolve(RunNotFound(watcher.id) if ended is None else ended)

    async def look_again(self) -> None:
        """Resolve the watched runs that have ended or are gone, however that came about."""
        if self._watched:
            watched = list(self._watched)
            found = {info.run: info for info in await self._reads.infos(watched)}
            for run in watched:
                info = found.get(run)
                if info is None:
                    self._resolve(run, None)
                elif rests(info.status):
                    self._resolve(run, Ended(run, info.status, info.value))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # the look of every second does the same again
            _log.warning("looking after other processes failed: %s", error)

    def watch(self, id: str, done: Callable[[Ended | Exception], None]) -> Watcher:
        """Call `done` when the run has come to rest, or with RunNotFound; `forget` prevents it."""
        watcher = Watcher(id, done)
        run = self._held_ids.get(id)
        if run is None:
            self._push(Watch(id), partial(self._looked, watcher))
        else:
            # held by a worker here, so its end comes through here, too
            self._watch(watcher, run)
        return watcher

    def _watch(self, watcher: Watcher, run: int) -> None:
        watcher.run = run
        self._watched.setdefault(run, []).append(watcher)

    def _looked(self, watcher: Watcher, answer: Ended | int | Exception) -> None:
        if not isinstance(answer, int):
            watcher.resolve(answer)
        elif watcher.done is not None:
            self._watch(watcher, answer)

    def forget(self, watcher: Watcher) -> None:
        """Nobody waits for it any more."""
        watcher.done = None
        run = watcher.run
        watchers = None if run is None else self._watched.get(run)
        if run is not None and watchers is not None and watcher in watchers:
            watchers.remove(watcher)
            if not watchers:
                del self._watched[run]

    async def wait_ended(self, id: str) -> Ended:
        waiter: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        watcher = self.watch(id, partial(settle, waiter))
        self._waiters.add(waiter)
        try:
            return await waiter
        finally:
            self._waiters.discard(waiter)
            self.forget(watcher)

    @property
    def watching(self) -> bool:
        return bool(self._watched)

    def wake_all(self) -> None:
        for session in list(self._context.sessions.values()):
            session.events.on_ready()

    async def read_inboxes(self) -> None:
        """Tell the sessions here what other processes put into the inboxes of their runs."""
        for session in list(self._context.sessions.values()):
            rows = await self._reads.rows(SQL["told_to"], (session.worker,))
            if rows:
                session.events.on_inbox([InboxRow(*row) for row in rows])

    async def find_lost(self, session: SessionState) -> None:
        """Somebody handed over what this session held: tell it what."""
        before = {run for run, (_, worker) in self.held.items() if worker == session.worker}
        rows = await self._reads.rows(SQL["still_held"], (session.worker,))
        lost = sorted(before.difference(run for (run,) in rows) & self.held.keys())
        for run in lost:
            del self._held_ids[self.held.pop(run)[0]]
        if lost:
            session.events.on_lost(lost)

    async def close(self) -> None:
        """Fail whoever still waits."""
        self.disarm()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for waiter in self._waiters:
            waiter.cancel()
        self.followers.close()


def _ignore(answer: object) -> None:
    """What became ready is told like any other effect."""

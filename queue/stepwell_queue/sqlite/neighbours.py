"""The other processes on the file: news from and to them, and what to do when one dies."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from stepwell_queue.contract import AnyVerb
from stepwell_queue.sqlite.hub import Hub
from stepwell_queue.sqlite.presence import Presence, is_held, pid_of
from stepwell_queue.sqlite.reads import Reads
from stepwell_queue.sqlite.statements import SQL
from stepwell_queue.sqlite.tx import Context, Effects
from stepwell_queue.sqlite.verbs_remote import SweepRemote
from stepwell_queue.sqlite.verbs_worker import Sweep
from stepwell_queue.sqlite.wake import Mailbox, News

_LOOK_EVERY = 1.0  # seconds, while another process is there
_LAPSED_AFTER = 10  # leases, for a worker whose lock cannot be seen


class Neighbours:
    """Knows who is there; alone it does nothing at all."""

    def __init__(
        self,
        context: Context,
        presence: Presence,
        reads: Reads,
        hub: Hub,
        executor: Executor,
        push: Callable[[AnyVerb, Callable[[Any], None]], None],
    ) -> None:
        self._context, self._presence, self._reads, self._hub = context, presence, reads, hub
        self._executor, self._push = executor, push
        self._mailbox = Mailbox(presence.socket_path, self._on_news)
        self._tokens: set[str] = set()
        self._watches: dict[str, int] = {}  # token -> pidfd
        self._tick: asyncio.TimerHandle | None = None
        self._version = -1
        self._again = self._refreshing = self._closed = self._guarding = False

    async def join(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._mailbox.listen()
        await self.refresh()
        self._mailbox.send(News.MEMBERS, self._tokens)

    async def refresh(self) -> None:
        """Find out who is there; the runs of the dead are handed over."""
        if self._refreshing:
            self._again = True
            return
        self._refreshing = True
        try:
            while True:
                self._again = False
                key = (self._presence.token,)
                foreign = await self._reads.rows(SQL["foreign_tokens"], key)
                # workers of another server, whose death they outlive: nobody else may see them end
                self._guarding = any(remote for *_, remote in foreign)
                living, dead, pids = await self._loop.run_in_executor(
                    self._executor, self._look, foreign
                )
                if self._closed:
                    for fd in pids.values():
                        os.close(fd)
                    return
                self._note(living, pids)
                if dead:
                    self._push(Sweep(frozenset(dead)), _ignore)
                if not self._again:
                    return
        finally:
            self._refreshing = False

    def _look(self, workers: list[Any]) -> tuple[set[str], set[str], dict[str, int]]:
        living, dead = self._presence.others()
        for token, boot, until, remote in workers:
            if remote or token in living or token in dead:
                continue
            held = is_held(token)
            if held is None:  # no telling: its lease decides
                lapsed = until < time.monotonic() - _LAPSED_AFTER * self._context.lease
                held = boot == self._context.boot and not lapsed
            (living if held else dead).add(token)
        pids: dict[str, int] = {}
        for token in living - self._watches.keys():
            fd = _open_pidfd(token)
            if fd is not None:
                pids[token] = fd
        return living, dead, pids

    def _note(self, living: set[str], pids: dict[str, int]) -> None:
        self._tokens = living
        for token, fd in pids.items():
            self._watches[token] = fd
            self._loop.add_reader(fd, self._died, token)
        for token in self._watches.keys() - living:
            self._unwatch(token)
        self._context.alone = not living
        if not (living or self._guarding) and self._tick is not None:
            self._tick.cancel()
            self._tick = None
        self._arm()

    def _arm(self) -> None:
        if (self._tokens or self._guarding) and self._tick is None and not self._closed:
            self._tick = self._loop.call_later(_LOOK_EVERY, self._on_tick)

    def _died(self, token: str) -> None:
        self._unwatch(token)
        self._hub.spawn(self.refresh())

    def _unwatch(self, token: str) -> None:
        fd = self._watches.pop(token, None)
        if fd is not None:
            self._loop.remove_reader(fd)
            os.close(fd)

    def _on_tick(self) -> None:
        self._tick = None
        self._hub.spawn(self._look_around())

    async def _look_around(self) -> None:
        """The safety net under pokes and locks."""
        try:
            version = (await self._reads.rows("PRAGMA data_version"))[0][0]
            if version != self._version:
                self._version = version
                self._act(News.READY | News.TOLD | News.RESTED | News.GATES | News.SAID)
            await self.refresh()
            key = (self._presence.token,)
            expiry = (await self._reads.rows(SQL["first_expiry"], key))[0][0]
            if expiry is not None and expiry < time.monotonic():
                self._push(Sweep(frozenset()), _ignore)
            if self._guarding:
                await self._look_after_remote()
        finally:
            self._arm()

    async def _look_after_remote(self) -> None:
        boot, now = self._context.boot, time.monotonic()
        key = (boot, self._presence.token, boot, now)
        for _, token, rebooted, holds in await self._reads.rows(SQL["remote_lapsed"], key):
            if rebooted or holds or token not in self._tokens:
                self._push(self.sweep_remote(), _ignore)
                return

    def sweep_remote(self) -> SweepRemote:
        return SweepRemote(frozenset(self._tokens))

    def tell(self, effects: Effects) -> None:
        """Poke the others if this batch concerns them."""
        news = News(0)
        if effects.ready:
            news |= News.READY
        if effects.gates:
            news |= News.READY | News.GATES
        if effects.rested:
            news |= News.RESTED
        if effects.said:
            news |= News.SAID
        for worker, _ in effects.lost:
            if worker not in self._context.sessions:
                news |= News.LOST
        if effects.due is not None and not self._context.sessions:
            news |= News.DUE
        for worker, _ in effects.told:
            if worker not in self._context.sessions:
                news |= News.TOLD
        if news:
            self.poke(news)

    def poke(self, news: News) -> None:
        if not self._mailbox.send(news, self._tokens):
            self._hub.spawn(self.refresh())

    def _on_news(self, news: News) -> None:
        if news & News.MEMBERS:
            self._hub.spawn(self.refresh())
        self._act(news)

    def _act(self, news: News) -> None:
        if news & News.GATES:
            self._context.gates_stale = True
        if news & (News.READY | News.DUE):
            self._context.next_due = 0.0
            for session in self._context.sessions.values():
                session.drained = False
        if news & News.READY:
            self._hub.wake_all()
        if news & News.DUE:
            self._hub.promote()
        if news & News.TOLD and self._context.sessions:
            self._hub.spawn(self._hub.read_inboxes())
        if news & News.LOST:
            for session in self._context.sessions.values():
                self._hub.spawn(self._hub.find_lost(session))
        if news & News.RESTED and self._hub.watching:
            self._hub.spawn(self._hub.look_again())
        if news & (News.SAID | News.RESTED):
            self._hub.followers.tell_all()

    def close(self) -> None:
        self._closed = True
        if self._tick is not None:
            self._tick.cancel()
        for token in list(self._watches):
            self._unwatch(token)
        self._mailbox.send(News.MEMBERS | News.DUE, self._tokens)
        self._mailbox.close()

    def let_go(self) -> None:
        self._mailbox.let_go()


def _open_pidfd(token: str) -> int | None:
    """A descriptor that becomes readable when the process dies; None if there is none."""
    opener = getattr(os, "pidfd_open", None)
    pid = pid_of(token)
    if opener is None or pid is None:
        return None
    try:
        fd: int = opener(pid)
    except OSError:
        return None
    if not is_held(token):  # the number may belong to another process by now
        os.close(fd)
        return None
    return fd


def _ignore(answer: object) -> None:
    """What a sweep changed is told like any other effect."""

"""A worker of this process, as a server knows it."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from stepwell_queue.contract import Claimed, ClaimResult, Hello, InboxRow, SessionEvents
from stepwell_queue.tcp.protocol import Dropped, Jobs, Offer, OpenSession, Request


class TcpSession:
    """Implements `Session`; `worker` is its number on this connection."""

    def __init__(
        self,
        number: int,
        key: str,
        hello: Hello,
        events: SessionEvents,
        note: Callable[[Request], None],
        end: Callable[[TcpSession], Awaitable[None]],
    ) -> None:
        self.number, self.key, self.events = number, key, events
        self._hello, self._note, self._end = hello, note, end
        # runs of which a part is still on its way: fence, and what was told meanwhile
        self._coming: dict[int, tuple[int, list[InboxRow]]] = {}
        self._places = 0
        self._closed = False
        self.known = False  # to the server
        self.introducing: int | None = None  # the request by which it is told again

    @property
    def worker(self) -> int:
        return self.number

    def introduction(self) -> OpenSession:
        """What the server has to know of it, now."""
        self._coming.clear()
        return OpenSession(
            self.number,
            self.key,
            socket.gethostname(),
            os.getpid(),
            self._hello,
            self.events.holds(),
            self.events.keeps(),
            self._places,
        )

    def offer(self, places: int) -> None:
        """Say how many runs the worker takes at once; 0 = none, until it asks."""
        self._places = places
        self._note(Offer(self.number, places))

    def dropped(self, run: int) -> None:
        """Say that the worker no longer keeps the coroutine of a run that it parked."""
        self._note(Dropped(self.number, run))

    async def close(self) -> None:
        """Unregister; whatever it still holds becomes ready at once, with no crash counted."""
        if not self._closed:
            self._closed = True
            await self._end(self)

    # --- what the server tells ---

    def whole(self, jobs: Jobs) -> ClaimResult:
        """Return the runs that are here as a whole; of the others note that they are coming."""
        if not jobs.cut:
            return ClaimResult(list(jobs.runs), jobs.more, jobs.alone_waiting)
        cut = frozenset(jobs.cut)
        runs: list[Claimed] = []
        for claimed in jobs.runs:
            if claimed.run in cut:
                self._coming[claimed.run] = (claimed.fence, [])
            else:
                runs.append(claimed)
        return ClaimResult(runs, jobs.more, jobs.alone_waiting)

    def arrived(self, claimed: Claimed) -> Claimed | None:
        """Return a run whose last part has come, with what was told meanwhile; None: it is lost."""
        fence, meanwhile = self._coming.get(claimed.run, (0, []))
        if fence != claimed.fence:
            return None
        del self._coming[claimed.run]
        known = {row.id for row in claimed.inbox}
        inbox = [*claimed.inbox, *(row for row in meanwhile if row.id not in known)]
        return replace(claimed, inbox=inbox)

    def tell(self, rows: Sequence[InboxRow]) -> None:
        """Rows for runs that are still coming wait for them."""
        if self._coming:
            now: list[InboxRow] = []
            for row in rows:
                self._coming.get(row.run, (0, now))[1].append(row)
            rows = now
        if rows:
            self.events.on_inbox(rows)

    def lose(self, runs: Sequence[int]) -> None:
        for run in runs:
            self._coming.pop(run, None)
        self.events.on_lost(runs)

"""A store that a server keeps: what is said to it goes over TCP, and it behaves like the file."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from stepwell_queue.answer import settle
from stepwell_queue.clock import Clock, Ids
from stepwell_queue.contract import (
    Append,
    Claim,
    Claimed,
    ClaimResult,
    Continue,
    DropSchedule,
    Emit,
    Ended,
    Finding,
    Finish,
    Follower,
    Hello,
    History,
    InboxRow,
    KeepNames,
    Park,
    PauseName,
    PauseQueue,
    PauseSchedule,
    PutQuestion,
    PutSchedule,
    Query,
    Record,
    Report,
    Reschedule,
    ResumeName,
    ResumeQueue,
    ResumeSchedule,
    RunFilter,
    RunInfo,
    SayState,
    SendSignal,
    SessionEvents,
    SetQueue,
    Settle,
    Start,
    Verb,
    WorkerInfo,
)
from stepwell_queue.contract.check import MAX_BYTES, WEIGHTS, refuse
from stepwell_queue.errors import StaleFence, StepwellError, StoreUnavailable
from stepwell_queue.sqlite import forks
from stepwell_queue.sqlite.group import MAX_WAITING
from stepwell_queue.tcp.access import Access, Address
from stepwell_queue.tcp.client.answers import ANSWERS, StartedThere, decoded, decoder
from stepwell_queue.tcp.client.beat import Beats
from stepwell_queue.tcp.client.clock import ServerClock
from stepwell_queue.tcp.client.follower import TcpFollower
from stepwell_queue.tcp.client.link import FOREVER, Done, Link
from stepwell_queue.tcp.client.session import TcpSession
from stepwell_queue.tcp.protocol import (
    QUERIES,
    CloseSession,
    Closing,
    Event,
    Examine,
    Forget,
    GetHistory,
    GetInbox,
    GetInfo,
    GetJournal,
    Jobs,
    ListRuns,
    ListWorkers,
    Lost,
    Ping,
    Pushed,
    Ready,
    Request,
    Told,
    WaitEnded,
)

_log = logging.getLogger("stepwell.store")

R = TypeVar("R")
T = TypeVar("T")
_KEPT: Final = frozenset((Append, Park, Finish, Settle, Reschedule, Continue, Report, Emit, Claim))
_TRY_AGAIN: Final = 1.0  # seconds
_CLOSE_WITHIN: Final = 5.0
_EXAMINE_WITHIN: Final = 600.0
_FORKED: Final = (
    "this store was opened before the process forked, and a connection cannot be used across a "
    "fork: open a store of its own in the child"
)
_PLAIN: Final = frozenset(
    (
        Append,
        Finish,
        Settle,
        Reschedule,
        Continue,
        Report,
        SendSignal,
        PutQuestion,
        SetQueue,
        PauseName,
        ResumeName,
        PauseQueue,
        ResumeQueue,
        SayState,
        PutSchedule,
        DropSchedule,
        PauseSchedule,
        ResumeSchedule,
        KeepNames,
    )
)  # answered by nil


class PingAnswer(msgspec.Struct, frozen=True):
    """What a server says of itself, and how long it took."""

    version: str
    durability: str
    seconds: float
    workers: int


class TcpStore:
    """Implements `Store` on one server."""

    def __init__(
        self, address: Address, access: Access, clock: Clock, ids: Ids, timeout: float
    ) -> None:
        self._client = ids.run_id()
        self.clock = ServerClock(clock)
        self._address, self._access = address, access
        self._loop = asyncio.get_running_loop()
        self._sessions: dict[int, TcpSession] = {}
        self._number = 0
        self._beats: Beats | None = None
        self._memory = ""  # of the server
        self._link = Link(
            address,
            access,
            self._client,
            timeout=timeout,
            clock=self.clock,
            on_event=self._on_event,
            on_answered=self._on_answered,
            reintroduce=self._reintroduce,
        )
        self.flush: Callable[[], None] = self._link.flush
        self._waiters: set[asyncio.Future[Any]] = set()
        self._followers: set[TcpFollower] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._forked = False
        forks.watch(self)

    async def open(self) -> None:
        """Connect. Raises StoreUnavailable, StoreRefused."""
        await self._link.open()
        self._memory = self._link.welcome.memory

    # --- verbs ---

    def submit(self, verb: Verb[R], done: Callable[[R | Exception], None]) -> None:
        link, kind = self._link, type(verb)
        weigh = WEIGHTS.get(kind)
        weight = -1 if weigh is None else weigh(verb)
        if not 0 <= weight <= MAX_BYTES:
            refuse(verb, weight)
        if link.closed_because is not None:
            raise StoreUnavailable(link.closed_because)
        if kind in _KEPT:
            expires = FOREVER
        elif link.bytes > MAX_WAITING:
            raise StoreUnavailable(
                f"{link.bytes} bytes wait to be answered by {self._address}, and the limit is "
                f"{MAX_WAITING}: await some of what was submitted before submitting more"
            )
        else:
            expires = link.deadline()
        request: Any = verb
        heard: Any = done
        if kind not in _PLAIN:
            heard = ANSWERS[kind](self, request, done)
        late = self._too_late if kind is Start and request.worker is not None else None
        link.ask(request, heard, weight, expires, late)

    def _too_late(self, answer: Any) -> None:
        """A run that was started for a worker here, which has given up waiting for it."""
        if not isinstance(answer, Exception):
            started: Any = decoder(StartedThere)(answer)
            if started.claimed:
                self.submit(Reschedule(started.run, 1, None), _ignore)

    async def do(self, verb: Verb[R]) -> R:
        answer: asyncio.Future[R] = self._loop.create_future()
        self.submit(verb, partial(settle, answer))
        return await answer

    def _on_answered(self) -> None:
        for session in self._sessions.values():
            session.events.on_answered()

    def claimed(self, number: int, done: Done, jobs: Jobs | Exception) -> None:
        """Hand on what a claim found, as far as it has come."""
        session = self._sessions.get(number)
        if isinstance(jobs, Exception):
            done(jobs)
        elif session is None:  # it was closed meanwhile, and the server has taken them back
            done(ClaimResult([], False, False))
        else:
            done(session.whole(jobs))
            self._fetch(session, jobs)

    # --- runs that come in parts ---

    def _fetch(self, session: TcpSession, jobs: Jobs) -> None:
        for claimed in jobs.runs:
            if claimed.run in jobs.cut:
                self._spawn(self._fetch_rest(session, claimed))

    async def _fetch_rest(self, session: TcpSession, claimed: Claimed) -> None:
        try:
            journal = await self._rest_of_journal(claimed.run, claimed.journal)
            inbox = await self._rest_of_inbox(claimed.run, claimed.inbox)
        except StepwellError as error:
            _log.error("run %s could not be fetched as a whole: %s", claimed.id, error)
            if self._link.closed_because is None:
                self.submit(Reschedule(claimed.run, claimed.fence, None), _ignore)
            return
        whole = session.arrived(replace(claimed, journal=journal, inbox=inbox))
        if whole is not None:
            session.events.on_claimed(ClaimResult([whole], False, False))
            session.events.on_answered()

    async def _rest_of_journal(self, run: int, begun: Sequence[Record]) -> list[Record]:
        journal, more = list(begun), True
        while more:
            seq = journal[-1].seq + 1 if journal else 0
            records, more = await self._get(
                GetJournal(run, seq), tuple[list[Record], bool], FOREVER
            )
            journal += records
        return journal

    async def _rest_of_inbox(self, run: int, begun: Sequence[InboxRow]) -> list[InboxRow]:
        inbox, more = list(begun), True
        while more:
            after = inbox[-1].id if inbox else 0
            rows, more = await self._get(GetInbox(run, after), tuple[list[InboxRow], bool], FOREVER)
            inbox += rows
        return inbox

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- sessions ---

    async def open_session(self, hello: Hello, events: SessionEvents) -> TcpSession:
        self._check_open()
        if self._beats is None:
            self._beats = Beats(
                self._address,
                self._access,
                self._client,
                self._link.context,
                every=lambda: self._link.welcome.lease / 3,
                unknown=self._on_unknown,
            )
        self._number += 1
        key = f"{self._client}/{self._number}"
        session = TcpSession(self._number, key, hello, events, self._link.note, self._end_session)
        self._sessions[session.number] = session
        try:
            await self._get(session.introduction(), list[int])
        except BaseException:
            self._sessions.pop(session.number, None)
            raise
        self._beats.add(key)
        session.known = True
        return session

    def _reintroduce(self) -> None:
        remembers = self._link.welcome.memory == self._memory
        for session in list(self._sessions.values()):
            if session.known:
                if session.introducing is not None:  # what it says of itself is out of date
                    self._link.forget(session.introducing)
                done = decoded(list[int], partial(self._introduced, session))
                said = session.introduction()
                if not remembers:
                    said = replace(said, holds={}, keeps={})
                session.introducing = self._link.ask(said, done, 0, FOREVER)
        if not remembers:
            self._start_over()
        for follower in self._followers:
            follower.hear()  # what was news meanwhile went by

    def _start_over(self) -> None:
        """What is known here of runs may be ahead of the file, and would leave gaps in it."""
        _log.warning(
            "the machine of %s was restarted, and may have lost its last moments: "
            "the runs that are executed here are given up, and claimed anew",
            self._address,
        )
        self._memory = self._link.welcome.memory
        self._link.refuse(_given_up)
        for session in list(self._sessions.values()):
            session.lose([*session.events.holds(), *session.events.keeps()])

    def _introduced(self, session: TcpSession, answer: list[int] | Exception) -> None:
        session.introducing = None
        if isinstance(answer, Exception):
            _log.error("%s does not take a worker back: %s", self._address, answer)
            self._loop.call_later(_TRY_AGAIN, self._link.hang_up)
        else:
            if answer:
                session.lose(answer)
            session.events.on_ready()  # it may have been told while nobody listened

    def _on_unknown(self, keys: list[str]) -> None:
        """On the thread of the beats: the server has given up a session, and must be told anew."""
        with contextlib.suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(self._unknown, keys)

    def _unknown(self, keys: list[str]) -> None:
        if any(session.known and session.key in keys for session in self._sessions.values()):
            self._link.hang_up()

    async def _end_session(self, session: TcpSession) -> None:
        session.known = False
        if self._beats is not None:
            self._beats.remove(session.key)
        try:
            async with asyncio.timeout(_CLOSE_WITHIN):
                if self._link.connected:
                    await self._get(CloseSession(session.number), None)
                elif self._link.closed_because is None:
                    raise TimeoutError
        except (TimeoutError, StoreUnavailable):
            _log.warning(
                "%s could not be told that a worker stops; what it holds is handed over when its "
                "lease is over",
                self._address,
            )
        finally:
            self._sessions.pop(session.number, None)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Closing):
            _log.warning("%s is closing the connection: %s", self._address, event.reason)
            return
        session = self._sessions.get(event.session)
        if session is None:
            return
        match event:
            case Ready():
                session.events.on_ready()
            case Told(rows=rows):
                session.tell(rows)
            case Lost(runs=runs):
                session.lose(runs)
            case Pushed(jobs=jobs):
                session.events.on_claimed(session.whole(jobs))
                session.events.on_answered()
                self._fetch(session, jobs)

    # --- reads ---

    async def _get(self, request: Request, type: Any, expires: float | None = None) -> Any:
        """Ask and wait; `expires` None = as long as a request may take."""
        self._check_open()
        answer: asyncio.Future[Any] = self._loop.create_future()
        until = self._link.deadline() if expires is None else expires
        number = self._link.ask(request, decoded(type, partial(settle, answer)), 0, until)
        waits = isinstance(request, WaitEnded)
        if waits:
            self._waiters.add(answer)
        try:
            return await answer
        finally:
            self._waiters.discard(answer)
            if self._link.forget(number) and waits:
                self._link.note(Forget(number))

    async def info(self, id: str) -> RunInfo | None:
        found: RunInfo | None = await self._get(GetInfo(id), RunInfo)
        return found

    async def wait_ended(self, id: str) -> Ended:
        ended: Ended = await self._get(WaitEnded(id), Ended, FOREVER)
        return ended

    def follow(self, id: str, run: int) -> Follower:
        self._check_open()
        follower = TcpFollower(self._link, id, run, self._followers.discard)
        self._followers.add(follower)
        return follower

    async def list_runs(self, filter: RunFilter) -> list[RunInfo]:
        found: list[RunInfo] = []
        while True:
            rest = filter if not found else _rest(filter, found)
            page: list[RunInfo] = await self._get(ListRuns(rest), list[RunInfo])
            found += page
            if not page or len(found) >= filter.limit:
                return found

    async def history(self, id: str) -> History | None:
        history: History | None = await self._get(GetHistory(id), History)
        if history is None:
            return None
        return replace(
            history, journal=await self._rest_of_journal(history.run.run, history.journal)
        )

    async def workers(self) -> list[WorkerInfo]:
        workers: list[WorkerInfo] = await self._get(ListWorkers(), list[WorkerInfo])
        return workers

    async def doctor(self) -> list[Finding]:
        until = self._loop.time() + _EXAMINE_WITHIN  # it reads all of the store
        findings: list[Finding] = await self._get(Examine(), list[Finding], until)
        return findings

    async def read(self, query: Query[R]) -> R:
        if type(query) not in QUERIES:
            raise TypeError(f"{type(query).__name__} is not a question of the store contract")
        asked: Any = query
        found: R = await self._get(asked, query.answer)
        return found

    async def ping(self) -> PingAnswer:
        """Return what the server says of itself, and how long it took to answer."""
        asked = self._loop.time()
        await self._get(Ping(), float)
        took = self._loop.time() - asked
        welcome = self._link.welcome
        return PingAnswer(welcome.release, welcome.durability, took, welcome.workers)

    def _check_open(self) -> None:
        if self._link.closed_because is not None:
            raise StoreUnavailable(self._link.closed_because)

    def after_fork(self) -> None:
        self._forked = True
        self._link.after_fork(_FORKED)
        if self._beats is not None:
            self._beats.after_fork()

    async def close(self) -> None:
        """Have what was submitted answered, then hang up. Verbs submitted later are refused."""
        if self._forked:
            return
        for task in list(self._tasks):
            task.cancel()
        for waiter in list(self._waiters):
            waiter.cancel()
        if self._link.closed_because is None:
            for session in list(self._sessions.values()):
                self._link.ask(CloseSession(session.number), _ignore, 0, FOREVER)
        await self._link.close()
        if self._beats is not None:
            self._beats.stop()
        forks.forget(self)


async def open_tcp(
    address: Address, access: Access, *, clock: Clock, ids: Ids, timeout: float
) -> TcpStore:
    """Connect to a server. Raises StoreUnavailable, StoreRefused, ValueError."""
    store = TcpStore(address, access, clock, ids, timeout)
    await store.open()
    return store


def _given_up(request: Request) -> StaleFence | None:
    """Return what a verb of a worker is refused with, if it is one about a run."""
    if isinstance(request, Append | Park | Finish | Settle | Reschedule | Continue | Report | Emit):
        return StaleFence(request.run, request.fence)
    return None


def _rest(filter: RunFilter, found: list[RunInfo]) -> RunFilter:
    return replace(filter, after=found[-1].run, limit=filter.limit - len(found))


def _ignore(answer: object) -> None:
    """The server releases what is left, in any case."""

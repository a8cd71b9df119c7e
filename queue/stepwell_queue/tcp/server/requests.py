"""What each request that is no plain verb does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec.structs import replace

from stepwell_queue.contract import (
    Claim,
    Continue,
    Ended,
    Finish,
    History,
    InboxRow,
    Park,
    Reschedule,
    RunFilter,
    RunInfo,
    SayState,
    Settle,
    Start,
    Started,
)
from stepwell_queue.errors import MalformedRequest, RequestRefused, StoreUnavailable
from stepwell_queue.tcp.protocol import (
    NOTE,
    PAGE,
    QUERIES,
    CloseSession,
    Dropped,
    Examine,
    Forget,
    GetHistory,
    GetInbox,
    GetInfo,
    GetJournal,
    ListRuns,
    ListWorkers,
    Offer,
    OpenSession,
    Ping,
    WaitEnded,
    WaitNews,
)
from stepwell_queue.tcp.server.jobs import RemoteWorker, first, give_back

if TYPE_CHECKING:
    from stepwell_queue.tcp.server.connection import Connection

GivesUp: TypeAlias = Finish | Settle | Reschedule | Continue
MAX_WATCHERS: Final = 100_000
"""Waits for ends of runs on one connection."""
_LISTED_AT_ONCE: Final = 100
_LISTED_BYTES: Final = 8 * 1024 * 1024

# --- verbs that name a worker, or whose answer says something of one ---


def _start(line: Connection, number: int, share: int, verb: Start) -> None:
    worker = None if verb.worker is None else line.sessions.get(verb.worker)
    row = None if worker is None else worker.worker

    def started(answer: Started | Exception) -> None:
        if isinstance(answer, Exception):
            line.answer(number, share, answer)
            return
        if answer.claimed is not None:
            if line.closing:
                give_back(line.store, answer.claimed)
            elif worker is not None:
                worker.started(answer.run)
        said = (answer.run, answer.created, answer.status, answer.claimed is not None)
        other = answer.id != verb.run.id  # that which has its unique key
        line.answer(number, share, (*said, answer.id) if other else said)

    line.store.submit(Start(verb.run, row), started)


def _claim(line: Connection, number: int, share: int, verb: Claim) -> None:
    worker = line.sessions.get(verb.worker)
    if worker is None:
        raise RequestRefused(f"worker {verb.worker} is not registered: open a session first")
    worker.claim(verb, partial(line.answer, number, share))


def _say_state(line: Connection, number: int, share: int, verb: SayState) -> None:
    worker = line.sessions.get(verb.worker)
    if worker is None:
        raise RequestRefused(f"worker {verb.worker} is not registered: open a session first")
    verb = SayState(worker.worker, verb.state)
    line.store.submit(verb, partial(line.answer, number, share))


def _park(line: Connection, number: int, share: int, verb: Park) -> None:
    worker = line.holder(verb.run)

    def parked(answer: list[InboxRow] | Exception) -> None:
        if worker is not None:
            if isinstance(answer, Exception):
                worker.gave_up(verb.run)
            elif not answer:
                worker.parked(verb.run, verb.fence)
        line.answer(number, share, answer or None)

    line.store.submit(verb, parked)


def _give_up(line: Connection, number: int, share: int, verb: GivesUp) -> None:
    worker = line.holder(verb.run)
    if worker is None:
        line.store.submit(verb, partial(line.answer, number, share))
    else:
        line.store.submit(verb, partial(_gave_up, line, number, share, worker, verb.run))
        line.leaving[worker] = line.leaving.get(worker, 0) + 1


def _gave_up(
    line: Connection, number: int, share: int, worker: RemoteWorker, run: int, answer: object
) -> None:
    worker.gave_up(run)
    line.answer(number, share, answer)


# --- sessions ---


def _open_session(line: Connection, number: int, share: int, request: OpenSession) -> None:
    worker = RemoteWorker(line.store, line.server, request)

    async def opened() -> list[int]:
        try:
            return await line.server.open_session(line, worker, request)
        finally:
            line.open_gate()

    _later(line, number, share, opened())


def _close_session(line: Connection, number: int, share: int, request: CloseSession) -> None:
    worker = line.sessions.pop(request.number, None)
    if worker is None:
        line.answer(number, share, None)
    else:
        _later(line, number, share, line.server.close_session(worker))


def _dropped(line: Connection, number: int, share: int, request: Dropped) -> None:
    worker = line.sessions.get(request.number)
    if worker is not None:
        worker.dropped(request.run)
    line.answer(number, share, None)


def _offer(line: Connection, number: int, share: int, request: Offer) -> None:
    worker = line.sessions.get(request.number)
    if worker is not None:
        worker.offer(request.places)
    line.answer(number, share, None)


# --- reads ---


def _wait_ended(line: Connection, number: int, share: int, request: WaitEnded) -> None:
    if number in line.watchers or number == NOTE:
        raise RequestRefused(f"{number} cannot be the number of this request")
    if len(line.watchers) + len(line.listeners) >= MAX_WATCHERS:
        raise StoreUnavailable(f"{MAX_WATCHERS} waits on one connection are the limit")

    def ended(answer: Ended | Exception) -> None:
        line.watchers.pop(number, None)
        line.answer_unasked(number, answer)

    line.watchers[number] = line.store.watch(request.id, ended)
    line.settled(share)


def _wait_news(line: Connection, number: int, share: int, request: WaitNews) -> None:
    if number in line.listeners or number == NOTE:
        raise RequestRefused(f"{number} cannot be the number of this request")
    if len(line.watchers) + len(line.listeners) >= MAX_WATCHERS:
        raise StoreUnavailable(f"{MAX_WATCHERS} waits on one connection are the limit")

    def news() -> None:
        line.listeners.pop(number).leave()
        line.answer_unasked(number, None)

    line.listeners[number] = line.store.listen(request.id, request.run, news)
    line.settled(share)


def _forget(line: Connection, number: int, share: int, request: Forget) -> None:
    listener = line.listeners.pop(request.number, None)
    if listener is not None:
        listener.leave()
    watcher = line.watchers.pop(request.number, None)
    if watcher is not None:
        line.store.forget(watcher)
    line.answer(number, share, None)


async def _runs(line: Connection, filter: RunFilter) -> list[RunInfo]:
    page = replace(filter, limit=max(min(filter.limit, _LISTED_AT_ONCE), 0))
    found = await line.store.list_runs(page)
    room, count = _LISTED_BYTES, 0
    for info in found:
        room -= len(info.args) + len(info.value)
        if room < 0 and count:
            break
        count += 1
    return found[:count]


async def _history(line: Connection, id: str) -> History | None:
    history = await line.store.history(id)
    if history is None:
        return None
    return replace(history, journal=first(history.journal, PAGE)[0])


def _ping(line: Connection, number: int, share: int, request: Ping) -> None:
    line.answer(number, share, line.store.clock.now())


def _read(work: Callable[[Connection, Any], Awaitable[object]]) -> Handler:
    def handler(line: Connection, number: int, share: int, request: Any) -> None:
        _later(line, number, share, work(line, request))

    return handler


def _later(line: Connection, number: int, share: int, work: Awaitable[object]) -> None:
    """Answer when this is done."""

    async def answered() -> None:
        try:
            value: object = await work
        except Exception as error:  # noqa: BLE001  whatever it was, the client hears of it
            value = error
        line.answer(number, share, value)

    line.server.spawn(answered())


Handler = Callable[["Connection", int, int, Any], None]
HANDLERS: Final[dict[Any, Handler]] = {
    Start: _start,
    Claim: _claim,
    SayState: _say_state,
    Park: _park,
    Finish: _give_up,
    Settle: _give_up,
    Reschedule: _give_up,
    Continue: _give_up,
    Offer: _offer,
    OpenSession: _open_session,
    CloseSession: _close_session,
    Dropped: _dropped,
    WaitEnded: _wait_ended,
    WaitNews: _wait_news,
    Forget: _forget,
    GetInfo: _read(lambda line, request: line.store.info(request.id)),
    ListRuns: _read(lambda line, request: _runs(line, request.filter)),
    GetHistory: _read(lambda line, request: _history(line, request.id)),
    ListWorkers: _read(lambda line, request: line.store.workers()),
    Examine: _read(lambda line, request: line.store.doctor()),
    Ping: _ping,
    GetJournal: _read(
        lambda line, request: line.store.journal_page(request.run, request.seq, PAGE)
    ),
    GetInbox: _read(lambda line, request: line.store.inbox_page(request.run, request.after, PAGE)),
    MalformedRequest: lambda line, number, share, error: line.answer(number, share, error),
    **dict.fromkeys(QUERIES, _read(lambda line, request: line.store.read(request))),
}

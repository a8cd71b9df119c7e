"""Realistic programs, which every type checker must accept as they are."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, ParamSpec, TypeVar, assert_type

import stepwell
from stepwell import (
    BlockingRun,
    BlockingStepwell,
    Bulk,
    CallNext,
    ChildRun,
    GiveUp,
    JobScope,
    Middleware,
    Outcome,
    Queue,
    QueueChanges,
    QueueInfo,
    Rate,
    Retry,
    RetryLater,
    Run,
    RunInfo,
    RunStatus,
    Schedule,
    Signal,
    SignalTimeout,
    StartOptions,
    Step,
    StepCall,
    Stepwell,
    TaskCall,
    Undo,
    Workflow,
    WorkflowCall,
    compensate,
    continue_as_new,
    current_app,
    current_job,
    current_run,
    current_step,
    deadline,
    now,
    parallel,
    patched,
    race,
    rollback_scope,
    schedule,
    sleep,
    sleep_until,
    start,
    step,
    task,
    wait_for_signal,
    workflow,
)

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Order:
    id: str
    total: int


@dataclass
class Receipt:
    order: str


class Rejected(Exception): ...


# --- a checkout against a service that fails now and then ---

decision = Signal("decision", bool)
note = Signal[str | None]("note", str | None)


@step
async def refund(receipt: Receipt) -> None: ...


@step(retry=Retry(attempts=5, delay=1.0, retry_on=(OSError,)), timeout=30.0)
async def charge(order: Order, *, currency: str = "EUR") -> Receipt:
    if order.total > 10_000:
        raise RetryLater(60.0)
    return Receipt(current_step().key)


@step(compensate=refund)
async def reserve(order: Order) -> Receipt:
    return Receipt(order.id)


@step(compensate=refund, queue="stock")
def reserve_in_a_thread(order: Order) -> Receipt:
    return Receipt(order.id)


@step
def render_invoice(order: Order) -> bytes:
    return order.id.encode()


@workflow
async def checkout(order: Order) -> Receipt:
    receipt = await charge(order, currency="USD")
    assert_type(receipt, Receipt)
    undo = compensate(refund(receipt))
    assert_type(undo, Undo)
    invoice, reserved = await parallel(render_invoice(order), reserve(order))
    assert_type(invoice, bytes)
    assert_type(reserved, Receipt)
    verdict = await wait_for_signal(decision, timeout=timedelta(hours=1))
    assert_type(verdict, bool)
    if not verdict:
        raise Rejected(order.id)
    undo.discard()
    return receipt


async def shop(order: Order) -> None:
    async with Stepwell("orders.db") as app, app.worker(concurrency=128) as worker:
        run = await app.start(checkout(order), id="order-42")
        assert_type(run, Run[Receipt])
        await run.signal(decision, True)
        await run.signal("loosely named", {"any": "value"})
        assert_type(await run.result(timeout=5), Receipt)
        assert_type(await run.status(), RunStatus)
        assert_type(await app.get("order-42", checkout).result(), Receipt)
        await worker.drain()
        runs = await app.start_many([checkout(order), checkout(order)])
        assert_type(runs, list[Run[Receipt]])
        assert_type(await app.runs(status=["failed", "held"]), list[RunInfo])


# --- ingestion of a folder, with Path arguments and methods ---


@dataclass(frozen=True)
class Index:
    folder: Path
    language: str = "en"

    @step
    async def parse(self, file: Path) -> int:
        return len(file.name)

    @step
    def words(self, file: Path) -> list[str]:
        return file.name.split()

    @workflow
    async def ingest(self, files: list[Path]) -> int:
        sizes = await parallel(*(self.parse(file) for file in files), limit=8)
        assert_type(sizes, tuple[int, ...])
        assert_type(await self.words(files[0]), list[str])
        return sum(sizes)


async def index(folder: Path, files: list[Path]) -> int:
    async with Stepwell(folder / "index.db") as app:
        call = Index(folder).ingest(files)
        assert_type(call, WorkflowCall[int])
        return await app.run(call)


# --- an approval with reminders ---

Answer = Literal["yes", "no"]
answer = Signal[Answer]("answer", Literal["yes", "no"])


@task(batch=100, linger=0.05)
async def index_all(orders: list[Order]) -> list[str]:
    return [order.id for order in orders]


@task(batch=100, linger=timedelta(seconds=1), retry=Retry(attempts=3))
async def index_some(orders: list[Order]) -> list[int | Exception]:
    return [order.total or ValueError(order.id) for order in orders]


@task(batch=10, queue="mail")
def tell(orders: list[Order]) -> None:
    print(len(orders))


async def indexed(app: Stepwell, orders: list[Order]) -> None:
    assert_type(await index_all(orders[0]), str)
    assert_type(await index_some(orders[0]), int)
    await app.enqueue_many([index_all(order) for order in orders])
    assert_type(await app.enqueue(index_all(orders[0]), id="a"), Run[str])
    assert_type(await app.get("a", index_all).result(), str)
    assert_type(await index_all.fn(orders), list[str])
    await app.enqueue(tell(orders[0]))


@task(queue="mail", retry=Retry(attempts=3), deadline=timedelta(hours=1))
async def remind(person: str) -> datetime:
    return datetime.now(UTC)


@workflow(version=2, on_failure="hold", deadline=timedelta(days=30))
async def approval(person: str) -> Answer:
    until = now() + timedelta(days=14)
    while now() < until:
        match await race(wait_for_signal(answer), sleep(86400.0)):
            case (0, verdict):
                assert_type(verdict, Answer)
                return verdict
            case (1, nothing):
                assert_type(nothing, None)
                assert_type(await remind(person), datetime)
    await sleep_until(until)
    if patched("endless"):
        continue_as_new(approval(person))
    async with rollback_scope(), deadline(timedelta(minutes=1)):
        await sleep(1)
    assert_type(patched("new"), bool)
    assert_type(patched("new", retired=True), bool)
    fallback = await wait_for_signal(answer, timeout=1, default=0)
    assert_type(fallback, Answer | int)
    try:
        return await wait_for_signal("answer", Literal["yes", "no"], timeout=1)
    except SignalTimeout as error:
        assert_type(error.timeout, float)
    loose = await wait_for_signal("anything")
    assert_type(loose, object)
    return "no"


# --- an agent whose message list grows ---


@dataclass
class Message:
    role: Literal["user", "assistant"]
    text: str
    tools: list[str] = field(default_factory=list[str])


def traced(fn: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    @functools.wraps(fn)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        return await fn(*args, **kwargs)

    return wrapper


@step(timeout=timedelta(minutes=2))
@traced
async def complete(messages: list[Message]) -> Message:
    return messages[-1]


@workflow
async def agent(question: str) -> str:
    messages = [Message("user", question)]
    while True:
        reply = await complete(messages)
        assert_type(reply, Message)
        messages.append(reply)
        if not reply.tools:
            return reply.text

        async def use(tool: str) -> int:
            return len(tool)

        used = await parallel(*map(use, reply.tools), return_exceptions=True)
        assert_type(used, tuple[int | Exception, ...])


# --- a nightly report with many children ---


@workflow
async def page(number: int) -> str:
    return f"{number} of {current_run().parent_id}"


@workflow
async def report(pages: int) -> list[str]:
    texts = await parallel(*(page(n).with_options(priority=-1) for n in range(pages)), limit=50)
    child = await start(page(0), id="cover")
    assert_type(child, ChildRun[str])
    assert_type(await child.result(), str)
    job = await start(remind("editor"))
    assert_type(job, ChildRun[datetime])
    both = await parallel(page(1), remind("x"), return_exceptions=True)
    assert_type(both, tuple[str | Exception, datetime | Exception])
    return list(texts)


@step
async def spread(names: list[str]) -> list[str]:
    app = current_app()
    assert_type(app, Stepwell)
    runs = await app.enqueue_many(remind(name) for name in names)
    assert_type(runs, list[Run[datetime]])
    run = await app.enqueue(remind("late"), delay=timedelta(hours=2), priority=3)
    assert_type(run, Run[datetime])
    return [one.id for one in runs]


# --- when, in which order, once ---


@dataclass
class Import:
    tenant: str
    rows: list[int]


@task(key=lambda job: job.tenant, priority=3, expires=timedelta(hours=1))
async def take_in(job: Import) -> int:
    return len(job.rows)


@workflow(key=lambda tenant, month: f"{tenant}/{month}")
async def close_books(tenant: str, month: int) -> bool:
    return month > 0


async def imports_of(tenant: str) -> AsyncIterator[TaskCall[int]]:
    for number in range(3):
        yield take_in(Import(tenant, [number]))


async def on_terms(app: Stepwell, blocking: BlockingStepwell) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    first = await app.enqueue(take_in(Import("a", [])), unique="a", unique_for=60)
    assert_type(first, Run[int])
    assert_type(first.found, RunStatus | None)
    options: StartOptions = {"after": [first, "other"], "key": "b", "expires": tomorrow}
    books = await app.start(close_books("a", 1), **options)
    assert_type(books, Run[bool])
    call = take_in(Import("a", [1])).with_options(unique="a", replace=True, retry=Retry(2))
    assert_type(call, TaskCall[int])
    assert_type(await app.enqueue(call, when_full="wait", wait_timeout=5.0), Run[int])
    bulk = await app.enqueue_many(imports_of("a"), id="import-42")
    assert_type(bulk, Bulk)
    assert_type(bulk.run_id(0), str)
    assert_type(blocking.enqueue(call, delay=5, after=[books]), BlockingRun[int])
    assert_type(blocking.start_many([close_books("a", 1)]), list[BlockingRun[bool]])
    assert_type(blocking.enqueue_many((call for _ in range(2)), id="x"), Bulk)


# --- schedules, in code and at run time ---


@schedule(cron="0 9 * * 1-5", tz="Europe/Rome")
@task
async def send_digest() -> str:
    return "sent"


@schedule(every=timedelta(hours=1), overlap="queue", missed="skip", jitter=30)
@workflow
async def tidy(limit: int = 10) -> int:
    return limit


schedule(at=datetime(2030, 1, 1, tzinfo=UTC), id="remind-ann")(remind("ann"))


async def scheduled(app: Stepwell, blocking: BlockingStepwell) -> None:
    assert_type(send_digest(), TaskCall[str])
    assert_type(tidy(limit=3), WorkflowCall[int])
    made = await app.schedule("nightly", remind("bob"), cron="30 2 * * *", missed=3)
    assert_type(made, Schedule[datetime])
    assert_type(await made.run_now(), Run[datetime])
    assert_type(blocking.schedule("weekly", tidy(3), every=604_800).run_now(), BlockingRun[int])
    for tick in await app.get_schedule("nightly").history():
        assert_type(tick.run_id, str | None)


# --- an app with a lifespan, and one for code that blocks ---


@contextlib.asynccontextmanager
async def lifespan(app: Stepwell) -> AsyncGenerator[None, None]:
    yield


app = Stepwell("sqlite:///orders.db", lifespan=lifespan, durability="process")


def view(order: Order) -> Receipt:
    blocking = BlockingStepwell("orders.db")
    run = blocking.start(checkout(order), id=order.id)
    assert_type(run, BlockingRun[Receipt])
    run.signal(decision, True)
    with blocking.worker() as worker:
        worker.drain()
    assert_type(blocking.get(order.id, checkout).result(), Receipt)
    return stepwell.run(checkout(order), store="orders.db", id=order.id)


# --- decorated functions as values ---


def values(order: Order) -> None:
    assert_type(charge(order), StepCall[Receipt])
    assert_type(charge(order).with_options(timeout=3), StepCall[Receipt])
    plain: Step[[Order], bytes, bytes] = render_invoice
    assert_type(plain.fn(order), bytes)
    flow: Workflow[[Order], Receipt] = checkout
    assert_type(flow.name, str)


async def tested_as_functions(order: Order) -> None:
    assert_type(await charge(order), Receipt)
    assert_type(await charge.fn(order), Receipt)
    assert_type(render_invoice.fn(order), bytes)
    assert_type(await render_invoice(order), bytes)
    assert_type(await remind("x"), datetime)


# Middleware, child processes, and who decides on another attempt


class Tracing(Middleware):
    def __init__(self) -> None:
        self.attempts: dict[str, int] = {}

    async def around(self, job: JobScope, call_next: CallNext) -> object:
        self.attempts[job.name] = job.attempt
        return await call_next()


class Auditing(Middleware):
    async def before(self, job: JobScope) -> None:
        assert_type(job.kind, Literal["task", "step"])
        if "tenant" not in job.arguments:
            raise GiveUp(f"{job.name} has no tenant")

    async def after(self, job: JobScope, outcome: Outcome) -> None:
        assert_type(outcome.error, BaseException | None)


@task(executor="process", retry=Retry(attempts=3), timeout=timedelta(minutes=1))
def fold(numbers: list[int]) -> int:
    return sum(numbers) * current_job().attempt


async def folds() -> None:
    app = Stepwell("folds.db", middleware=[Tracing(), Auditing()])
    async with app, app.worker(child_processes=2):
        assert_type(await (await app.enqueue(fold([1, 2]))).result(), int)
    BlockingStepwell("folds.db", middleware=(Tracing(),)).close()


# --- queues ---

exports = Queue("exports", limit=4, key_limit=1, rate=Rate(100, per=timedelta(minutes=1)))


@task(queue=exports)
async def export(name: str) -> int:
    return len(name)


@step(queue=exports)
async def measure(name: str) -> int:
    return len(name)


@workflow(queue=Queue("heavy"))
async def measured(name: str) -> int:
    return await measure(name).with_options(queue=exports)


async def steer_queues(app: Stepwell, blocking: BlockingStepwell) -> None:
    assert_type(await app.enqueue(export("a"), queue=exports), Run[int])
    queue = app.queue(exports)
    await queue.pause(datetime.now(UTC) + timedelta(hours=1), reason="night")
    await queue.configure(limit=None, rate=Rate(5), ageing=timedelta(minutes=1))
    changes: QueueChanges = {"key_limit": 3}
    await queue.configure(**changes)
    info = await queue.info()
    assert_type(info.settings, Queue)
    assert_type(info.counts["failed"], int)
    assert_type([rate.ended for rate in info.throughput], list[float])
    assert_type(await queue.purge(confirm=True), int)
    assert_type(await app.queues(), list[QueueInfo])
    assert_type(blocking.queue("exports").purge(reason="why", confirm=True), int)
    async with app.worker(queues=[exports, "default"]), app.worker(queues={exports: 5}):
        pass

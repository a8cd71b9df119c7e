"""What cannot be replayed is refused at the line that uses it, and no `except` hides it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import socket
import threading
from collections.abc import AsyncGenerator, Generator
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from stepwell import Call, NotDurable, parallel, sleep, step
from tests.replay.driver import Code, Drive
from tests.replay.steps import a, undo

CASES: dict[str, Code] = {}


def refused(code: Code) -> Code:
    CASES[code.__name__] = code
    return code


async def nothing() -> None: ...


async def durable() -> None:
    await sleep(1)


@refused
async def create_task() -> None:
    with closing(nothing()) as coroutine:
        await asyncio.create_task(coroutine)


@refused
async def create_task_of_a_durable_coroutine() -> None:
    with closing(durable()) as coroutine:
        await asyncio.create_task(coroutine)


@refused
async def ensure_future() -> None:
    with closing(nothing()) as coroutine:
        await asyncio.ensure_future(coroutine)


@refused
async def gather() -> None:
    with closing(durable()) as one, closing(durable()) as other:
        await asyncio.gather(one, other)


@refused
async def gather_nothing() -> None:
    await asyncio.gather()


@refused
async def wait_for() -> None:
    with closing(durable()) as coroutine:
        await asyncio.wait_for(coroutine, 1)


@refused
async def wait() -> None:
    await asyncio.wait({asyncio.get_running_loop().create_future()})


@refused
async def as_completed() -> None:
    with closing(durable()) as coroutine:
        for one in asyncio.as_completed([coroutine]):
            await one


@refused
async def shield() -> None:
    with closing(durable()) as coroutine:
        await asyncio.shield(coroutine)


@refused
async def timeout() -> None:
    async with asyncio.timeout(1):
        await a()


@refused
async def timeout_at() -> None:
    async with asyncio.timeout_at(1):
        await a()


@refused
async def task_group() -> None:
    async with asyncio.TaskGroup():
        await a()


@refused
async def asyncio_sleep() -> None:
    await asyncio.sleep(0.01)


@refused
async def asyncio_sleep_zero() -> None:
    await asyncio.sleep(0)


@refused
async def queue() -> None:
    await asyncio.Queue[int]().get()


@refused
async def event() -> None:
    await asyncio.Event().wait()


@refused
async def semaphore() -> None:
    await asyncio.Semaphore(0).acquire()


@refused
async def condition() -> None:
    condition = asyncio.Condition()
    async with condition:
        await condition.wait()


@refused
async def contended_lock() -> None:
    lock = asyncio.Lock()
    await lock.acquire()
    await lock.acquire()


@refused
async def asyncio_barrier() -> None:
    await asyncio.Barrier(2).wait()


@refused
async def asyncio_to_thread() -> None:
    await asyncio.to_thread(print)


@refused
async def run_in_executor() -> None:
    await asyncio.get_running_loop().run_in_executor(None, print)


@refused
async def call_soon() -> None:
    asyncio.get_running_loop().call_soon(print)


@refused
async def call_later() -> None:
    asyncio.get_running_loop().call_later(1, print)


@refused
async def call_at() -> None:
    asyncio.get_running_loop().call_at(1, print)


@refused
async def loop_time() -> None:
    asyncio.get_running_loop().time()


@refused
async def current_task() -> None:
    asyncio.current_task()


@refused
async def create_future() -> None:
    await asyncio.get_running_loop().create_future()


@refused
async def wrap_future() -> None:
    await asyncio.wrap_future(concurrent.futures.Future[int]())


@refused
async def foreign_future() -> None:
    loop = asyncio.new_event_loop()
    try:
        await loop.create_future()
    finally:
        loop.close()


@refused
async def open_connection() -> None:
    await asyncio.open_connection("127.0.0.1", 1)


@refused
async def start_server() -> None:
    await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)


@refused
async def subprocess() -> None:
    await asyncio.create_subprocess_exec("true")


@refused
async def sock_recv() -> None:
    with socket.socket() as one:
        await asyncio.get_running_loop().sock_recv(one, 1)


@refused
async def run_coroutine_threadsafe() -> None:
    with closing(nothing()) as coroutine:
        asyncio.run_coroutine_threadsafe(coroutine, asyncio.get_running_loop())


@refused
async def asyncio_run() -> None:
    loop = asyncio.get_running_loop()
    with closing(nothing()) as coroutine:
        loop.run_until_complete(coroutine)


@refused
async def anyio_sleep() -> None:
    await anyio.sleep(0.01)


@refused
async def anyio_task_group() -> None:
    async with anyio.create_task_group():
        await a()


@refused
async def anyio_fail_after() -> None:
    with anyio.fail_after(1):
        await a()


@refused
async def anyio_move_on_after() -> None:
    with anyio.move_on_after(1):
        await a()


@refused
async def anyio_to_thread() -> None:
    await anyio.to_thread.run_sync(print)


@refused
async def anyio_event() -> None:
    await anyio.Event().wait()


@refused
async def anyio_checkpoint() -> None:
    await anyio.lowlevel.checkpoint()


class _Foreign:
    def __await__(self) -> Generator[Any, Any, None]:
        yield "something else"


class _Bare:
    def __await__(self) -> Generator[Any, Any, None]:
        yield


@refused
async def foreign_awaitable() -> None:
    await _Foreign()


@refused
async def bare_yield() -> None:
    await _Bare()


@refused
async def in_an_async_generator() -> None:
    async def numbers() -> AsyncGenerator[int, None]:
        yield 1
        await asyncio.sleep(0.01)

    async for _ in numbers():
        pass


@refused
async def in_a_branch() -> None:
    async def branch() -> None:
        await asyncio.sleep(0.01)

    await parallel(branch(), a())


def closing(coroutine: Any) -> contextlib.closing[Any]:
    """A coroutine that the refused call never took over would warn when it is collected."""
    return contextlib.closing(coroutine)


@pytest.mark.parametrize("code", CASES.values(), ids=CASES.keys())
def test_what_needs_an_event_loop_is_not_durable(drive: Drive, code: Code) -> None:
    run = drive(code)
    assert isinstance(run.stuck, NotDurable)
    assert run.execution.outcome is None


@pytest.mark.parametrize("code", CASES.values(), ids=CASES.keys())
def test_no_except_and_no_finally_hides_it(drive: Drive, code: Code) -> None:
    async def hides() -> str:
        with contextlib.suppress(BaseException):
            await code()
        return "hidden"

    run = drive(hides)
    assert isinstance(run.stuck, NotDurable)
    assert run.execution.outcome is None


@pytest.mark.parametrize(
    ("code", "twin"),
    [
        (create_task, "parallel"),
        (gather, "parallel"),
        (wait_for, "race"),
        (timeout, "race"),
        (anyio_task_group, "parallel"),
        (asyncio_sleep, "sleep"),
        (call_later, "sleep"),
        (event, "wait_for_signal"),
        (loop_time, "now()"),
        (asyncio_to_thread, "@step"),
        (open_connection, "@step"),
        (foreign_awaitable, "@step"),
    ],
)
def test_the_error_names_the_durable_twin(drive: Drive, code: Code, twin: str) -> None:
    assert twin in str(drive(code).stuck)


def test_the_error_is_raised_at_the_line_of_the_user(drive: Drive) -> None:
    run = drive(asyncio_sleep)
    lines: list[str] = []
    frame = run.stuck.__traceback__
    while frame is not None:
        lines.append(frame.tb_frame.f_code.co_name)
        frame = frame.tb_next
    assert "asyncio_sleep" in lines


async def uses_what_is_harmless() -> list[Any]:
    lock = asyncio.Lock()
    async with lock:
        first = await a()
    queue = asyncio.Queue[int]()
    queue.put_nowait(1)
    with threading.Lock():
        return [first, await queue.get()]


def test_what_does_not_wait_for_a_loop_is_allowed(drive: Drive) -> None:
    run = drive(uses_what_is_harmless)
    run.returns("0", "fine")
    assert run.result == ["fine", 1]


def test_the_loop_of_the_driver_is_back_after_the_code_has_run(drive: Drive) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        run = drive(asyncio_sleep)
        assert isinstance(run.stuck, NotDurable)
        assert asyncio.get_running_loop() is loop
        assert asyncio.current_task() is not None
        await asyncio.sleep(0)

    asyncio.run(main())


def test_a_stuck_run_takes_no_further_records(drive: Drive) -> None:
    async def code() -> None:
        await a()
        await asyncio.sleep(1)

    run = drive(code)
    run.returns("0")
    stuck = run.stuck
    run.signal("go")
    run.cancel()
    assert run.stuck is stuck
    assert run.execution.outcome is None


def unbook_by_the_clock(x: Any) -> Call[Any]:
    try:
        asyncio.get_running_loop().time()
    except NotDurable:
        return undo(x)
    return undo(None)


@step(compensate=unbook_by_the_clock)
async def book_by_the_clock(x: Any = None) -> Any: ...


async def books() -> None:
    await book_by_the_clock(1)


def test_what_makes_the_undo_of_a_step_needs_no_loop_either(drive: Drive) -> None:
    async def main() -> None:
        run = drive(books)
        run.returns("0", 1)
        assert "loop.time" in str(run.not_durable)
        assert "loop.time" in str(run.replayed().not_durable)
        assert asyncio.get_running_loop().time() > 0

    asyncio.run(main())

"""Which code is workflow code, and what is known of its names."""

from __future__ import annotations

import pytest

from stepwell.checking import Problem
from tests.checking.conftest import Check

HEAD = """
import asyncio, os, random, time
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
import stepwell as sw
from stepwell import (
    Cancelled, compensate, parallel, race, sleep, start, step, task, wait_for_signal, workflow
)

@step
async def work(value: object = None) -> str: ...

"""


def found(problems: list[Problem]) -> list[tuple[int, str]]:
    """Lines, counted from the first one behind the head, and rules."""
    return [(one.line - HEAD.count("\n"), one.rule) for one in problems]


def test_aliases_of_modules_functions_and_decorators_are_followed(check: Check) -> None:
    code = """
    import time as t
    from datetime import datetime as dt, date
    from stepwell import workflow as durable
    import stepwell

    clock = t.time

    @durable(name="one")
    async def one() -> None:
        clock(), dt.now

    @stepwell.workflow
    async def two() -> None:
        now = date.today
        now()
    """
    assert [(one.line, one.rule) for one in check(code)] == [(n, "clock") for n in (11, 15, 16)]


def test_what_only_has_the_name_of_something_is_not_reported(check: Check) -> None:
    code = """@workflow
async def flow(time: object, os: dict[str, str], open: object) -> None:
    time.time(), os.environ, open()
    from stepwell import now, random
    random().choice([1]), now().isoformat()
    asyncio = 1
    asyncio.sleep()
"""
    assert check(HEAD + code) == []


def test_steps_and_tasks_are_no_workflow_code_however_they_are_made(check: Check) -> None:
    code = """
def durable(fn):
    return step(timeout=1.0)(fn)

patient = step(timeout=1.0)

def read() -> float:
    return time.time()

reading = step(read)

@durable
def one() -> float:
    return time.time()

@patient
def two() -> float:
    return time.time()

@task
async def three() -> None:
    await asyncio.sleep(1)

@workflow
async def flow() -> None:
    @sw.step
    async def inner() -> None:
        await asyncio.sleep(1)

    await one(), await two(), await three(), await inner(), await reading()
"""
    assert check(HEAD + code) == []


def test_helpers_coroutines_lambdas_methods_and_undo_makers_are_workflow_code(check: Check) -> None:
    code = """def helper() -> float: return deeper()
def deeper() -> float: return time.time()
async def branch() -> None: time.monotonic()
@step(compensate=lambda result: work(time.time()))
async def undone() -> None: ...
class Order:
    def __init__(self) -> None: self.at = time.time()
    @property
    def age(self) -> float: return time.time()
def unused() -> float: return time.time()
@workflow
async def flow(order: Order) -> None:
    async def nested() -> None: time.time()
    await parallel(branch(), nested())
    sorted([1], key=lambda one: helper()), order.age, Order()
    [time.time() for _ in range(3)]
"""
    assert found(check(HEAD + code)) == [(n, "clock") for n in (2, 3, 4, 7, 9, 13, 16)]


def test_helpers_of_other_modules_are_followed_and_reported_where_they_are(check: Check) -> None:
    problems = check(
        """
        from shop import prices
        from shop.stock import *
        from stepwell import workflow

        @workflow
        async def flow() -> None:
            prices.read()
            await reserve()
            await count()
        """,
        shop__prices="def read() -> str: return open('prices').read()",
        shop__stock="""
        import asyncio, stepwell

        async def reserve() -> None: await asyncio.sleep(1)

        @stepwell.step
        async def count() -> int: return len(open('stock').read())
        """,
    )
    assert [(one.file.name, one.rule, one.workflow) for one in problems] == [
        ("prices.py", "io", "flow"),
        ("stock.py", "event-loop", "flow"),
    ]


def test_factories_of_fields_count_unless_the_field_is_given(check: Check) -> None:
    code = """@dataclass
class Order:
    at: datetime = field(default_factory=datetime.now)
@workflow
async def flow() -> None:
    Order()
    Order(at=sw.now())
"""
    assert found(check(HEAD + code)) == [(6, "clock")]


@pytest.mark.parametrize(
    "line",
    [
        "len({1, 2}), sum(one for one in {1, 2}), sorted(names), [*sorted(names)]",
        "names == {1}, 1 in names, {one for one in names}",
        "for one in {1: 2}: pass",
        "random.Random(5).random()",
        "isinstance(names, asyncio.Event)",
        "log = sw.get_logger(); log.info('x'); print('x')",
        "later = work(); await later",
        "calls = [work(n) for n in (1, 2)]; await parallel(*calls)",
        "await awaitable",
        "with suppress(ValueError): await work()",
        "async with sw.deadline(3.0): await work()",
    ],
)
def test_what_can_be_replayed_is_not_reported(line: str, check: Check) -> None:
    code = "@workflow\nasync def flow(names: set[int], awaitable: Awaitable[int]) -> None:\n"
    assert check(f"{HEAD}{code}    {line}\n") == []


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("list(names)", "set-order"),
        ("first, second = names", "set-order"),
        ("names.pop()", "set-order"),
        ("[*names]", "set-order"),
        ("','.join(await tags())", "set-order"),
        ("[one for one in {1: 2}.keys() & {1}]", "set-order"),
        ("both = names | {1}\n    for one in both: pass", "set-order"),
        ("random.Random().random()", "random"),
        ("hash('x')", "environment"),
        ("await asyncio.wait_for(work(), 3)", "event-loop"),
        ("async with asyncio.timeout(3): pass", "event-loop"),
        ("try: await work()\n    except asyncio.CancelledError: pass", "event-loop"),
        ("sleep(3)", "forgotten-call"),
        ("start(flow(set()))", "forgotten-call"),
        ("_ = [work(n) for n in (1, 2)]", "forgotten-call"),
        ("if work() == 'x': pass", "forgotten-call"),
        ("return work()", "forgotten-call"),
        ("helper()", "forgotten-call"),
        ("work().with_options(timeout=3.0)", "forgotten-call"),
        ("sw.current_app()", "unjournaled"),
        ("with suppress(BaseException): await work()", "swallowed-cancel"),
        ("try: await work()\n    finally: return", "swallowed-cancel"),
        ("try: await work()\n    except StopIteration: pass", "lost-exception"),
        ("try: await work()\n    finally: log.append(1)", "global-state"),
        ("global count; count = 1", "global-state"),
        ("State.number += 1", "global-state"),
        ("seen['x']", "global-state"),
        ("os.environ = {}", "global-state"),
    ],
)
def test_what_cannot_be_replayed_is_reported(line: str, rule: str, check: Check) -> None:
    code = f"""log, seen, count = [], {{}}, 0
seen = {{}}
log = []
class State: number = 0
@step
async def tags() -> set[str]:
    seen['x'] = 1
    return set()
async def helper() -> None: ...
@workflow
async def flow(names: set[int]) -> None:
    {line}
"""
    assert {one.rule for one in check(HEAD + code)} >= {rule}
    assert {one.rule for one in check(HEAD + code)} <= {rule, "finally-effect"}


def test_a_cancellation_that_is_raised_again_or_meant_is_not_swallowed(check: Check) -> None:
    code = """@workflow
async def flow() -> None:
    try:
        await work()
    except BaseException:
        await work()
        raise
    try:
        await work()
    except Cancelled:
        return
    try:
        int("1")
    except:
        pass
"""
    assert check(HEAD + code) == []


def test_exceptions_with_parameters_are_rebuilt_and_local_classes_are_not(check: Check) -> None:
    code = """class Declined(Exception):
    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
def make() -> object:
    class Local(Exception): ...
    @workflow
    async def flow() -> None:
        try: await work()
        except (Declined, Local): pass
    return flow
"""
    [problem] = check(HEAD + code)
    assert "Local is made inside a function" in problem.message


def test_what_is_filled_while_modules_are_imported_is_a_constant(check: Check) -> None:
    code = """SENDERS: dict[str, object] = {}
CACHE: dict[str, object] = {}
def sender(name: str):
    def add(fn):
        SENDERS[name] = fn
        return fn
    return add
@sender("mail")
@step
async def mail() -> None: CACHE["mail"] = 1
@workflow
async def flow() -> None:
    SENDERS["mail"], CACHE["mail"]
if __name__ == "__main__":
    CACHE.clear()
"""
    assert found(check(HEAD + code)) == [(13, "global-state")]
    assert "CACHE" in check(HEAD + code)[0].message


def test_a_comment_allows_its_rules_on_its_line_alone(check: Check) -> None:
    code = """@workflow
async def flow() -> None:
    time.time(), os.getpid()  # stepwell: allow[clock, environment] shown to people
    time.time()  # stepwell: allow[clock]
    time.time()  # stepwell: allow[io] because
    os.getpid()
    text = "# stepwell: allow[clock] no comment"
    sw.now()  # stepwell: allow because
"""
    assert found(check(HEAD + code)) == [
        (4, "clock"),
        (4, "allow"),
        (5, "clock"),
        (5, "allow"),
        (6, "environment"),
        (8, "allow"),
    ]


def test_the_message_says_what_where_and_what_to_write(check: Check) -> None:
    [problem] = check(HEAD + "@workflow\nasync def flow() -> None:\n    await asyncio.sleep(1)\n")
    assert str(problem).endswith(
        "orders.py:17:11: event-loop: asyncio.sleep() needs the event loop, which workflow code "
        "does not have: the run would be stuck; use await stepwell.sleep(...)"
    )
